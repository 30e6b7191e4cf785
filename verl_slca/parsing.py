"""Policy text to tool calls and back; the one definition of a well-formed call.

The agent loop parses each turn with `parse_turn`. Where a rollout is only text (other people's rollouts,
golden files, the reference scorer), `trajectory_from_text` cuts it into turns and `text_from_trajectory`
writes it. The format is hermes: ``<tool_call>`` around a JSON object or a list of them. Whether a tool is
*offered* is the scorer's question, not the parser's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_slca.trajectory import Stop, ToolCall, ToolResult, Trajectory, Turn

MAX_NESTING = 64
"""Deepest JSON accepted in a call; the standard parser's own limit depends on the caller's stack."""

MAX_QUOTED_TAGS = 8
"""Most ``</tool_call>`` tried as the end of one block, the others being inside its strings."""

_TAG = re.compile(r"<(/?)(think|thinking|tool_call|tool_response)>")
_THINK_END = re.compile(r"</think(?:ing)?>")
_BLOCK_CLOSE = re.compile("</tool_call>")
_BLOCK_END = re.compile(r"</tool_call>|<tool_response>")
_SPACE = re.compile(r"\s*")
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_RESPONSE_OPEN, _RESPONSE_CLOSE = "<tool_response>", "</tool_response>"


@dataclass(frozen=True, slots=True)
class Block:
    """One ``<tool_call>`` block.

    Attributes:
        calls: its calls in order, empty when malformed.
        error: why it is malformed, in words the policy can use; None when it is well-formed.
    """

    calls: tuple[ToolCall, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """What one policy turn says.

    Attributes:
        blocks: tool-call blocks outside thinking, in order; an unpaired tag is a malformed block.
        opened: number of ``<tool_call>`` tags outside thinking and outside JSON strings.
        closed: number of ``</tool_call>`` tags, likewise.
        content: text for the user: thinking and tool-call blocks removed, outer blanks stripped.
        thinking: True when the turn ends inside a thinking block that never closes.
    """

    blocks: tuple[Block, ...]
    opened: int
    closed: int
    content: str
    thinking: bool = False

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every well-formed call of the turn, in order."""
        return tuple(call for block in self.blocks for call in block.calls)

    @property
    def attempted(self) -> bool:
        """True when the turn holds any tool-call tag outside thinking, well-formed or not."""
        return self.opened > 0 or self.closed > 0


def parse_turn(text: str) -> ParsedTurn:
    """The calls and the user-visible text of one policy turn; never raises, linear in ``len(text)``.

    - ``<think>`` or ``<thinking>`` hides everything up to its end, or up to the end of the text. An end
      without a start means that the start was in the prompt: the text before it is thinking.
    - Tags inside a JSON string of a call are data, not tags.
    - A call is an object with a non-empty string ``name`` and an object of ``arguments`` (absent or null: none;
      ``parameters`` is read where ``arguments`` is absent; JSON text of an object is accepted, as some
      templates write it). One bad entry makes its whole block malformed, and so does an empty list.

    Example:
        >>> turn = parse_turn('Sure. <tool_call>{"name": "ping", "arguments": {"host": "h1"}}</tool_call>')
        >>> turn.calls
        (ToolCall(name='ping', arguments={'host': 'h1'}),)
        >>> turn.content
        'Sure.'
        >>> parse_turn("<tool_call>ping</tool_call>").blocks[0].error
        'Invalid tool call: not valid JSON (Expecting value at character 0).'
    """
    return _read_turn(text, 0, flat=False)[0]


def trajectory_from_text(text: str) -> Trajectory:
    """The rollout that a flat transcript shows, turns separated by its ``<tool_response>`` sections.

    A section counts as the environment's only after a turn that attempted a call: one inside thinking, inside
    a call's JSON, or out of nowhere was written by the policy and is its own text. Token spans are unknown.

    `stop` is ``"answer"`` when the last turn attempts no call and its thinking ends; ``"length"`` when the
    text breaks off inside thinking or inside a call; else (the last word is a call or a response to one)
    ``"turn_limit"``. Empty text is one empty answer.

    Example:
        >>> flat = '<tool_call>{"name": "ping"}</tool_call><tool_response>ok</tool_response>It answers.'
        >>> trajectory = trajectory_from_text(flat)
        >>> trajectory.stop, trajectory.answer, trajectory.results[0].content
        ('answer', 'It answers.', 'ok')
    """
    turns: list[Turn] = []
    start = 0
    while True:
        parsed, end = _read_turn(text, start, flat=True)
        turn_text = text[start:end].strip("\n")
        results, start = _read_responses(text, end, parsed.calls)
        if turn_text.strip() or results or not turns:
            turns.append(Turn(turn_text, parsed.calls, results))
        if start >= len(text):
            break
    stop: Stop
    if parsed.thinking or (parsed.opened > parsed.closed and not results):
        stop = "length"
    elif not parsed.attempted and turns[-1].text == turn_text:
        stop = "answer"
    else:
        stop = "turn_limit"
    return Trajectory(tuple(turns), stop)


def render_call(call: ToolCall) -> str:
    """The hermes block of one call; `parse_turn` inverts it.

    Example:
        >>> print(render_call(ToolCall("ping", {"host": "h1"})))
        <tool_call>
        {"name": "ping", "arguments": {"host": "h1"}}
        </tool_call>
    """
    body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"{_OPEN}\n{body}\n{_CLOSE}"


def text_from_trajectory(trajectory: Trajectory) -> str:
    """The flat transcript of a rollout, one ``<tool_response>`` section per result.

    `trajectory_from_text` inverts it up to token spans, result names, error marks and outer newlines of turns,
    as long as no response contains ``</tool_response>``.
    """
    parts: list[str] = []
    for turn in trajectory.turns:
        parts.append(turn.text)
        parts.extend(f"{_RESPONSE_OPEN}\n{result.content}\n{_RESPONSE_CLOSE}" for result in turn.results)
    return "\n".join(parts)


