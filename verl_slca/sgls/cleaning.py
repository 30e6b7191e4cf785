"""A model's reply -> the API response inside it: wrappers taken off, refusals and leaks kept out.

Pure and bounded: one pass over at most `MAX_CHARS` characters per step. What cannot be cleaned is `UncleanError`, whose
message is written for the model that gets a second try.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

MAX_CHARS = 50_000
"""Longest reply that is looked at."""
MAX_DEPTH = 64
_JSON_STARTS = ("{", "[{", '["', "[[", '"')

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_FINAL = re.compile(r"<\|channel\|>final(?:<\|[a-z_]{1,20}\|>)?")
_CONTROL = re.compile(
    r"<\|[a-zA-Z_]{1,40}\|>|</?(?:think|thinking|tool_call|tool_response|function_call)>", re.IGNORECASE
)
_CALL = re.compile(
    r"<(?:tool_call|function_call|function=|invoke)|\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_call", re.IGNORECASE
)
_WRAPPER = re.compile(
    r"\s*<(tool_response|response|api_response|output|result|answer|json|function_results)>(.*)</\1>\s*",
    re.DOTALL | re.IGNORECASE,
)
_LANGUAGE = re.compile(r"[A-Za-z0-9_+-]{0,20}[ \t]{0,20}")
_REFUSAL = re.compile(
    r"\W{0,5}(?:i['\u2019]?m sorry|i am sorry|sorry\b|i apologi[sz]e|my apologies|i can(?:no|['\u2019])t\b|i am unable|"
    r"i['\u2019]m unable|unfortunately,? i\b|as an? (?:ai|large language|language)\b)",
    re.IGNORECASE,
)
_MODEL_SPEAKS = re.compile(
    r"\bas an? (?:ai|artificial intelligence|large language|language) (?:language )?(?:model|assistant)\b",
    re.IGNORECASE,
)


class UncleanError(Exception):
    """The reply holds no API response, or more than that; the message says what is wrong with it."""


def cleaned(text: str) -> str:
    """The response text inside a reply: thoughts, control tokens, wrapping tags and the code fence around it removed.

    Raises:
        UncleanError: a refusal, a tool call, nothing at all, or too much.

    Example:
        >>> cleaned('<think>Oslo is cold.</think>\\n```json\\n{"degrees": 3}\\n```')
        '{"degrees": 3}'
    """
    if len(text) > MAX_CHARS:
        raise UncleanError(f"the reply is longer than {MAX_CHARS} characters")
    text = text.encode("utf-8", "replace").decode("utf-8").strip()
    for unwrap in (_without_thoughts, _unwrapped, _unwrapped, _without_control, _unwrapped):
        if not text.startswith(_JSON_STARTS):  # from there on all is data, whatever it looks like
            text = unwrap(text).strip()
    if not text:
        raise UncleanError("the reply is empty")
    if _REFUSAL.match(text):
        raise UncleanError("the reply is an apology or a refusal; answer as the API would, with an error if need be")
    return text


def value_in(text: str) -> Any:
    """The one JSON value of a cleaned reply; a line before or after it is dropped.

    Raises:
        UncleanError: no JSON, several values, numbers that JSON lacks, or nesting without end.

    Example:
        >>> value_in('Here it is: {"degrees": 3}')
        {'degrees': 3}
    """
    try:
        return _checked(_DECODER.decode(text))
    except ValueError:
        pass
    except RecursionError:
        raise UncleanError("the reply nests too deeply") from None
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if start < 0:
        raise UncleanError("the reply is not JSON")
    try:
        value, end = _DECODER.raw_decode(text, start)
    except ValueError as error:
        raise UncleanError(f"the reply is not JSON: {str(error)[:100]}") from None
    except RecursionError:
        raise UncleanError("the reply nests too deeply") from None
    if "{" in text[end:] or "[" in text[end:]:
        raise UncleanError("the reply holds more than one JSON value")
    return _checked(value)


def without_leaks(value: Any, given: str = "") -> Any:
    """`value` with chat markup taken out of every text in it.

    Args:
        value: decoded JSON, at most `MAX_DEPTH` levels deep.
        given: what the call itself said: a phrase that stands there is no leak.

    Raises:
        UncleanError: a text in which the model speaks of itself as one.
    """
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode("utf-8")
        if "<" in text:
            text = _CONTROL.sub("", text)
        spoken = _MODEL_SPEAKS.search(text)
        if spoken and spoken.group().casefold() not in given.casefold():
            raise UncleanError(f"{spoken.group()!r} is not what an API says")
        return text
    if isinstance(value, list):
        return [without_leaks(child, given) for child in value]
    if isinstance(value, dict):
        return {without_leaks(name, given): without_leaks(child, given) for name, child in value.items()}
    return value


def _without_thoughts(text: str) -> str:
    """The text behind the thoughts that it begins with, tagged or in a channel of their own."""
    finals = list(_FINAL.finditer(text))
    if finals:
        return text[finals[-1].end() :]
    while (opened := _THOUGHT.match(text)) is not None:
        end = _THOUGHT_END.search(text, opened.end())
        text = text[end.end() :].lstrip() if end else ""
    end = None if text.startswith(_JSON_STARTS) else _THOUGHT_END.search(text)
    return text[end.end() :] if end else text  # templates often open the thought in the prompt


def _unwrapped(text: str) -> str:
    """The text inside the tags, or the one code fence, around all that matters."""
    if _CALL.search(_prose(text)):
        raise UncleanError("the reply is a tool call; answer as the API that was called")
    tagged = _WRAPPER.fullmatch(text)
    if tagged:
        return tagged.group(2)
    parts = text.split("```")
    if len(parts) != 3:
        return text
    first, _, rest = parts[1].partition("\n")
    return rest if rest and _LANGUAGE.fullmatch(first) else parts[1]


def _without_control(text: str) -> str:
    """The text without the control tokens and tags at its ends."""
    while (control := _CONTROL.match(text)) is not None:
        text = text[control.end() :].lstrip()
    while (control := _CONTROL.search(text, max(0, len(text) - 60))) is not None and control.end() == len(text):
        text = text[: control.start()].rstrip()
    return text


def _prose(text: str) -> str:
    """What stands before the first JSON object, or all of it: what is said inside one is data."""
    start = text.find("{")
    return text if start < 0 else text[:start]


def _checked(value: Any) -> Any:
    level = [value]
    for _ in range(MAX_DEPTH):
        children: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                children.extend(item.values())
            elif isinstance(item, list):
                children.extend(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise UncleanError("the reply holds a number that JSON lacks")
        if not children:
            return value
        level = children
    raise UncleanError("the reply nests too deeply")


def _refuse(name: str) -> NoReturn:
    raise UncleanError(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
