"""HierR as the authors' release computes it, quirks included, for exact reproduction.

Facts read off github.com/SLCA-GRPO/SLCA-GRPO at 68539c5, rl/slca_grpo/reward_fn.py and the two baselines'
reward functions; the wording is ours. Everything here works on flat text. Deviation: where the release
crashes (deep nesting, huge numbers) the block or the comparison simply fails. The quirks are named in
tests/golden/*.json; what is right instead is in `hierr.process`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from verl_slca.errors import DataError
from verl_slca.hierr.matching import name_f1
from verl_slca.hierr.process import Attempts, ProcessScore
from verl_slca.rows import Gold, GoldCall, plain
from verl_slca.trajectory import ToolCall

MIN_REPLY_CHARS = 10
"""Shorter replies score 0 without being judged."""

_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def gold_from(truth: Mapping[str, Any]) -> Gold:
    """Gold as the release reads it: unreadable parts vanish, a flat list is one step, a text is its letters."""
    raw = plain(truth.get("gold_tool_calls")) or []
    if isinstance(raw, str):
        raw = _loads(raw)
    items = raw if isinstance(raw, list) else []
    nested = bool(items) and isinstance(items[0], list)
    steps = [item for item in items if isinstance(item, list)] if nested else [items]
    read = [
        tuple(_gold_call(entry) for entry in step if isinstance(entry, str | dict) and entry != {}) for step in steps
    ]
    return Gold(
        question=str(truth.get("question_content") or ""),
        allowed_tools=tuple(str(name) for name in plain(truth.get("allowed_tools")) or ()),
        steps=tuple(step for step in read if step),
    )


def attempts(text: str, allowed_tools: Sequence[str]) -> Attempts:
    """What the release takes for the policy's calls: every block outside closed thinking, wherever it stands."""
    visible = _THOUGHT.sub("", text)
    allowed = frozenset(allowed_tools)
    blocks = [calls for body in _BLOCK.findall(visible) if (calls := _calls(body, allowed)) is not None]
    flat = tuple(call for block in blocks for call in block)
    return Attempts(
        opened=visible.count("<tool_call>"),
        closed=visible.count("</tool_call>"),
        valid_blocks=len(blocks),
        calls=flat,
        well_formed=len(flat),
        first_step=len(blocks[0]) if blocks else 0,
    )


def process_score(tried: Attempts, gold: Gold) -> ProcessScore:
    """The five parts as the release computes them; gold calls are matched greedily, in their order."""
    measured = [call for call in gold.calls if call.arguments]
    keys = values = 0.0
    unused = list(tried.calls)
    for gold_call in measured:
        best, chosen = (0.0, 0.0), None
        for index, call in enumerate(unused):
            if call.name == gold_call.name:
                pair = _argument_scores(gold_call, call)
                if sum(pair) > sum(best):
                    best, chosen = pair, index
        if chosen is not None:
            del unused[chosen]
        keys += best[0]
        values += best[1]
    return ProcessScore(
        format=tried.valid_blocks / tried.tags if tried.tags else 0.0,
        name=name_f1([call.name for call in tried.calls], [call.name for call in gold.calls]),
        key=keys / len(measured) if measured else 1.0,
        value=values / len(measured) if measured else 1.0,
        parallel=float(tried.first_step == (len(gold.steps[0]) if gold.steps else 0)),
    )


def responses(text: str) -> list[str]:
    """Contents of all response sections, those inside thinking included."""
    return [body.strip() for body in _RESPONSE.findall(text)]


def reply(text: str) -> str:
    """What the release hands to the judge as the final reply, "" when it finds none."""
    visible = _THOUGHT.sub("", text)
    _, response_end, after = visible.rpartition("</tool_response>")
    if response_end and after.strip():
        return after.strip()
    _, call_end, after = visible.rpartition("</tool_call>")
    if call_end:
        after = after.strip()
        return "" if "<tool_response>" in after or after.startswith("<tool_call>") else after
    return visible.strip()


def loosely_equal(predicted: Any, gold: Any) -> bool:
    """Loose equality of the release (quirk H15)."""
    if predicted is None or gold is None:
        return predicted is gold
    a, b = str(predicted).strip().lower(), str(gold).strip().lower()
    if a == b:
        return True
    try:
        if abs(float(predicted) - float(gold)) < 1e-9:
            return True
    except (ValueError, TypeError, OverflowError):
        pass
    if a in _BOOLEANS and b in _BOOLEANS:
        return _BOOLEANS[a] == _BOOLEANS[b]
    if isinstance(predicted, list | dict) and isinstance(gold, list | dict):
        return json.dumps(predicted, sort_keys=True) == json.dumps(gold, sort_keys=True)
    return False


def strictly_correct(gold: Sequence[GoldCall], calls: Sequence[ToolCall]) -> int:
    """Gold calls that the first unused call of the same name with all gold keys and values satisfies."""
    unused = list(calls)
    correct = 0
    for gold_call in gold:
        wanted = gold_call.arguments or {}
        for index, call in enumerate(unused):
            if call.name == gold_call.name and all(
                key in call.arguments and loosely_equal(call.arguments[key], value) for key, value in wanted.items()
            ):
                del unused[index]
                correct += 1
                break
    return correct


def _calls(body: str, allowed: frozenset[str]) -> list[ToolCall] | None:
    value = _loads(body.strip())
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list):
        return None
    calls: list[ToolCall] = []
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name not in allowed:
            return None
        arguments = entry.get("arguments") or entry.get("parameters") or {}
        if not isinstance(arguments, dict):
            return None
        calls.append(ToolCall(name, arguments))
    return calls


def _gold_call(entry: str | dict[str, Any]) -> GoldCall:
    if isinstance(entry, str):
        return GoldCall(entry, {})
    name, arguments = entry.get("name", ""), entry.get("arguments")
    if isinstance(name, list | dict):
        raise DataError(f"gold_tool_calls: name must be a non-empty string, got {name!r}")
    if isinstance(arguments, str):
        arguments = _loads(arguments)
    return GoldCall(name if isinstance(name, str) else "", arguments if isinstance(arguments, dict) else {})


def _argument_scores(gold: GoldCall, call: ToolCall) -> tuple[float, float]:
    wanted = gold.arguments or {}
    common = wanted.keys() & call.arguments.keys()
    equal = sum(loosely_equal(call.arguments[key], wanted[key]) for key in common)
    return len(common) / len(wanted.keys() | call.arguments.keys()), equal / len(wanted)


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
