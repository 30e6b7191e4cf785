"""Regular expressions from strangers: compiled under limits, searched under a time limit, sampled.

Tool schemas come from datasets, so a `pattern` may be uncompilable or catastrophic. It is judged once, when
the schema is compiled; the time limit of `search` is the second line of defence. The `regex` package reads
more of the ECMA-262 dialect that JSON Schema asks for than `re` does (``\\p{L}``, ``(?<name>...)``).
"""

from __future__ import annotations

import functools
import random
import re
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

import regex

MAX_PATTERN_CHARS = 2000
MAX_REPEAT_PRODUCT = 100_000
"""Product of all ``{n}`` counts in a pattern: nested counts multiply the size of the compiled program."""
SEARCH_SECONDS = 0.25
"""CPU seconds that one search, or all of one validation, may take."""

_PROBE_LENGTH = 48
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
_PRINTABLE = "".join(map(chr, range(33, 127)))


class PatternError(ValueError):
    """The pattern cannot be used; the message says why."""


@functools.lru_cache(maxsize=4096)
def compiled(pattern: str) -> regex.Pattern[str]:
    """`pattern` ready to search.

    Raises:
        PatternError: it is too long, repeats too often, does not parse, or backtracks exponentially.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternError(f"{len(pattern)} characters, at most {MAX_PATTERN_CHARS}")
    product = 1
    for low, high in re.findall(r"\{(\d*),?(\d*)\}", pattern):
        product *= max(int(low[:9] or 1), int(high[:9] or 1), 1)
        if product > MAX_REPEAT_PRODUCT:
            raise PatternError(f"repeat counts multiply to more than {MAX_REPEAT_PRODUCT}")
    try:
        program = regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, ValueError) as error:
        raise PatternError(f"not a regular expression: {error}") from error
    _probe(program, pattern)
    return program


def _probe(program: regex.Pattern[str], pattern: str) -> None:
    """Raise if a short run of one character that the pattern speaks of already takes exponential time."""
    spoken = dict.fromkeys([*[char for char in pattern if char.isalnum()][:12], "a", "0", " ", "-"])
    for char in spoken:
        try:
            program.search(char * _PROBE_LENGTH + "!\n", timeout=SEARCH_SECONDS)
        except TimeoutError as error:
            raise PatternError(f"takes exponential time on a run of {char!r}") from error


def search(pattern: str, text: str, seconds: float = SEARCH_SECONDS) -> bool:
    """Whether `pattern` matches anywhere in `text`.

    Raises:
        PatternError: as `compiled`.
        TimeoutError: after `seconds` of CPU time.
    """
    return compiled(pattern).search(text, timeout=seconds) is not None


def sample(pattern: str, rng: random.Random, shortest: int = 0, longest: int = 10_000) -> str | None:
    """A text made to match `pattern`, or None when none is found.

    Look-around and back-references are followed only roughly, and a pattern that only `regex` can read is
    not followed at all: the caller validates.

    Args:
        pattern: as in a JSON Schema; it may match a part of the text only.
        rng: source of all choices.
        shortest: least length of the text, in characters.
        longest: greatest length of the text.
    """
    try:
        parsed = _parsed(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    for attempt in range(40):
        spread = 6 if attempt < 4 else min(shortest, 200) + 6
        text = "".join(_piece(item, rng, spread) for item in parsed)
        if len(text) >= shortest and (len(text) <= longest or search(pattern, text[:longest])):
            return text[:longest]
    return None


@functools.lru_cache(maxsize=1024)
def _parsed(pattern: str) -> Any:
    return sre_parser.parse(pattern)


def _piece(item: tuple[Any, Any], rng: random.Random, spread: int) -> str:
    op, value = item
    if op is sre.LITERAL:
        return chr(value)
    if op is sre.NOT_LITERAL:
        return rng.choice([char for char in _LETTERS if ord(char) != value])
    if op is sre.ANY:
        return rng.choice(_LETTERS)
    if op is sre.IN:
        return _member(value, rng)
    if op is sre.BRANCH:
        return "".join(_piece(part, rng, spread) for part in rng.choice(value[1]))
    if op is sre.SUBPATTERN:
        return "".join(_piece(part, rng, spread) for part in value[3])
    if op is sre.ATOMIC_GROUP:
        return "".join(_piece(part, rng, spread) for part in value)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        low, high, body = value
        count = rng.randint(low, min(int(high), low + spread))
        return "".join(_piece(part, rng, spread) for _ in range(count) for part in body)
    return ""


def _member(choices: list[tuple[Any, Any]], rng: random.Random) -> str:
    if choices[0][0] is sre.NEGATE:
        allowed = [char for char in _LETTERS + _DIGITS + _PRINTABLE if not _contains(choices[1:], char)]
        return rng.choice(allowed) if allowed else "é"
    op, value = rng.choice(choices)
    if op is sre.LITERAL:
        return chr(value)
    if op is sre.RANGE:
        return chr(rng.randint(value[0], min(value[1], max(value[0], 126))))
    return {
        sre.CATEGORY_DIGIT: rng.choice(_DIGITS),
        sre.CATEGORY_SPACE: " ",
        sre.CATEGORY_NOT_WORD: "-",
        sre.CATEGORY_NOT_SPACE: rng.choice(_LETTERS),
    }.get(value, rng.choice(_LETTERS))


def _contains(choices: list[tuple[Any, Any]], char: str) -> bool:
    code = ord(char)
    for op, value in choices:
        if (op is sre.LITERAL and code == value) or (op is sre.RANGE and value[0] <= code <= value[1]):
            return True
        if op is sre.CATEGORY and (
            (value is sre.CATEGORY_DIGIT and char.isdigit())
            or (value is sre.CATEGORY_SPACE and char.isspace())
            or (value is sre.CATEGORY_WORD and (char.isalnum() or char == "_"))
            or (value is sre.CATEGORY_NOT_WORD and not (char.isalnum() or char == "_"))
            or (value is sre.CATEGORY_NOT_DIGIT and not char.isdigit())
            or (value is sre.CATEGORY_NOT_SPACE and not char.isspace())
        ):
            return True
    return False
