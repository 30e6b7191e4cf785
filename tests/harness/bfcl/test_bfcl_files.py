"""Official result files: the official runner agrees with us on them, and damaged ones are refused."""

import asyncio
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bfcl_fixtures import Load
from official_command import MODEL

from harness.benchmarks.bfcl import gold
from harness.benchmarks.bfcl.decode import result_of
from harness.benchmarks.bfcl.files import read_results, result_path, write_results, written
from harness.benchmarks.bfcl.task import Bfcl
from harness.records import Record
from verl_slca.errors import DataError

VALUES = [None, 1, 1.5, "x", [1], {}, [{}], [[1]], {"a": {"b": 1}}, True]


def result(task: Bfcl, id: str) -> Any:
    """The gold result of an entry, as the official files hold it."""
    kind = task.kind(id)
    if not kind.startswith("multi_turn"):
        functions = task.data.entries(kind)[id]["function"]
        tools = [{"function": {"name": function["name"].replace(".", "_")}} for function in functions]
        return result_of(gold.scripts(task)["gold"](id, {"messages": [{"role": "user"}], "tools": tools}), "fc", False)
    turns = range(len(task.data.answers(kind)[id]))
    return [[result_of(gold.message(gold.turn_calls(task, id, turn, {})), "fc", False), "Done."] for turn in turns]


def damaged(result: Any, rng: random.Random) -> Any:
    """A result that a model could also have given."""
    if not isinstance(result, list) or not result or rng.random() < 0.2:
        return rng.choice([result, "text", "", "[]", [], [{"f": "{}"}]])
    if isinstance(result[0], list):
        return [result, result[:-1], result[::-1], [[{"ls": "{}"}] for _ in result]][rng.randrange(4)]
    ((name, arguments),) = result[0].items()
    changed = {**json.loads(arguments)}
    if changed:
        changed[rng.choice(list(changed))] = rng.choice(VALUES)
    first = rng.choice([arguments[:-1], "[1]", json.dumps(changed), json.dumps(changed), arguments])
    return rng.choice([[{name: first}, *result[1:]], result[::-1], result + result[:1], [{f"x.{name}": first}]])


def records(task: Bfcl, seed: int, every: int) -> list[Record]:
    rng = random.Random(seed)
    ids = [sample.id for sample in task.samples()][::every]
    return [
        Record(
            id,
            "bfcl",
            task.kind(id),
            "ok",
            scores={"accuracy": 0.0},
            trajectory={"result": damaged(result(task, id), rng)},
        )
        for id in ids
    ]


def test_the_official_runner_counts_as_we_do(load: Load, tmp_path: Path) -> None:
    task = load("all")
    made = records(task, seed=0, every=3)
    write_results(task, made, tmp_path / "result" / MODEL)
    script = Path(__file__).with_name("official_command.py")
    command = [task.data.python, "-sP", script, tmp_path / "result", tmp_path / "score"]
    subprocess.run(
        command, env={"BFCL_PROJECT_ROOT": str(tmp_path)}, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL
    )
    wrong = set()
    for path in (tmp_path / "score").rglob("*_score.json"):
        total, *failed = map(json.loads, path.read_text().splitlines())
        assert total["total_count"] - total["correct_count"] == len(failed)
        wrong |= {each["id"] for each in failed}
    results = read_results(task, tmp_path / "result" / MODEL)
    assert results == {record.id: record.trajectory["result"] for record in made}
    ours = asyncio.run(task.official_verdicts(results))
    assert {id for id, right in ours.items() if not right} == wrong
    assert 0.2 < len(wrong) / len(results) < 0.95


def test_v3_files_have_its_names_and_no_groups() -> None:
    assert result_path("simple_java", "v3", Path("m")) == Path("m/BFCL_v3_java_result.json")
    assert result_path("live_simple", "v4", Path("m")) == Path("m/live/BFCL_v4_live_simple_result.json")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('{"id": "simple_python_0", "result": ""}\n' * 2, r"json:2: 'simple_python_0' is here twice"),
        ('{"id": "simple_python_400", "result": ""}\n', r"json:1: 'simple_python_400' is no entry of simple_python"),
        ('{"id": "multiple_0", "result": ""}\n', r"json:1: 'multiple_0' is no entry of simple_python"),
        ('{"id": "simple_python_0", "result": ""}\n\n', r"json:2: blank"),
        ('{"id": "simple_python_0"}\n', r"json:1: no JSON object with id and result"),
        ('{"id": "simple_python_0", "result": ""}\n{"id": "simp', r"json: the last line is cut"),
        ('{"id": "simple_python_0", "result": "Error during inference: 500"}\n', r"json:1: .* an error of the server"),
    ],
)
def test_a_damaged_file_is_refused_with_file_and_line(load: Load, tmp_path: Path, lines: str, problem: str) -> None:
    task = load("simple_python")
    path = result_path("simple_python", "v4", tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(lines)
    assert written(tmp_path, "v4") == ("simple_python",)
    with pytest.raises(DataError, match=problem):
        read_results(task, tmp_path)


def test_a_folder_without_result_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no BFCL_v4_\*_result.json"):
        written(tmp_path, "v4")
