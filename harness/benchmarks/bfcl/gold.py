"""Models whose scores are known: one that gives BFCL's own answers, one that is always wrong.

For `slca-eval selfcheck` (`harness.benchmarks.task.Gold`): a script makes the assistant message for a sample id and
a request; `expected` says what each sample must then score. FC mode, both versions.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.benchmarks.bfcl import categories
from harness.benchmarks.bfcl.names import sent
from harness.benchmarks.bfcl.task import Bfcl
from harness.benchmarks.task import Gold, Script, Task

_REFUSED = ("live_simple_106-63-0", "live_simple_112-68-0", "live_multiple_862-181-3", "live_multiple_964-207-0")

CANNOT_PASS: dict[str, frozenset[str]] = {
    "v4": frozenset((*_REFUSED, "simple_java_36", "simple_java_64", "simple_java_65")),
    "v3": frozenset((*_REFUSED, "java_36", "java_64", "java_65", "multi_turn_base_154")),
}
"""Entries that no answer passes, by version. Seven of the 2,501 single-turn ones have possible answers that the
official checker refuses; one of V3's multi-turn ones has an answer for a turn that is never asked for."""

Call = tuple[str, dict[str, Any]]


def scripts(task: Task) -> dict[str, Script]:
    """``gold`` answers right wherever the data let it, ``wrong`` is wrong everywhere."""
    assert isinstance(task, Bfcl)
    return {"gold": lambda id, body: _gold(task, id, body), "wrong": lambda id, body: _wrong(task, id, body)}


def expected(task: Task, script: str) -> dict[str, dict[str, float]]:
    """The scores of every sample under that script."""
    assert isinstance(task, Bfcl)
    right, refused = script == "gold", CANNOT_PASS[task.config.version]
    return {sample.id: {"accuracy": float(right and sample.id not in refused)} for sample in task.samples()}


GOLD = Gold(scripts, expected)


def answer_calls(task: Bfcl, id: str) -> list[Call]:
    """The calls that BFCL itself holds right for a single-turn entry, arguments as a model would write them."""
    kind = task.kind(id)
    functions = {doc["name"]: doc["parameters"] for doc in task.data.entries(kind)[id]["function"]}
    calls = []
    for answer in task.data.answers(kind)[id]:
        ((name, options),) = answer.items()
        if name not in functions:  # two of V3's answers name their function differently; the checker goes by the entry
            (name,) = functions
        arguments = {}
        for key, choices in options.items():
            parameter = functions[name]["properties"].get(key)
            given = [choice for choice in choices if choice != ""] or (
                [""] if key in functions[name]["required"] else []
            )
            if given and parameter is not None:
                arguments[key] = _written(_settled(given[0]), parameter, kind)
        calls.append((name, arguments))
    return calls


def turn_calls(task: Bfcl, id: str, turn: int, parameters: Mapping[str, Sequence[str]]) -> list[Call]:
    """The calls that BFCL itself makes in a turn of a multi-turn entry.

    Args:
        task: of that entry.
        id: the entry.
        turn: its number, from 0.
        parameters: function to the names of its parameters, in order: some of BFCL's own calls leave them out.
    """
    calls = []
    for text in task.data.answers(task.kind(id))[id][turn]:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        name = ast.unparse(call.func)
        arguments = dict(zip(parameters.get(name, ()), map(ast.literal_eval, call.args), strict=False))
        arguments |= {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
        calls.append((name, arguments))
    return calls


def message(calls: Sequence[Call], text: str = "") -> dict[str, Any]:
    """The assistant message that makes those calls, in the form of the OpenAI API; only text where there are none."""
    functions = [{"name": sent(name, "fc"), "arguments": json.dumps(arguments)} for name, arguments in calls]
    entries = [{"id": f"call_{i}", "type": "function", "function": f} for i, f in enumerate(functions)]
    return {"role": "assistant", "content": text, **({"tool_calls": entries} if entries else {})}


def _gold(task: Bfcl, id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    kind = task.kind(id)
    if kind in categories.MULTI_TURN:
        if body["messages"][-1]["role"] != "user":
            return message([], "Done.")
        turn = sum(entry["role"] == "user" for entry in body["messages"]) - 1
        functions = [tool["function"] for tool in body["tools"]]
        parameters = {function["name"]: list(function["parameters"]["properties"]) for function in functions}
        return message(turn_calls(task, id, turn, parameters), "Something that this needs is missing.")
    if kind == "live_relevance":
        return message([_wrong_call(body)])
    if kind in categories.RELEVANCE:
        return message([], "None of the functions can help with that.")
    return message(answer_calls(task, id))


def _wrong(task: Bfcl, id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    if task.kind(id) == "live_relevance" or body["messages"][-1]["role"] == "tool":
        return message([], "Done.")
    return message([_wrong_call(body)])


def _wrong_call(body: Mapping[str, Any]) -> Call:
    """A call of a function that is on offer, if there is any, with a parameter that no function has."""
    functions = [tool["function"]["name"] for tool in body.get("tools", ())]
    return (functions or ["no_such_function"])[0], {"no_such_parameter": 1}


def _settled(value: Any) -> Any:
    """A possible answer with the first choice taken wherever a dict leaves several."""
    if isinstance(value, list):
        return [_settled(item) for item in value]
    if isinstance(value, dict):
        # One of V4's entries leaves no choice where all others give a list of them.
        lists = {key: choices if isinstance(choices, list) else [choices] for key, choices in value.items()}
        given = {key: [choice for choice in choices if choice != ""] for key, choices in lists.items()}
        return {key: choices[0] for key, choices in given.items() if choices}
    return value


def _written(value: Any, parameter: Mapping[str, Any], kind: str) -> Any:
    """A value as the request asks for it: of Java and JavaScript, its source text."""
    if kind == "simple_java":
        return _java(value, parameter.get("type", "any"), parameter.get("items", {}).get("type", "any"))
    if kind == "simple_javascript":
        return _javascript(value, parameter.get("type", "any"))
    return value


def _java(value: Any, type_name: str, items: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and type_name == "Array":
        return f"new {items}[]{{{', '.join(_java(item, items, '') for item in value)}}}"
    if isinstance(value, list):
        return f"new ArrayList<>(Arrays.asList({', '.join(_quoted(item, items) for item in value)}))"
    if isinstance(value, dict):
        puts = "".join(f' put("{key}", {_quoted(item, "String")});' for key, item in value.items())
        return f"new HashMap<String, Object>() {{{{{puts} }}}}"
    suffix = {"long": "L", "float": "f"}.get(type_name, "") if isinstance(value, int | float) else ""
    return f"{value}{suffix}"


def _quoted(value: Any, items: str) -> str:
    return f'"{value}"' if isinstance(value, str) and items in ("String", "any", "char") else _java(value, items, "")


def _javascript(value: Any, type_name: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_javascript_inner(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_javascript_inner(item)}' for key, item in value.items())}}}"
    return f"{value}n" if type_name == "Bigint" and isinstance(value, int) else f"{value}"


def _javascript_inner(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else _javascript(value, "any")
