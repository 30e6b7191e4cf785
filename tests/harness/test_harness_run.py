"""`slca-eval run` as a command, against a scripted model over real HTTP: what is played, and what is scored."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, completion, error, hermes, perfect, torn, write_rows
from slca_eval import results, samples, value

from harness.benchmarks.toucan_gold import make_rows


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


def test_every_request_says_which_sample_it_is_of(server: ScriptedServer, run: Any, data: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    server.answer = lambda sample, body: seen.append(sample) or completion("Hello there!")  # type: ignore[method-assign]
    run()
    assert sorted(seen) == [sample["id"] for sample in samples(tmp_path / "run")]


def test_tools_that_are_not_in_the_prompt_are_sent_beside_it(
    server: ScriptedServer, run: Any, data: Path, tmp_path: Path
) -> None:
    rows = make_rows(4)
    for row in rows:
        del row["prompt"][0]
    write_rows(data, rows)
    run()
    played = [body for body in server.bodies if body["messages"][-1]["content"] != "Hello."]
    assert len(played) == 4
    assert all(body["tools"] == json.loads(rows[0]["tools"]) for body in played)


def test_a_server_that_drops_the_tools_ends_the_run(
    server: ScriptedServer, run: Any, data: Path, tmp_path: Path
) -> None:
    rows = make_rows(1)
    del rows[0]["prompt"][0]
    write_rows(data, rows)
    server.script = lambda body: completion("Hello there!", prompt=30)
    assert run() == 2


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

    server.script = lambda body: completion("The weather", finish="length")
    assert run() == 0
    assert results(tmp_path / "run")["samples"]["truncated"] == 12


def test_limit_stamps_the_run_partial_and_draws_with_the_seed(run: Any, tmp_path: Path) -> None:
    assert run("--limit", 5) == 0
    assert results(tmp_path / "run")["partial"] == {"played": 5, "of": 12}
    assert run("--limit", 5, "--seed", 1, folder=tmp_path / "other") == 0
    first, other = ({sample["id"] for sample in samples(tmp_path / name)} for name in ("run", "other"))
    assert len(first) == len(other) == 5
    assert first != other


def test_real_rows_of_the_published_data_are_played(server: ScriptedServer, run: Any, tmp_path: Path) -> None:
    shared = Path(os.environ.get("SLCA_SHARED", Path(__file__).parents[3] / "shared")) / "data/toucan_rl.jsonl"
    if not shared.exists():
        pytest.skip("no published rows here; set SLCA_SHARED")
    assert run("--data", shared) == 0
    assert results(tmp_path / "run")["complete"]
    assert set(results(tmp_path / "run")["kinds"]) == {"tool_call", "irrelevant"}
    assert value(tmp_path / "run", "success@0.9", "irrelevant") == 1.0


@pytest.mark.parametrize("shape", ["nested", "flat", "names", "list of names"])
def test_the_released_test_set_loads_in_its_old_and_new_gold_shapes(
    server: ScriptedServer, run: Any, tmp_path: Path, shape: str
) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = make_rows(8)
    for row in rows:
        truth = row["reward_model"]["ground_truth"]
        calls = [call for step in json.loads(truth["gold_tool_calls"]) for call in step]
        names = [call["name"] for call in calls]
        shapes = {"flat": json.dumps(calls), "names": json.dumps(names), "list of names": names}
        truth["gold_tool_calls"] = shapes.get(shape, truth["gold_tool_calls"])
        row["extra_info"] = {"index": 0}
    path = tmp_path / "toucan_eval_4k_unified.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    server.script = lambda body: perfect(body, make_rows(8))
    assert run("--data", path) == 0
    assert value(tmp_path / "run", "success@0.9") == 1.0
    assert value(tmp_path / "run", "name_f1") == 1.0


def test_a_run_in_which_no_call_can_be_read_stops_with_a_sample_and_goes_on_when_told_so(
    server: ScriptedServer, run: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = make_rows(40)
    write_rows(data, rows)
    server.script = lambda body: completion('```json\n{"name": "weather-now"}\n```')
    assert run() == 2
    said = capsys.readouterr().err
    for part in (
        "toucan: none of the first 20 answers",
        "```json",
        "--tool-call-parser",
        "toucan.stop_unread to false",
    ):
        assert part in said
    config = tmp_path / "config.yaml"
    config.write_text("toucan: {stop_unread: false}\n")
    assert run("--config", config) == 0
    assert results(tmp_path / "run")["samples"]["ok"] == 40
    assert run() == 0
