"""Every entry's own answer through the official checker, and wrong answers through it, on both versions."""

import json
from typing import Any

import pytest
from bfcl_fixtures import Ask, Load

from harness.benchmarks.bfcl import gold
from harness.benchmarks.bfcl.decode import result_of
from harness.benchmarks.bfcl.task import Bfcl

VERSIONS = ("v4", "v3")


def request(task: Bfcl, id: str) -> dict[str, Any]:
    """A request as far as a script of a single-turn entry looks at it."""
    functions = task.data.entries(task.kind(id))[id]["function"]
    tools = [{"function": {"name": function["name"].replace(".", "_")}} for function in functions]
    return {"messages": [{"role": "user"}], "tools": tools}


def judged(task: Bfcl, ask: Ask, results: dict[str, Any]) -> set[str]:
    """The entries that the official checker counts as wrong."""
    jobs = [{"op": "judge", "id": id, "mode": "fc", "result": result} for id, result in results.items()]
    return {id for id, verdict in zip(results, ask(task, jobs), strict=True) if not verdict["valid"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_single_turn_gold_passes_but_for_the_entries_that_cannot(load: Load, ask: Ask, version: str) -> None:
    task = load("single_turn", "relevance", version=version)
    script = gold.scripts(task)["gold"]
    ids = [sample.id for sample in task.samples()]
    assert len(load("single_turn", version=version).samples()) == 2501
    wrong = judged(task, ask, {id: result_of(script(id, request(task, id)), "fc", False) for id in ids})
    assert wrong == {id for id in gold.CANNOT_PASS[version] if "multi_turn" not in id}
    assert len(wrong) == 7


@pytest.mark.parametrize("version", VERSIONS)
def test_single_turn_wrong_answers_all_fail(load: Load, ask: Ask, version: str) -> None:
    task = load("single_turn", "relevance", version=version)
    script = gold.scripts(task)["wrong"]
    ids = [sample.id for sample in task.samples()]
    results = {id: result_of(script(id, request(task, id)), "fc", False) for id in ids}
    assert judged(task, ask, results) == set(ids)


@pytest.mark.parametrize("version", VERSIONS)
def test_multi_turn_gold_passes_and_garbage_fails_under_any_model_name(load: Load, ask: Ask, version: str) -> None:
    task = load("multi_turn", version=version)
    parameters = all_parameters(task)
    right, garbage = {}, {}
    for sample in task.samples():
        turns = range(len(task.data.answers(sample.kind)[sample.id]))
        made = [gold.turn_calls(task, sample.id, turn, parameters) for turn in turns]
        right[sample.id] = [[result_of(gold.message(turn), "fc", False)] if turn else [] for turn in made]
        garbage[sample.id] = [[[{"no_such_function": "{}"}]] for _ in turns]
    assert judged(task, ask, right) == set()
    assert judged(task, ask, garbage) == set(garbage)


def all_parameters(task: Bfcl) -> dict[str, list[str]]:
    docs = [
        json.loads(line)
        for path in (task.data._folder / "multi_turn_func_doc").glob("*.json")
        for line in path.read_text().splitlines()
    ]
    return {doc["name"]: list(doc["parameters"]["properties"]) for doc in docs}
