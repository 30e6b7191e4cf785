"""`slca-eval run` as a command, against a scripted model over real HTTP."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, completion, error, hermes, make_rows, perfect, run_quietly, torn, write_rows

from harness.cli import main


def slca_eval(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit code of the command, run in this process."""
    monkeypatch.setattr(sys, "argv", ["slca-eval", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def arguments(server: ScriptedServer, data: Path, folder: Path, *more: object) -> list[object]:
    fixed = ["--model", server.url, "--tasks", "toucan", "--data", data, "--output-dir", folder]
    return ["run", *fixed, "--retries", 0, "--concurrency", 4, *more]


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())["tasks"]["toucan"]


def samples(folder: Path) -> list[dict[str, Any]]:
    """The samples of a run without what a clock says."""
    lines = (folder / "samples.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def value(folder: Path, metric: str, kind: str | None = None) -> float:
    group = results(folder)["kinds"][kind] if kind else results(folder)
    return group["metrics"][metric]["value"]


@pytest.fixture
def run(server: ScriptedServer, data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def run(*more: object, folder: Path = tmp_path / "run") -> int:
        return slca_eval(monkeypatch, *arguments(server, data, folder, *more))

    return run


def test_a_perfect_model_succeeds_on_every_row(server: ScriptedServer, run: Any, tmp_path: Path) -> None:
    server.script = lambda body: perfect(body, make_rows(12))
    assert run() == 0
    folder = tmp_path / "run"
    for metric in ("success@0.9", "tool_success@0.9", "process", "name_f1", "arg_match"):
        assert value(folder, metric) == 1.0, metric
    assert value(folder, "calls", "parallel") == 2.0
    assert value(folder, "tool_turns", "chain") == 2.0
    assert [value(folder, f"{what}_calls") for what in ("extra", "duplicate", "invalid")] == [0.0, 0.0, 0.0]
    assert results(folder)["samples"]["ok"] == 12
    assert results(folder)["complete"]
    assert results(folder)["partial"] is None


def test_a_model_that_does_nothing_succeeds_only_where_nothing_was_asked_for(run: Any, tmp_path: Path) -> None:
    assert run() == 0
    kinds = {kind: value(tmp_path / "run", "success@0.9", kind) for kind in ("single", "parallel", "chain", "none")}
    assert kinds == {"single": 0.0, "parallel": 0.0, "chain": 0.0, "none": 1.0}
    assert value(tmp_path / "run", "tool_success@0.9", "chain") == 0.0


def test_the_prompt_that_holds_its_tools_is_sent_as_it_is(server: ScriptedServer, run: Any) -> None:
    run()
    prompts = [row["prompt"] for row in make_rows(12)]
    assert all(body["messages"][:2] in prompts for body in server.bodies)
    assert not any("tools" in body for body in server.bodies)


def test_tools_that_are_not_in_the_prompt_are_sent_beside_it(
    server: ScriptedServer, run: Any, data: Path, tmp_path: Path
) -> None:
    rows = make_rows(4)
    for row in rows:
        del row["prompt"][0]
    write_rows(data, rows)
    run()
    assert all(body["tools"] == json.loads(rows[0]["tools"]) for body in server.bodies)


def test_redundant_duplicate_and_invalid_calls_are_counted(
    server: ScriptedServer, run: Any, data: Path, tmp_path: Path
) -> None:
    write_rows(data, make_rows(1))
    weather = {"name": "weather-now", "arguments": {"city": "City0"}}
    wrong = [weather, weather, {"name": "weather-now", "arguments": {}}, {"name": "no-such-tool", "arguments": {}}]
    first = hermes(wrong) + "\n<tool_call>broken</tool_call>"
    server.script = lambda body: first if len(body["messages"]) == 2 else "It is fine weather."
    assert run() == 0
    counts = {name: value(tmp_path / "run", f"{name}calls") for name in ("", "extra_", "duplicate_", "invalid_")}
    assert counts == {"": 4.0, "extra_": 3.0, "duplicate_": 1.0, "invalid_": 3.0}


@pytest.mark.parametrize("break_it", [lambda: error(500), lambda: error(429), torn])
def test_a_failing_server_never_becomes_a_score_and_the_run_completes_later(
    server: ScriptedServer, run: Any, tmp_path: Path, break_it: Any
) -> None:
    def flaky(body: dict[str, Any]) -> Any:
        return break_it() if "City3" in str(body) or "City4" in str(body) else perfect(body, make_rows(12))

    server.script = flaky
    assert run() == 1
    folder = tmp_path / "run"
    incomplete = results(folder)
    assert (incomplete["samples"]["infrastructure_error"], incomplete["samples"]["expected"]) == (2, 12)
    assert sum(incomplete["faults"].values()) == 2
    assert incomplete["metrics"]["success@0.9"]["n"] == 10
    assert incomplete["metrics"]["success@0.9"]["value"] == 1.0
    assert not incomplete["complete"]
    server.script, server.bodies = (lambda body: perfect(body, make_rows(12))), []
    assert run() == 0
    assert {body["messages"][1]["content"] for body in server.bodies} == {
        "Say hello to City3.",
        "What is the weather in City4?",
    }
    assert results(folder)["complete"]
    assert [sample["status"] for sample in samples(folder)] == ["ok"] * 12


def test_a_slow_server_is_an_infrastructure_error(server: ScriptedServer, run: Any, tmp_path: Path) -> None:
    server.delay = 2.0
    assert run("--timeout", 0.3, "--limit", 2) == 1
    assert results(tmp_path / "run")["faults"] == {"policy_server_timeout": 2}


def test_a_dead_server_stops_the_run_soon(server: ScriptedServer, run: Any, data: Path, tmp_path: Path) -> None:
    write_rows(data, make_rows(100))
    server.script = lambda body: error(503)
    assert run() == 1
    counts = results(tmp_path / "run")["samples"]
    assert 20 <= counts["infrastructure_error"] <= 24
    assert counts["not_run"] == 100 - counts["infrastructure_error"]


def test_a_server_that_is_not_there_is_exit_code_1_before_anything_is_written(
    server: ScriptedServer, run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.close()
    assert run() == 1
    assert not (tmp_path / "run").exists()
    assert server.url in capsys.readouterr().err


def test_a_prompt_beyond_the_context_costs_its_own_sample_only(
    server: ScriptedServer, run: Any, tmp_path: Path
) -> None:
    overflow = "This model's maximum context length is 64 tokens. However, you requested 100 tokens"
    server.script = lambda body: error(400, overflow) if "City3" in str(body) else perfect(body, make_rows(12))
    assert run() == 0
    bad = next(sample for sample in samples(tmp_path / "run") if sample["status"] == "model_error")
    assert "does not fit" in bad["reason"]
    assert bad["scores"]["process"] == 0.0
    assert value(tmp_path / "run", "success@0.9") == pytest.approx(11 / 12)


def test_a_reply_cut_off_is_truncated_and_scored(server: ScriptedServer, run: Any, tmp_path: Path) -> None:
    from fastapi.responses import JSONResponse

    server.script = lambda body: JSONResponse(completion("The weather", finish="length"))
    assert run() == 0
    assert results(tmp_path / "run")["samples"]["truncated"] == 12


def test_limit_stamps_the_run_partial_and_draws_with_the_seed(run: Any, tmp_path: Path) -> None:
    assert run("--limit", 5) == 0
    assert results(tmp_path / "run")["partial"] == {"played": 5, "of": 12}
    assert run("--limit", 5, "--seed", 1, folder=tmp_path / "other") == 0
    first, other = ({sample["id"] for sample in samples(tmp_path / name)} for name in ("run", "other"))
    assert len(first) == len(other) == 5
    assert first != other


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--tasks", "tucan"], "unknown task 'tucan'"),
        (["--tasks", ","], "--tasks is empty"),
        (["--tasks", "toucan,toucan"], "given twice"),
        (["--data", "missing.jsonl"], "no such file"),
        (["--model", "no-such-folder"], "neither a folder nor a URL"),
        (["--model-name", "other"], "is not served. At"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--concurrency", "0"], "--concurrency must be at least 1"),
        (["--timeout", "0"], "--timeout must be above 0"),
        (["--temperature", "-1"], "temperature must be in [0, 2]"),
        (["--max-turns", "0"], "max_turns must be at least 1"),
        (["--max-tokens", "0"], "max_tokens must be at least 1"),
        (["--max-tokens", "many"], "Invalid value for"),
        (["--no-such-option", "1"], "No such option"),
        (["--config", "missing.yaml"], "cannot be read"),
        (["--output-dir", "."], "is not empty and is no run folder"),
    ],
)
def test_usage_errors_are_exit_code_2_and_say_what_is_wrong(
    run: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    change: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*change) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_key_in_the_url_is_refused(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--model", "http://user:secret@localhost:1/v1") == 2
    message = capsys.readouterr().err
    assert "OPENAI_API_KEY" in message
    assert "secret" not in message


def test_several_models_at_the_server_need_a_name(
    server: ScriptedServer, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server.models = ["a", "b"]
    assert run() == 2
    assert "a, b" in capsys.readouterr().err
    assert run("--model-name", "b") == 0


def test_settings_of_scorer_and_simulator_come_from_the_config_file(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("hierr: {mode: reference}\n")
    assert run("--config", config) == 0
    assert results(tmp_path / "run")["made_with"]["hierr"]["mode"] == "reference"
    config.write_text("limits: {max_parallel_calls: 8, max_turns: 4}\n")
    assert run("--config", config, "--max-turns", 5, folder=tmp_path / "c") == 0
    limits = json.loads((tmp_path / "c/config.json").read_text())["asked"]["limits"]
    assert (limits["max_parallel_calls"], limits["max_turns"]) == (8, 5)
    config.write_text("hierr: {mod: reference}\n")
    assert run("--config", config, folder=tmp_path / "b") == 2
    assert "Did you mean 'mode'" in capsys.readouterr().err
    config.write_text("hirr: {}\n")
    assert run("--config", config, folder=tmp_path / "b") == 2
    assert "no task reads the section 'hirr'" in capsys.readouterr().err


def test_bad_rows_are_named_before_anything_starts(
    server: ScriptedServer, run: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = make_rows(3)
    rows[1]["tools"] = "not json"
    write_rows(data, rows)
    assert run() == 2
    assert "row 1: tools" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_progress_without_a_terminal_is_a_line_every_tenth(
    run: Any, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(data, make_rows(40))
    run()
    lines = [line for line in capsys.readouterr().out.splitlines() if "s left" in line]
    assert len(lines) == 10
    assert lines[-1].startswith("toucan: 40/40 (100 %)")


def killed_and_finished(server: ScriptedServer, data: Path, folder: Path, kills: int) -> None:
    """Runs the command in a process of its own, killed without warning `kills` times, then once to the end."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["harness.cli"])
    path = folder / "samples.jsonl"
    dice = random.Random(0)
    for _ in range(kills):
        before = path.stat().st_size if path.exists() else 0
        process = processes.Process(target=run_quietly, args=(list(map(str, arguments(server, data, folder))),))
        process.start()
        while process.is_alive() and (path.stat().st_size if path.exists() else 0) <= before:
            time.sleep(0.005)
        time.sleep(dice.random() * 0.1)
        assert process.is_alive()
        process.kill()
        process.join()
    process = processes.Process(target=run_quietly, args=(list(map(str, arguments(server, data, folder))),))
    process.start()
    process.join()
    assert process.exitcode == 0


def check_kills(server: ScriptedServer, data: Path, tmp_path: Path, run: Any, rows: int, kills: int) -> None:
    made = make_rows(rows)
    write_rows(data, made)
    server.script = lambda body: perfect(body, made)
    assert run(folder=tmp_path / "whole") == 0
    server.delay = 0.02
    killed_and_finished(server, data, tmp_path / "killed", kills)
    assert (tmp_path / "killed/results.json").read_bytes() == (tmp_path / "whole/results.json").read_bytes()
    assert samples(tmp_path / "killed") == samples(tmp_path / "whole")


def test_a_run_killed_and_resumed_gives_the_same_bytes(
    server: ScriptedServer, data: Path, tmp_path: Path, run: Any
) -> None:
    check_kills(server, data, tmp_path, run, rows=80, kills=3)


@pytest.mark.slow
def test_a_run_killed_twenty_times_gives_the_same_bytes(
    server: ScriptedServer, data: Path, tmp_path: Path, run: Any
) -> None:
    check_kills(server, data, tmp_path, run, rows=400, kills=20)


def test_a_run_that_is_going_on_is_not_joined_by_a_second(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.records import FolderLock

    (tmp_path / "run").mkdir()
    lock = FolderLock(tmp_path / "run")
    assert run() == 2
    assert "another slca-eval is running here" in capsys.readouterr().err
    lock.release()
    assert run() == 0


def test_report_shows_one_run_or_several(
    server: ScriptedServer,
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(folder=tmp_path / "before")
    server.script = lambda body: perfect(body, make_rows(12))
    run(folder=tmp_path / "after")
    capsys.readouterr()
    assert slca_eval(monkeypatch, "report", tmp_path / "before", tmp_path / "after", "--markdown") == 0
    table = capsys.readouterr().out
    assert "| toucan | before | after |" in table
    assert "| success@0.9 | 25.00 % ± 12.50 | 100.00 % ± 0.00 |" in table
    assert slca_eval(monkeypatch, "report", tmp_path / "after") == 0
    assert "parallel" in capsys.readouterr().out
    assert slca_eval(monkeypatch, "report", tmp_path) == 2
    assert "is this a run folder" in capsys.readouterr().err


def test_ls_lists_the_tasks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert slca_eval(monkeypatch, "ls", "tasks") == 0
    assert "success@0.9" in capsys.readouterr().out
    assert slca_eval(monkeypatch, "ls", "planets") == 2


def test_two_folders_made_alike_hold_alike_results(server: ScriptedServer, run: Any, tmp_path: Path) -> None:
    server.script = lambda body: perfect(body, make_rows(12))
    run(folder=tmp_path / "a")
    run("--concurrency", 1, folder=tmp_path / "b")
    assert (tmp_path / "a/results.json").read_bytes() == (tmp_path / "b/results.json").read_bytes()
    assert samples(tmp_path / "a") == samples(tmp_path / "b")


def test_real_rows_of_the_published_data_are_played(server: ScriptedServer, run: Any, tmp_path: Path) -> None:
    shared = Path(os.environ.get("SLCA_SHARED", Path(__file__).parents[3] / "shared")) / "data/toucan_rl.jsonl"
    if not shared.exists():
        pytest.skip("no published rows here; set SLCA_SHARED")
    assert run("--data", shared) == 0
    assert results(tmp_path / "run")["complete"]
    assert set(results(tmp_path / "run")["kinds"]) == {"tool_call", "irrelevant"}
    assert value(tmp_path / "run", "success@0.9", "irrelevant") == 1.0


def test_ctrl_c_says_how_to_go_on_and_keeps_what_is_done(server: ScriptedServer, data: Path, tmp_path: Path) -> None:
    server.delay = 0.3
    command = [sys.executable, "-m", "harness", *map(str, arguments(server, data, tmp_path / "run"))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
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
