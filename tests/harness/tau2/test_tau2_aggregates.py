import math
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from harness.benchmarks.tau2.aggregates import aggregates, pass_hat_k
from harness.benchmarks.tau2.floor import Floor
from harness.records import Record
from harness.report import caveats

TASKS = {"airline": ["a", "b"], "mock": ["m"]}
FLOORS = {"airline": Floor(frozenset({"a"}), frozenset({"b"})), "mock": None}


def record(id: str, reward: float | None, calls: int = 1) -> Record:
    status, fault = ("infrastructure_error", "judge") if reward is None else ("ok", "")
    scores = {} if reward is None else {"reward": reward, "tool_calls": calls}
    return Record(id, "tau2", id.split("/")[0], status, fault=fault, scores=scores)  # type: ignore[arg-type]


def played(rewards: dict[str, list[float | None]], calls: int = 1) -> list[Record]:
    return [record(f"{task}/{trial}", r, calls) for task, each in rewards.items() for trial, r in enumerate(each)]


def value(found: dict, name: str) -> float | None:
    return found[name]["value"]


def test_pass_hat_k_by_hand():
    # a: 2 of 3, b: 1 of 3. pass^1: (2/3 + 1/3) / 2; pass^2: (1/3 + 0) / 2; pass^3: 0.
    rewards = {"airline/a": [1.0, 1.0, 0.0], "airline/b": [0.0, 0.0, 1.0], "mock/m": [1.0, 1.0, 1.0]}
    found = aggregates(TASKS, 3, played(rewards), FLOORS)
    assert value(found, "pass^1 airline") == 0.5
    assert math.isclose(found["pass^1 airline"]["stderr"], (1 / 3) / math.sqrt(2) / math.sqrt(2))
    assert math.isclose(value(found, "pass^2 airline") or 0, 1 / 6)
    assert value(found, "pass^3 airline") == 0.0
    assert value(found, "pass^3 mock") == 1.0
    assert value(found, "pass^1") == 0.75
    assert value(found, "floor airline") == 0.5
    assert "floor mock" not in found
    # By trial airline has 1/2 each time.
    assert value(found, "sd between trials airline") == 0.0
    assert found["notes"] == ["airline: the floor is up to 2 of 2 with a lenient judge."]


def test_how_far_trials_differ_is_shown():
    found = aggregates({"mock": ["m", "n"]}, 2, played({"mock/m": [1.0, 0.0], "mock/n": [1.0, 1.0]}), FLOORS)
    # 1 in the first trial, 1/2 in the second.
    assert math.isclose(value(found, "sd between trials mock") or 0, math.sqrt(2) / 4)


def test_a_lost_simulation_leaves_no_pass_k_behind_but_a_note():
    rewards: dict[str, list[float | None]] = {"airline/a": [1.0], "airline/b": [None], "mock/m": [1.0]}
    found = aggregates(TASKS, 1, played(rewards), FLOORS)
    assert value(found, "pass^1 airline") is None
    assert value(found, "pass^1") is None
    assert value(found, "pass^1 mock") == 1.0
    assert (
        "airline: no pass^k, 1 of 2 simulations are scored, 1 lost to faults that are not the model's."
        in found["notes"]
    )


def test_a_simulation_that_was_not_run_leaves_no_pass_k_behind():
    found = aggregates(TASKS, 2, played({"airline/a": [1.0, 1.0], "airline/b": [1.0]}), FLOORS)
    assert value(found, "pass^1 airline") is None
    assert "airline: no pass^k, 3 of 4 simulations are scored." in found["notes"]
    assert "mock: no pass^k, 0 of 1 simulations are scored." not in found["notes"]


def test_a_run_without_one_tool_call_is_flagged():
    found = aggregates({"mock": ["m"]}, 1, played({"mock/m": [1.0]}, calls=0), FLOORS)
    assert found["notes"] == ["mock: not one tool call in 1 simulations; does the server take tool calls apart?"]


def test_notes_stand_below_the_table():
    samples = {"expected": 1, "ok": 1, "truncated": 0, "model_error": 0, "infrastructure_error": 0, "not_run": 0}
    result = {"samples": samples, "complete": True, "partial": None, "aggregates": {"notes": ["Mind this."]}}
    assert caveats(result) == ["Mind this."]


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.data())
def test_pass_hat_k_is_the_share_of_draws_that_all_succeed(trials: list[bool], data: st.DataObject):
    k = data.draw(st.integers(1, len(trials)))
    draws = list(combinations(trials, k))
    assert math.isclose(pass_hat_k(len(trials), sum(trials), k), sum(map(all, draws)) / len(draws))
