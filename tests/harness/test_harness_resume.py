"""A run that was stopped, in whatever way, and started again; and runs that must not be mixed."""

import functools
import multiprocessing
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, perfect, write_rows
from slca_eval import quietly, run_arguments, samples

from harness.benchmarks.toucan_gold import make_rows

KILLS = 20


def test_a_finished_run_started_again_asks_nothing_and_changes_nothing(
    server: ScriptedServer, run: Any, tmp_path: Path
) -> None:
    run()
    before = {name: (tmp_path / "run" / name).read_bytes() for name in ("results.json", "samples.jsonl")}
    server.bodies = []
    assert run() == 0
    assert server.bodies == []
    assert before == {name: (tmp_path / "run" / name).read_bytes() for name in before}


def test_changed_settings_are_refused_with_the_keys_that_differ(
    run: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    write_rows(data, make_rows(13))
    assert run("--temperature", 0.5, "--max-turns", 3) == 2
    message = capsys.readouterr().err
    for line in (
        "sampling.temperature: 0.0 then, 0.5 now",
        "limits.max_turns: 10 then, 3 now",
        "tasks.toucan.data.rows",
    ):
        assert line in message
    assert "another --output-dir" in message


def test_changed_files_behind_the_settings_are_refused(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording, start, config = (tmp_path / name for name in ("recording.jsonl", "start.json", "config.yaml"))
    recording.write_text('{"tool": "weather-now", "arguments": {"city": "City0"}, "response": "3 degrees"}\n')
    start.write_text("{}")
    config.write_text(f"sgls: {{backends: [replay, rules], replay: {recording}, initial_state: {start}}}\n")
    assert run("--config", config) == 0
    assert run("--config", config) == 0
    recording.write_text(recording.read_text().replace("3", "4"))
    start.write_text('{"weather": {"city": [{"id": 1}]}}')
    assert run("--config", config) == 2
    message = capsys.readouterr().err
    assert "tasks.toucan.sgls.replay.sha256" in message
    assert "tasks.toucan.sgls.initial_state.sha256" in message


def test_speed_settings_may_change(run: Any, tmp_path: Path) -> None:
    assert run("--limit", 2) == 0
    assert run("--limit", 2, "--concurrency", 1, "--timeout", 5, "--retries", 1) == 0


def test_a_torn_last_line_is_redone(server: ScriptedServer, run: Any, tmp_path: Path) -> None:
    run()
    folder = tmp_path / "run"
    whole, expected = samples(folder), (folder / "results.json").read_bytes()
    path = folder / "samples.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    server.bodies = []
    assert run() == 0
    assert len(server.bodies) == 1
    assert samples(folder) == whole
    assert (folder / "results.json").read_bytes() == expected


def test_a_sample_that_is_not_in_the_data_is_refused(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    path = tmp_path / "run" / "samples.jsonl"
    path.write_text(path.read_text().replace('"id": "000003-', '"id": "999999-'))
    assert run() == 2
    assert "does not belong to this run" in capsys.readouterr().err


def killed_and_finished(url: str, data: Path, folder: Path) -> None:
    """Runs the command in a process of its own, killed without warning `KILLS` times, then once to the end."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["harness.cli", "openai", "scipy.optimize"])  # else each child imports them
    path = folder / "samples.jsonl"
    dice = random.Random(0)
    for _ in range(KILLS):
        before = path.stat().st_size if path.exists() else 0
        process = processes.Process(target=quietly, args=(run_arguments(url, data, folder),))
        process.start()
        while process.is_alive() and (path.stat().st_size if path.exists() else 0) <= before:
            time.sleep(0.005)
        time.sleep(dice.random() * 0.1)
        assert process.is_alive()
        process.kill()
        process.join()
    process = processes.Process(target=quietly, args=(run_arguments(url, data, folder),))
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.slow
def test_a_run_killed_again_and_again_gives_the_same_bytes(
    server: ScriptedServer, data: Path, tmp_path: Path, run: Any
) -> None:
    made = make_rows(20 * (KILLS + 1))
    write_rows(data, made)
    server.script = lambda body: perfect(body, made)
    assert run(folder=tmp_path / "whole") == 0
    server.delay = 0.02
    killed_and_finished(server.url, data, tmp_path / "killed")
    assert (tmp_path / "killed/results.json").read_bytes() == (tmp_path / "whole/results.json").read_bytes()
    assert samples(tmp_path / "killed") == samples(tmp_path / "whole")


def test_a_run_killed_between_its_last_sample_and_its_results_is_finished_without_the_model(
    server: ScriptedServer, run: Any, tmp_path: Path
) -> None:
    run()
    before = {name: (tmp_path / "run" / name).read_bytes() for name in ("results.json", "samples.jsonl")}
    lines = before["samples.jsonl"].splitlines(keepends=True)
    (tmp_path / "run/samples.jsonl").write_bytes(b"".join(reversed(lines)))
    (tmp_path / "run/samples.tmp").write_bytes(lines[0][:40])
    (tmp_path / "run/results.json").unlink()
    server.bodies = []
    assert run() == 0
    assert server.bodies == []
    assert before == {name: (tmp_path / "run" / name).read_bytes() for name in before}
    assert not (tmp_path / "run/samples.tmp").exists()


def test_a_run_that_is_going_on_is_not_joined_by_a_second(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.journal import FolderLock

    (tmp_path / "run").mkdir()
    lock = FolderLock(tmp_path / "run")
    assert run() == 2
    assert "another slca-eval is running here" in capsys.readouterr().err
    lock.release()
    assert run() == 0


def test_two_folders_made_alike_hold_alike_results(server: ScriptedServer, run: Any, tmp_path: Path) -> None:
    server.script = lambda body: perfect(body, make_rows(12))
    run(folder=tmp_path / "a")
    run("--concurrency", 1, folder=tmp_path / "b")
    assert (tmp_path / "a/results.json").read_bytes() == (tmp_path / "b/results.json").read_bytes()
    assert samples(tmp_path / "a") == samples(tmp_path / "b")


def test_ctrl_c_says_how_to_go_on_and_keeps_what_is_done(server: ScriptedServer, data: Path, tmp_path: Path) -> None:
    server.delay = 0.3
    arguments = run_arguments(server.url, data, tmp_path / "run", "--concurrency", 2)  # the rest are still to come
    command = [sys.executable, "-m", "harness", *map(str, arguments)]
    heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # background jobs of a shell ignore it
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=heeding
    )
    path = tmp_path / "run/samples.jsonl"
    while not (path.exists() and path.stat().st_size):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Run the same command again to go on" in message
    assert "Traceback" not in message
    assert not (tmp_path / "run/results.json").exists()
