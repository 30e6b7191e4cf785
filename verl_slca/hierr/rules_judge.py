"""The `rules` summary judge: does the reply state what the tools said, and nothing else?

    rating = coverage * honesty * fluency        in [0, 1], deterministic, no network

- coverage: weight of the stated facts / weight of the facts to state. A fact is a number, a short text value, or
  (in running text) a number or a quotation that the question did not already hold; facts under a key that the
  question names weigh 2, others 1. One response asks for no more than its `MAX_FACTS` heaviest. When every
  response is an error, coverage is 1 for a reply that admits the failure, else 0.
- honesty: 1 - invented / claims. Claims are the reply's numbers, quotations, names in mid-sentence and words
  listed beside a stated value ("clear or rainy"); invented are those found neither in the responses nor in the
  question. Numbers may be rounded.
- fluency: below 1 only for a reply that keeps repeating itself.
- 0 for an empty reply, one that shows tags, or one that pastes raw JSON of a response.
- No response (an abstention): nothing to cover, so (1 + honesty) / 2 * fluency.

Why it is worth optimising: each further right fact pays and each made-up one costs, so it is dense where a verdict
on the whole answer is not; listing values to hit the right one costs honesty; pasting the response costs
everything. What it cannot see: values swapped between their labels, numbers derived from stated ones (they count
as invented), and claims in plain words. It stands in for the `llm` judge and is no measure of helpfulness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_slca.hierr.facts import (
    Fact,
    Numbers,
    containers,
    data_in,
    facts_in,
    folded,
    is_error,
    numerals,
    quotations,
)

MAX_FACTS = 4
"""Most facts that one response asks for."""

_MAX_CHARS = 20_000
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][\w-]+")
_ENUMERATOR = re.compile(r"^\s*\d{1,2}[.)]\s", re.MULTILINE)
_TAG = re.compile(r"</?(?:tool_call|tool_response|think|thinking|tools)\b|<\|im_")
_JSON_KEY = re.compile(r"[\"']([^\"'\n]{1,60})[\"']\s*:")
_RUN = re.compile(r"\w+(?:(?:[ ,;/]+|,? or )\w+)+")
_ADMITS = re.compile(
    r"\b(?:errors?|fail\w*|could ?n[o']t|can ?not|can't|unable|invalid|unavailable|unsuccessful|unfortunately|sorry"
    r"|problems?|denied|not (?:available|found|possible|supported|able|allowed)|no (?:results?|data|tools?))\b",
    re.IGNORECASE,
)
_CALENDAR = frozenset(
    _WORD.findall(
        "January February March April May June July August September October November December "
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
    )
)
_FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be been but by can do does for from has have i in is it its me my no not of on our so that "
        "the their then there they this to was we were while will with you your"
    )
)


class RulesJudge:
    """The embedded default `SummaryJudge`; the module's text says what it measures."""

    async def rate(self, question: str, responses: Sequence[str], reply: str) -> float:
        """The rating in [0, 1]; never fails."""
        return rating(question, responses, reply)


def rating(question: str, responses: Sequence[str], reply: str) -> float:
    """The rating of a reply in [0, 1].

    Example:
        >>> question, responses = "When is high tide in Varnholt?", ['{"high": "04:12", "low": "10:30"}']
        >>> rating(question, responses, "High tide in Varnholt is at 04:12, low tide at 10:30.")
        1.0
        >>> round(rating(question, responses, "High tide is at 04:12."), 2)
        0.67
        >>> rating(question, responses, "High tide is at 05:45.")
        0.0
        >>> rating(question, responses, '{"high": "04:12", "low": "10:30"}')
        0.0
        >>> rating("Thank you.", [], "You are welcome.")
        1.0
    """
    reply = reply.strip()[:_MAX_CHARS].replace("\u2019", "'")
    texts = [response[:_MAX_CHARS] for response in responses if response.strip()]
    values = [data_in(text) for text in texts]
    if not reply or _TAG.search(reply) or _pastes(reply, values):
        return 0.0
    facts = [facts_in(value, question) for value in values]
    honesty = _honesty(reply, "\n".join([question, *texts]), values, facts)
    if not texts:
        return (1.0 + honesty) / 2.0 * _fluency(reply)
    if all(is_error(value) for value in values):
        coverage = float(_ADMITS.search(reply) is not None)
    else:
        coverage = _coverage([f for f, value in zip(facts, values, strict=True) if not is_error(value)], reply)
    return coverage * honesty * _fluency(reply)


def _coverage(groups: Sequence[Sequence[Fact]], reply: str) -> float:
    said, numbers = folded(reply), Numbers(numerals(reply))
    needed = earned = 0
    for group in groups:
        wanted = sum(sorted((fact.weight for fact in group), reverse=True)[:MAX_FACTS])
        earned += min(wanted, sum(fact.weight for fact in group if fact.stated(said, numbers)))
        needed += wanted
    return earned / needed if needed else 1.0


def _honesty(reply: str, known: str, values: Sequence[object], facts: Sequence[Sequence[Fact]]) -> float:
    text = _ENUMERATOR.sub("", reply)
    counts = [str(len(values)), *(str(len(item)) for value in values for item in containers(value))]
    numbers, source = Numbers([*numerals(known), *counts]), folded(known)
    claims = {token: numbers.support(token) for token in numerals(text)}
    prose = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", "|", "**")))
    names = [name for name in _NAME.findall(prose) if name not in _CALENDAR]
    for phrase in [*quotations(text), *names, *_listed(text, {f.text.lower() for group in facts for f in group})]:
        claims[phrase] = folded(phrase) in source
    return sum(claims.values()) / len(claims) if claims else 1.0


def _listed(text: str, facts: set[str]) -> list[str]:
    """Words listed beside a stated one-word value: naming everything it could be does not tell what it is.

    A list is a run of words that an "or" or a slash joins, or three words on end without a function word.
    """
    found: list[str] = []
    for run in _RUN.findall(text.lower()):
        stretch: list[str] = []
        for word in [*re.findall(r"\w+|/", run), "the"]:
            if word not in _FUNCTION_WORDS:
                stretch.append(word)
                continue
            words = [w for w in stretch if w not in ("or", "/") and w.isalpha() and not w.endswith("ly")]
            if facts.intersection(words) and (len(words) >= 3 or len(words) < len(stretch)):
                found += words
            stretch = []
    return found


def _fluency(reply: str) -> float:
    words = _WORD.findall(reply.lower())
    runs = [tuple(words[i : i + 3]) for i in range(len(words) - 2)]
    return min(1.0, 2.0 * len(set(runs)) / len(runs)) if len(runs) >= 8 else 1.0


def _pastes(reply: str, values: Sequence[object]) -> bool:
    if not isinstance(data_in(reply), str):
        return True
    keys = {folded(str(key)) for v in values for item in containers(v) if isinstance(item, dict) for key in item}
    return any(folded(key) in keys for key in _JSON_KEY.findall(reply))
