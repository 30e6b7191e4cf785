"""The pipeline runner: finished stages are not repeated, other settings are not mixed in, failures show their log."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from verl_slca.errors import ConfigError
from verl_slca.stages import Stage, StageError, python_command, run_stages


def appending(name: str, directory: Path, word: str = "x") -> Stage:
    code = f"open({str(directory / 'trace')!r}, 'a').write({word!r})"
    return Stage(name, f"write {word}", python_command("-c", code))


def run(stages: list[Stage], directory: Path) -> str:
    shown = io.StringIO()
    run_stages(stages, directory, Console(file=shown, width=200))
    return shown.getvalue()


def test_stages_run_in_order_once_and_are_skipped_the_second_time(tmp_path):
    stages = [appending("one", tmp_path, "a"), appending("two", tmp_path, "b")]
    run(stages, tmp_path)
    assert "done before" in run(stages, tmp_path)
    assert (tmp_path / "trace").read_text() == "ab"


def test_a_failing_stage_shows_the_end_of_its_log_and_the_next_run_starts_there(tmp_path):
    broken = Stage("two", "fail", python_command("-c", "print('why it failed'); raise SystemExit(3)"))
    with pytest.raises(StageError, match=r"two exited with 3.*(?s:.)*why it failed"):
        run([appending("one", tmp_path, "a"), broken], tmp_path)
    run([appending("one", tmp_path, "a"), appending("two", tmp_path, "b")], tmp_path)
    assert (tmp_path / "trace").read_text() == "ab"


def test_a_stage_done_with_other_settings_is_refused(tmp_path):
    run([appending("one", tmp_path, "a")], tmp_path)
    with pytest.raises(ConfigError, match=r"other settings.*another output directory"):
        run([appending("one", tmp_path, "b")], tmp_path)


def test_progress_is_shown_while_a_stage_runs(tmp_path):
    stage = Stage("one", "wait", python_command("-c", "import time; time.sleep(2.5)"), progress=lambda: "step 7 of 9")
    assert run([stage], tmp_path).count("step 7 of 9") == 1


def test_an_optional_stage_that_fails_is_one_line_and_is_tried_again(tmp_path):
    broken = Stage("two", "fail", python_command("-c", "raise SystemExit('error: no index')"), optional=60.0)
    said = run([appending("one", tmp_path, "a"), broken, appending("three", tmp_path, "c")], tmp_path)
    assert "fail: left out. error: no index (log: " in said
    assert (tmp_path / "trace").read_text() == "ac"
    assert not (tmp_path / "stages/two.json").exists()
    run([appending("one", tmp_path, "a"), appending("two", tmp_path, "b")], tmp_path)
    assert (tmp_path / "trace").read_text() == "acb"


def test_an_optional_stage_that_takes_too_long_is_ended(tmp_path):
    endless = Stage("one", "wait", python_command("-c", "import time; time.sleep(60)"), optional=1.0)
    assert "wait: left out. Not done in 1 s" in run([endless], tmp_path)
