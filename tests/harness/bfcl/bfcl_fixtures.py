"""What the fixtures of these tests are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.benchmarks.bfcl.task import Bfcl
from harness.benchmarks.task import Outcome

Load = Callable[..., Bfcl]
"""Subsets and settings to a task."""

Ask = Callable[[Bfcl, Sequence[Mapping[str, Any]]], list[dict[str, Any]]]
"""A task and jobs to the worker's answers."""

PlayOne = Callable[..., Outcome]
"""A task, a script and ids to the outcome of the last."""
