"""The commands of `slca-eval`: usage errors, settings, progress, tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, perfect, write_rows
from slca_eval import results, slca_eval

from harness.benchmarks.toucan_gold import make_rows


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
    server: ScriptedServer, run: Any, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(data, rows := make_rows(40))
    server.script = lambda body: perfect(body, rows)
    run()
    lines = [line for line in capsys.readouterr().out.splitlines() if "s left" in line]
    assert len(lines) == 10
    assert lines[-1].startswith("toucan: 40/40 (100 %)")


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
    assert slca_eval("report", tmp_path / "before", tmp_path / "after", "--markdown") == 0
    table = capsys.readouterr().out
    assert "| toucan | before | after |" in table
    assert "| success@0.9 | 25.00 % ± 12.50 | 100.00 % ± 0.00 |" in table
    assert slca_eval("report", tmp_path / "after") == 0
    assert "parallel" in capsys.readouterr().out
    assert slca_eval("report", tmp_path) == 2
    assert "is this a run folder" in capsys.readouterr().err


def test_ls_lists_the_tasks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert slca_eval("ls", "tasks") == 0
    assert "success@0.9" in capsys.readouterr().out
    assert slca_eval("ls", "planets") == 2


def test_a_run_folder_says_what_was_asked_and_what_it_was_made_with(run: Any, data: Path, tmp_path: Path) -> None:
    assert run("--limit", 2, "--seed", 7) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["asked"]["sampling"] == {"temperature": 0.0, "max_tokens": 8192, "seed": 7}
    assert config["asked"]["tasks"]["toucan"]["data"]["sha256"]
    assert config["asked"]["limit"] == 2
    made_with = config["made_with"]
    assert (made_with["data"], made_with["tasks"], made_with["served_by"]) == (str(data), "toucan", "url")
    assert set(made_with) >= {"python", "openai", "transformers", "torch", "vllm", "commit"}
    assert json.loads((tmp_path / "run/results.json").read_text())["tasks"]["toucan"]["made_with"]["hierr"]
