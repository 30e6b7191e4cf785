"""Facts in tool responses, and whether a text states them; what the `rules` judge is built on."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MAX_LEAVES = 400
"""Most values read from one response; the rest is ignored, so that hostile responses stay cheap."""

_SHORT = 60
_NUMERAL = re.compile(r"\d+(?:[.,:/\-]\d+)*")
_PLAIN = re.compile(r"\d+(?:\.\d+)?|\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_QUOTED = re.compile(r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|(?<!\w)'([^'\n]{2,80})'(?!\w)")
_ERROR = re.compile(r"\W*(?:an? )?(?:error|exception|traceback|invalid|unknown tool|failed|failure)\b", re.IGNORECASE)
_NO_NEWS = frozenset(("", "ok", "success", "n/a", "none", "null", "true", "false"))
_SMALL_WORDS = frozenset(
    ("a", "an", "and", "for", "in", "is", "it", "of", "on", "or", "the", "to", "what", "with", "you")
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of a response: its text, and 2 when the question names its key, else 1."""

    text: str
    weight: int

    def stated(self, said: str, numbers: Numbers) -> bool:
        """True when a text states it: the value itself, a rounding, or a date written out.

        Args:
            said: the text, `folded`.
            numbers: its numerals.
        """
        unsigned = self.text.lstrip("+-")
        if _PLAIN.fullmatch(unsigned):
            return numbers.rounded(float(unsigned.replace(",", "")))
        if holds(said, folded(self.text)):
            return True
        # A date and time: all of its numbers but one (the month may be a word) have to be there.
        parts = [part for token in numerals(self.text) for part in _parts(token)]
        return len(parts) >= 3 and not re.search("[a-zA-Z]{2}", self.text) and numbers.missing(parts) <= 1


class Numbers:
    """The numerals of a text, ready to be looked up."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._tokens = set(tokens)
        self._parts = {part for token in self._tokens for part in _parts(token)}
        self._decimals = {len(token.partition(".")[2]) for token in self._tokens if _PLAIN.fullmatch(token)}
        self._roundings: dict[int, set[float]] = {}

    def rounded(self, value: float) -> bool:
        """True when one of them writes `value`, rounded by at most 5 %."""
        return any(_rounding(value, decimals) in self._parts for decimals in self._decimals)

    def missing(self, parts: Iterable[float]) -> int:
        """How many of `parts` are not among them."""
        return sum(part not in self._parts for part in parts)

    def support(self, token: str) -> bool:
        """True when `token` of another text is one of them, a rounding of one, or made of their parts."""
        if token in self._tokens:
            return True
        if not _PLAIN.fullmatch(token):
            return not self.missing(_parts(token))
        decimals = len(token.partition(".")[2])
        if decimals not in self._roundings:
            roundings = (_rounding(part, decimals) for part in self._parts)
            self._roundings[decimals] = {rounding for rounding in roundings if rounding is not None}
        return _parts(token)[0] in self._roundings[decimals]


def facts_in(value: Any, question: str) -> list[Fact]:
    """Facts of one response that `question` did not already hold, no two alike.

    Args:
        value: the response as `data_in` gives it.
        question: what was asked.
    """
    asked, known = _topic(question), folded(question)
    facts: dict[str, Fact] = {}
    for path, leaf in _leaves(value):
        text = str(leaf)
        running = isinstance(leaf, str) and (len(text) > _SHORT or not path)
        for found in [*numerals(text), *quotations(text)] if running else [text]:
            key = folded(found)
            if key not in _NO_NEWS and not holds(known, key):
                facts.setdefault(key, Fact(found.strip(), 2 if _topic(path) & asked else 1))
    return list(facts.values())


def data_in(text: str) -> Any:
    """A response as data where it is a JSON or Python object or list, else the text itself."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, dict | list) else text
    return text


def containers(value: Any) -> Iterator[dict[Any, Any] | list[Any]]:
    """The objects and lists in a response, itself included."""
    waiting = [value]
    for _ in range(MAX_LEAVES):
        if not waiting:
            return
        item = waiting.pop()
        if isinstance(item, dict | list):
            yield item
            waiting.extend(item.values() if isinstance(item, dict) else item[:MAX_LEAVES])


def is_error(value: Any) -> bool:
    """True for a response that reports a failure."""
    if isinstance(value, dict):
        return any(value.get(key) for key in ("error", "errors", "isError", "is_error"))
    return isinstance(value, str) and _ERROR.match(value) is not None


def numerals(text: str) -> list[str]:
    """Numbers, dates, times and versions as they are written, signs left out."""
    return _NUMERAL.findall(text)


def quotations(text: str) -> list[str]:
    """What a text puts between quotation marks."""
    return [next(filter(None, match.groups())) for match in _QUOTED.finditer(text)]


def folded(text: str) -> str:
    """`text` without case, and with blanks and underscores as single blanks."""
    return re.sub(r"[\s_]+", " ", text.casefold()).strip()


def holds(text: str, phrase: str) -> bool:
    """True when `phrase` stands in `text` as whole words (both `folded`; no word bounds beyond ASCII)."""
    start = text.find(phrase)
    if not phrase.isascii():
        return start >= 0
    while start >= 0:
        end = start + len(phrase)
        if not (start and text[start - 1].isalnum() and phrase[0].isalnum()) and not (
            end < len(text) and text[end].isalnum() and phrase[-1].isalnum()
        ):
            return True
        start = text.find(phrase, end)
    return False


def _rounding(value: float, decimals: int) -> float | None:
    rounded = round(value * (1 + 1e-12), decimals)  # ties away from zero, as people round
    return rounded if abs(rounded - value) <= 0.05 * abs(value) else None


def _parts(token: str) -> list[float]:
    """The number that a numeral writes, or the numbers that a date, time or version is made of."""
    if _PLAIN.fullmatch(token):
        return [float(token.replace(",", ""))]
    return [float(part) for part in re.findall(r"\d+", token)]


def _topic(text: str) -> set[str]:
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
    return {word.removesuffix("s") for word in words if word not in _SMALL_WORDS and not word.isdigit()}


def _leaves(value: Any) -> list[tuple[str, str | int | float]]:
    """(path of keys, number or text) of each leaf, outer ones first."""
    leaves: list[tuple[str, str | int | float]] = []
    level: list[tuple[str, Any]] = [("", value)]
    while level and len(leaves) < MAX_LEAVES:
        inner: list[tuple[str, Any]] = []
        for path, item in level[:MAX_LEAVES]:
            if isinstance(item, dict):
                inner.extend((f"{path} {key}"[-200:], child) for key, child in item.items())
            elif isinstance(item, list):
                inner.extend((f"{path} item"[-200:], child) for child in item)
            elif isinstance(item, str | int | float) and not isinstance(item, bool):
                leaves.append((path, item))
        level = inner
    return leaves[:MAX_LEAVES]
