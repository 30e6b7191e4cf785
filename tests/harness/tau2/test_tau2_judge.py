"""Assertions in natural language, with the real package on tasks that are graded by them."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tau2_bench import Bench, Server, shadowed, with_tasks

from harness.benchmarks.tau2 import gold
from harness.benchmarks.tau2.gold import JUDGE, text, verdicts
from harness.benchmarks.tau2.installation import inspect
from harness.benchmarks.tau2.task import Tau2
from harness.scripted_server import error_reply

CREATE = "mock/create_task_1/0"


@pytest.fixture(scope="module")
def judged(python: Path, task: Tau2, tmp_path_factory: pytest.TempPathFactory) -> Tau2:
    """The mock domain, graded as v1.x grades retail."""
    folder = tmp_path_factory.mktemp("judged")
    if task.installation.api != "v0":
        pytest.skip("v1.x has its data elsewhere")

    def graded(entry: dict[str, Any]) -> None:
        entry["evaluation_criteria"] |= {"reward_basis": ["DB", "NL_ASSERTION"], "nl_assertions": ["polite", "brief"]}

    with_tasks(Path(task.installation.data).parent, folder, graded)
    return Tau2(inspect(shadowed(python, folder), ["mock"]), task.config, 0)


@pytest.fixture(scope="module")
def judging(judged: Tau2, tau2_server: Server) -> Iterator[Bench]:
    with contextlib.closing(Bench(judged, tau2_server)) as running:
        yield running


def says(task: Tau2, verdict: Any) -> Any:
    """The gold script with a judge that answers `verdict`."""
    right = gold.scripts(task)["gold"]

    def script(sample: str, body: Mapping[str, Any]) -> Any:
        if body["model"] != JUDGE:
            return right(sample, body)
        assert sample == CREATE
        return verdict

    return script


@pytest.mark.parametrize(("met", "reward"), [(True, 1.0), (False, 0.0)])
def test_the_judge_decides(judging: Bench, judged: Tau2, met: bool, reward: float):
    outcome = judging.play(judged, CREATE, says(judged, verdicts(["polite", "brief"], met)))
    assert (outcome.status, outcome.scores["reward"]) == ("ok", reward)
    assert len(outcome.trajectory["simulation"]["reward_info"]["nl_assertions"]) == 2


@pytest.mark.parametrize("given", [[], ["polite"], ["polite", "brief", "kind"]])
def test_a_judge_that_leaves_out_a_verdict_gives_no_score(judging: Bench, judged: Tau2, given: list[str]):
    outcome = judging.play(judged, CREATE, says(judged, verdicts(given, True)))
    assert (outcome.status, outcome.fault, outcome.scores) == ("infrastructure_error", "judge_malformed", {})


@pytest.mark.parametrize(
    "broken", [text("Looks fine to me."), text('{"results": [{}]}'), error_reply(503, "overloaded")]
)
def test_a_judge_that_fails_gives_no_score_and_can_be_asked_again(judging: Bench, judged: Tau2, broken: Any):
    outcome = judging.play(judged, CREATE, says(judged, broken))
    assert (outcome.status, outcome.fault, outcome.scores) == ("infrastructure_error", "judge", {})
    judging.server.script = says(judged, verdicts(["polite", "brief"], True))
    again = judging.rescore(judged, CREATE, outcome)
    assert (again.status, again.scores["reward"]) == ("ok", 1.0)


def test_which_tasks_need_a_judge_is_known_before(judged: Tau2, task: Tau2):
    assert judged.installation.needs_judge
    assert judged.entry(CREATE)["assertions"] == ["polite", "brief"]
    assert json.dumps(judged.identity()["domains"]) != json.dumps(task.identity()["domains"])
