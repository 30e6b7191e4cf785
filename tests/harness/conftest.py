import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, write_rows
from slca_eval import run_arguments, slca_eval

from harness.benchmarks.toucan_gold import make_rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", make_rows(12))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with contextlib.closing(ScriptedServer()) as running:
        yield running


@pytest.fixture
def run(server: ScriptedServer, data: Path, tmp_path: Path) -> Any:
    """`slca-eval run` over `data` against `server`, into the folder "run" if no other is given; its exit code."""

    def run(*more: object, folder: Path = tmp_path / "run") -> int:
        return slca_eval(*run_arguments(server.url, data, folder, *more))

    return run
