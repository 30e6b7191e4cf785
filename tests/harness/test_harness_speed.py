import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from instant_server import instant_server
from rich.console import Console
from scripted_server import write_rows

from harness.benchmarks.toucan_gold import make_rows
from harness.run import RunOptions, run


@pytest.mark.slow
def test_five_hundred_requests_to_an_instant_server_all_complete(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Reports processor time per request, which a busy machine changes least: episode, HTTP client, scoring, disk."""
    data = write_rows(tmp_path / "rows.jsonl", make_rows(500))
    seconds = []
    with instant_server() as url:
        for attempt in ("first", "second"):
            settings = {"toucan": {"stop_unread": False}}
            options = RunOptions(url, "toucan", tmp_path / attempt, data=data, settings=settings)
            started = time.process_time()
            assert run(options, Console(file=io.StringIO()))
            seconds.append((time.process_time() - started) / 500)
    record_property("processor_ms_per_request", round(1000 * min(seconds), 2))
    print(f"{1000 * min(seconds):.2f} ms per request, loading and reporting included")
