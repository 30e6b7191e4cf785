"""Saved runs scored again without their model."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, completion, error, perfect, write_rows
from slca_eval import results, samples, slca_eval, value

from harness.benchmarks.toucan_gold import make_rows


@pytest.fixture
def finished(server: ScriptedServer, run: Any, tmp_path: Path) -> Path:
    """A run with good, bad, cut-off, overlong and failed samples; its server is gone."""
    rows = make_rows(12)

    def script(body: dict[str, Any]) -> Any:
        asked = str(body)
        if "City3" in asked:
            return error(500)
        if "City5" in asked:
            return error(400, "This model's maximum context length is 64 tokens")
        if "City6" in asked:
            return completion("I do not", finish="length")
        return "No idea." if "City8" in asked else perfect(body, rows)

    server.script = script
    assert run() == 1
    server.close()
    return tmp_path / "run"


def test_scored_again_with_the_same_settings_nothing_changes(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "results.json").read_bytes()
    assert slca_eval("rescore", finished) == 1  # one sample still has no score
    assert (finished / "rescored/results.json").read_bytes() == before == (finished / "results.json").read_bytes()
    assert (finished / "rescored/samples.jsonl").read_bytes() == (finished / "samples.jsonl").read_bytes()
    assert "every score is as it was" in capsys.readouterr().out


def test_other_settings_give_other_scores_and_say_so(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "weights.yaml"
    config.write_text("hierr: {preset: name_heavy}\n")
    assert slca_eval("rescore", finished, "--config", config) == 1
    said = capsys.readouterr().out
    assert "hierr.preset: 'default' then, 'name_heavy' now" in said
    assert value(finished / "rescored", "name_f1") == value(finished, "name_f1")
    assert results(finished / "rescored")["made_with"]["hierr"]["preset"] == "name_heavy"
    assert slca_eval("compare", finished, finished / "rescored") == 2
    assert slca_eval("rescore", finished) == 1
    assert results(finished / "rescored")["made_with"]["hierr"]["preset"] == "default"
    assert slca_eval("compare", finished, finished / "rescored") == 0
    assert {path.name for path in finished.iterdir()} >= {"rescored", "results.json"}
    assert not list(finished.glob("rescored.*"))


def test_torn_and_foreign_folders_and_other_data_are_refused(
    finished: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slca_eval("rescore", tmp_path) == 2
    assert "is this a run folder" in capsys.readouterr().err
    whole = (finished / "samples.jsonl").read_bytes()
    (finished / "samples.jsonl").write_bytes(whole[:-5])
    assert slca_eval("rescore", finished) == 2
    assert "the last line is cut off" in capsys.readouterr().err
    (finished / "samples.jsonl").write_bytes(whole.replace(b'"id": "000002-', b'"id": "999999-'))
    assert slca_eval("rescore", finished) == 2
    assert "does not belong to this run" in capsys.readouterr().err
    (finished / "samples.jsonl").write_bytes(whole)
    write_rows(data, make_rows(8))
    assert slca_eval("rescore", finished) == 2
    assert "was made with other data" in capsys.readouterr().err
    moved = write_rows(tmp_path / "moved.jsonl", make_rows(12))
    data.unlink()
    assert slca_eval("rescore", finished) == 2
    assert "no such file" in capsys.readouterr().err
    assert slca_eval("rescore", finished, "--data", moved) == 1
    assert not (finished / "rescored.tmp").exists()


def test_a_part_of_the_samples_stays_that_part(server: ScriptedServer, run: Any, tmp_path: Path) -> None:
    assert run("--limit", 5) == 0
    assert slca_eval("rescore", tmp_path / "run") == 0
    assert samples(tmp_path / "run/rescored") == samples(tmp_path / "run")
    assert json.loads((tmp_path / "run/rescored/results.json").read_text())["tasks"]["toucan"]["partial"] == {
        "played": 5,
        "of": 12,
    }