def _read_turn(text: str, start: int, flat: bool) -> tuple[ParsedTurn, int]:
    """The turn that starts at `start`, and where it ends: the end of the text or, if `flat`, its response."""
    blocks: list[Block] = []
    visible: list[str] = []
    opened = closed = 0
    thinking = False
    position = start
    end = len(text)
    while (tag := _TAG.search(text, position)) is not None:
        is_end, kind = tag.group(1) == "/", tag.group(2)
        if kind == "tool_response":
            if flat and not is_end and (opened or closed):
                end = tag.start()
                break
            visible.append(text[position : tag.end()])
            position = tag.end()
            continue
        visible.append(text[position : tag.start()])
        position = tag.end()
        if kind != "tool_call":
            if is_end:
                visible.clear()
                continue
            closing = _THINK_END.search(text, position)
            if closing is None:
                thinking, position = True, len(text)
                break
            position = closing.end()
        elif is_end:
            closed += 1
            blocks.append(Block((), f"Invalid tool call: {_CLOSE} without {_OPEN} before it."))
        else:
            block, inner_opened, has_end, position = _read_block(text, position, flat)
            blocks.append(block)
            opened += 1 + inner_opened
            closed += has_end
    visible.append(text[position:end])
    return ParsedTurn(tuple(blocks), opened, closed, "".join(visible).strip(), thinking), end


def _read_block(text: str, start: int, flat: bool) -> tuple[Block, int, bool, int]:
    """The block whose body starts at `start`: itself, opening tags inside it, whether it closes, its end.

    A closing tag inside a JSON string does not end the block: the next ones are tried while the text before them
    breaks off inside a string. Few tries, so that hostile text costs no more than linear time.
    """
    error = None
    end = text.find(_CLOSE, start)
    for _ in range(MAX_QUOTED_TAGS):
        if end < 0:
            break
        value, problem = _decode(text[start:end].strip())
        if problem is None:
            return _block_from(value), 0, True, end + len(_CLOSE)
        error = error or problem
        if "Unterminated string" not in problem:
            break
        end = text.find(_CLOSE, end + 1)
    ending = (_BLOCK_END if flat else _BLOCK_CLOSE).search(text, start)
    stop = ending.start() if ending else len(text)
    inner = text.count(_OPEN, start, stop)
    if ending is None or ending.group() != _CLOSE:
        return Block((), f"Invalid tool call: {_OPEN} is never closed."), inner, False, stop
    return Block((), f"Invalid tool call: {error}."), inner, True, ending.end()


def _block_from(value: Any) -> Block:
    entries = value if isinstance(value, list) else [value]
    if not entries:
        return Block((), "Invalid tool call: the list is empty.")
    calls: list[ToolCall] = []
    for entry in entries:
        call = call_from(entry)
        if isinstance(call, str):
            return Block((), f"Invalid tool call: {call}.")
        calls.append(call)
    return Block(tuple(calls))


def call_from(entry: object) -> ToolCall | str:
    """The call that one decoded JSON value states, or what is wrong with it."""
    if not isinstance(entry, Mapping):
        return f"expected a JSON object with name and arguments, got {_kind(entry)}"
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        return f"name must be a non-empty string, got {_kind(name)}"
    arguments = entry["arguments"] if "arguments" in entry else entry.get("parameters")
    if arguments is None:
        arguments = {}
    if isinstance(arguments, str):
        decoded, problem = _decode(arguments)
        arguments = arguments if problem else decoded
    if not isinstance(arguments, dict):
        return f"arguments of {name!r} must be a JSON object, got {_kind(arguments)}"
    return ToolCall(name, arguments)


def _read_responses(text: str, start: int, calls: tuple[ToolCall, ...]) -> tuple[tuple[ToolResult, ...], int]:
    results: list[ToolResult] = []
    while True:
        position = _SPACE.match(text, start).end()  # type: ignore[union-attr]
        if not text.startswith(_RESPONSE_OPEN, position):
            return tuple(results), start if position < len(text) else position
        body = position + len(_RESPONSE_OPEN)
        end = text.find(_RESPONSE_CLOSE, body)
        end, start = (end, end + len(_RESPONSE_CLOSE)) if end >= 0 else (len(text), len(text))
        name = calls[len(results)].name if len(results) < len(calls) else ""
        results.append(ToolResult(name, text[body:end].strip("\n")))


def _reject_constant(literal: str) -> float:
    raise ValueError(f"{literal} is not JSON")


def _finite_float(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"{literal} is out of range")
    return value


_DECODER = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_finite_float)


def _decode(text: str) -> tuple[Any, str | None]:
    """(value, None) of strict JSON text, or (None, what is wrong)."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return None, f"not valid JSON ({error.msg} at character {error.pos})"
    except RecursionError:
        return None, f"JSON nested deeper than {MAX_NESTING} levels"
    except ValueError as error:
        return None, f"not valid JSON ({_short(str(error))})"
    problem = _unusable(value)
    return (None, problem) if problem else (value, None)


def _unusable(value: Any) -> str | None:
    """Why a decoded value cannot travel further: too deep, or text that no encoding can write."""
    level = [value]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_NESTING:
            return f"JSON nested deeper than {MAX_NESTING} levels"
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.keys())
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
            elif isinstance(item, str) and not item.isascii():
                try:
                    item.encode()
                except UnicodeEncodeError:
                    return "a string holds half of a surrogate pair"
        level = inner
    return None


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a number") + (f" {_short(json.dumps(value))}" if not isinstance(value, dict) else "")


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
