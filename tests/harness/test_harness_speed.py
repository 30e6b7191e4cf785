import io
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console
from scripted_server import write_rows

from harness.benchmarks.toucan_gold import make_rows
from harness.run import RunOptions, run


@pytest.fixture
def instant() -> Iterator[str]:
    command = [sys.executable, str(Path(__file__).with_name("instant_server.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.kill()


@pytest.mark.slow
def test_five_hundred_requests_to_an_instant_server_all_complete(
    instant: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Reports processor time per request, which a busy machine changes least: episode, HTTP client, scoring, disk."""
    data = write_rows(tmp_path / "rows.jsonl", make_rows(500))
    seconds = []
    for attempt in ("first", "second"):
        options = RunOptions(model=instant, tasks="toucan", output_dir=tmp_path / attempt, data=data)
        started = time.process_time()
        assert run(options, Console(file=io.StringIO()))
        seconds.append((time.process_time() - started) / 500)
    record_property("processor_ms_per_request", round(1000 * min(seconds), 2))
    print(f"{1000 * min(seconds):.2f} ms per request, loading and reporting included")
