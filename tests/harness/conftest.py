import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_server import ScriptedServer, make_rows, write_rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", make_rows(12))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with contextlib.closing(ScriptedServer()) as running:
        yield running
