"""Models whose scores are known: one that makes every task's own actions, one that does nothing.

For `slca-eval selfcheck` (`harness.benchmarks.task.Gold`). One server plays the agent, the user and the judge, told
apart by the model's name. A task's actions come as runs of the agent's and the user's in turn: at step s the agent
makes its calls and hands over, the user makes its own and hands back.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.benchmarks.task import Gold, Script, Task
from harness.benchmarks.tau2.floor import INCOMPLETE, floor_of
from harness.benchmarks.tau2.task import Tau2

USER, JUDGE = "gold-user", "gold-judge"

_STEP = "Step"
_STOP = "###STOP###"

Body = Mapping[str, Any]
Action = Mapping[str, Any]


def scripts(task: Task) -> dict[str, Script]:
    """``gold`` does what is right, ``noop`` says that it cannot help."""
    assert isinstance(task, Tau2)
    return {"gold": lambda id, body: _gold(task, id, body), "noop": lambda id, body: _noop(task, id, body)}


def expected(task: Task, script: str) -> dict[str, dict[str, float]]:
    """The scores of every sample under that script; none for ``noop`` on tasks whose floor was never measured."""
    assert isinstance(task, Tau2)
    if script == "gold":
        return {
            sample.id: {"reward": float(task.entry(sample.id)["id"] not in INCOMPLETE)} for sample in task.samples()
        }
    floors = {name: floor_of(domain) for name, domain in task.installation.domains.items()}
    wanted: dict[str, dict[str, float]] = {}
    for sample in task.samples():
        floor = floors[sample.kind]
        passes = floor is not None and task.entry(sample.id)["id"] in floor.sure
        wanted[sample.id] = {} if floor is None else {"reward": float(passes), "tool_calls": 0.0}
    return wanted


def settings(url: str) -> dict[str, Any]:
    """The server at `url` plays the user and the judge as well."""
    return {"tau2": {"user_model": USER, "user_url": url, "judge_model": JUDGE, "judge_url": url}}


GOLD = Gold(scripts, expected, settings)


def text(content: str) -> dict[str, Any]:
    """An assistant message that says something."""
    return {"role": "assistant", "content": content}


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    """An assistant message that makes one call; `arguments` is what a model writes, JSON or not."""
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def verdicts(assertions: Sequence[str], met: bool) -> dict[str, Any]:
    """A judge's answer on all of them."""
    results = [{"expectedOutcome": each, "reasoning": "scripted", "metExpectation": met} for each in assertions]
    return text(json.dumps({"results": results}))


def steps_of(actions: Sequence[Action]) -> list[tuple[list[Action], list[Action]]]:
    """Actions in order, as steps of what the agent and then the user does; there is one at least.

    Example:
        >>> [tuple(map(len, step)) for step in steps_of([{"requestor": r} for r in ("user", "assistant", "user")])]
        [(0, 1), (1, 1)]
    """
    runs = [(who, list(run)) for who, run in itertools.groupby(actions, key=lambda action: action["requestor"])]
    steps: list[tuple[list[Action], list[Action]]] = [([], [])]
    for who, run in runs:
        if who == "assistant" and steps[-1] != ([], []):
            steps.append(([], []))
        steps[-1][who == "user"].extend(run)
    return steps


def _gold(task: Tau2, id: str, body: Body) -> dict[str, Any]:
    if not id:
        return call("probe", "find_order", '{"order_id": "W42"}') if body.get("tools") else text("Hello.")
    entry = task.entry(id)
    if body["model"] == JUDGE:
        return verdicts(entry["assertions"], met=True)
    steps = steps_of(entry["actions"])
    said = [str(message.get("content") or "") for message in body["messages"]]
    handed_over = sum(content.startswith(_STEP) for content in said)
    if body["model"] == USER:
        if not handed_over:
            return text("Hello, please help me.")
        left = _next(body, "user", handed_over - 1, steps[handed_over - 1][1])
        return left or text(_STOP if handed_over == len(steps) else "Done.")
    step = min(handed_over, len(steps) - 1)
    return _next(body, "agent", step, steps[step][0]) or text(" ".join((_STEP, str(step), *entry["communicate"])))


def _next(body: Body, who: str, step: int, actions: Sequence[Action]) -> dict[str, Any] | None:
    """The call of the first of the actions that was not made yet, None after the last."""
    made = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
    for number, action in enumerate(actions):
        if f"{who}-{step}-{number}" not in made:
            return call(f"{who}-{step}-{number}", action["name"], json.dumps(action["arguments"]))
    return None


def _noop(task: Tau2, id: str, body: Body) -> dict[str, Any]:
    if not id:
        return text("Hello.")
    if body["model"] == JUDGE:
        return verdicts(task.entry(id)["assertions"], met=False)
    if body["model"] == USER:
        return text(_STOP if any(message["role"] == "assistant" for message in body["messages"]) else "Hello.")
    return text("I am sorry, I cannot help with that.")
