"""Whether responses are what their tools are for: an id where something was booked, a list where one was asked for.

Each check looks at one call and its response, by words of its own: it shares no table with what makes the responses.
A check that has nothing to say about a call says None.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_slca.errors import DataError
from verl_slca.sgls.generate import generate_arguments
from verl_slca.sgls.samples import tokens
from verl_slca.sgls.schema import CompiledTool
from verl_slca.sgls.simulator import Simulator
from verl_slca.sgls.things import singular
from verl_slca.trajectory import ToolCall

_DESCRIBING = 8
"""Words of a description that say what a tool is about; later ones speak of anything."""
_MAKES = {"create", "add", "book", "reserve", "order", "buy", "purchase", "schedule", "register", "post", "submit",
          "insert", "open", "place"}  # fmt: skip
_LISTS = {"list", "search", "find", "browse", "query"}
_ENDS_ID = ("id", "uuid", "key", "number", "ref", "reference", "code")
_DOMAINS: tuple[tuple[set[str], set[str]], ...] = (
    (
        {"symbol", "ticker", "volume", "market_cap", "dividend"},
        {"stock", "stocks", "share", "market", "price", "quote", "ticker", "crypto", "coin", "coins", "token", "trade",
         "trading", "forex", "exchange", "symbol", "symbols", "candles", "financial", "fund", "etf", "ohlc", "currency",
         "funding", "volume"},
    ),
    ({"temperature", "humidity", "condition", "wind"}, {"weather", "forecast", "temperature", "climate", "meteo"}),
    (
        {"latitude", "longitude", "lat", "lon"},
        {"location", "locations", "geocode", "coordinates", "place", "places", "address", "map", "maps", "lat",
         "latitude", "longitude", "position", "gps", "city", "country", "airport", "station", "area"},
    ),
    (
        {"distance", "duration"},
        {"route", "routes", "directions", "distance", "travel", "trip", "video", "videos", "song", "track", "path",
         "duration", "navigation", "youtube", "transit", "drive", "driving"},
    ),
    ({"airline", "departure_time"}, {"flight", "flights", "airline", "travel", "airport"}),
    ({"timezone"}, {"time", "timezone", "clock", "date", "meeting", "calendar"}),
    ({"email"}, {"email", "emails", "mail", "user", "users", "profile", "contact", "contacts", "person", "people",
                 "member", "members", "account", "customer", "gmail", "author", "employee"}),
    ({"author"}, {"paper", "papers", "article", "articles", "book", "books", "issue", "issues", "news", "post", "posts",
                  "publication", "commit", "pull", "blog", "research"}),
    ({"currency", "price"}, {"price", "prices", "cost", "currency", "order", "orders", "product", "products", "balance",
                             "account", "exchange", "flight", "hotel", "quote", "market", "stock", "crypto", "payment",
                             "coin", "token", "booking", "listing", "ticker", "gas", "fee", "rate", "forex", "trading",
                             "shop", "buy", "financial", "wallet", "ticket", "share", "quotes", "hotels", "flights"}),
)  # fmt: skip
"""(fields, words): such a field belongs only where the tool speaks of one of the words."""
_STOCK_OF_GOODS = {"inventory", "warehouse", "sku", "restock"}
_RANGES = {
    "latitude": (-90, 90), "longitude": (-180, 180), "humidity": (0, 100), "percent": (0, 100), "month": (1, 12),
    "hour": (0, 23), "price": (0, math.inf), "stock": (0, math.inf), "quantity": (0, math.inf), "rating": (0, 10),
    "year": (1000, 2200), "age": (0, 150), "distance": (0, math.inf), "duration": (0, math.inf),
}  # fmt: skip
_WHOLE = {"stock", "quantity", "count", "year", "month", "day", "hour", "page"}
_DAY = r"\d{4}-\d\d-\d\d.*"
_FORMS = {
    "email": r"[^@\s]+@[^@\s]+", "url": r"https?://\S+", "date": _DAY, "created_at": _DAY, "updated_at": _DAY,
    "due_date": _DAY,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answered:
    """One call with its response.

    Attributes:
        name: of the tool, in words.
        words: those of its name, of the arguments' names and of the beginning of its description.
        arguments: of the call.
        value: the response, parsed.
    """

    name: tuple[str, ...]
    words: frozenset[str]
    arguments: Mapping[str, Any]
    value: Any

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Each plain value that the call did not hold already, by the name of its field."""
        yield from _leaves(self.value, "", self.arguments)


def answered(tool: CompiledTool, arguments: Mapping[str, Any], content: str) -> Answered:
    """What the checks look at; a response that is no JSON is a text.

    Args:
        tool: that was called.
        arguments: of the call.
        content: the response.
    """
    words = [*tokens(tool.name), *tokens(tool.description[:256])[:_DESCRIBING]]
    words += [word for name in tool.parameters.schema.get("properties", {}) for word in tokens(name)]
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = content
    return Answered(tokens(tool.name), frozenset(words), arguments, value)


def id_of_what_was_made(call: Answered) -> bool | None:
    """Whoever creates, books or orders is told an identifier that the call did not hold."""
    if call.name[0] not in _MAKES and call.name[-1] not in {"create", "add"}:
        return None
    if call.name[0] == "add" and not any(isinstance(value, str) for value in call.arguments.values()):
        return None  # a sum
    return any(tokens(name)[-1:] and tokens(name)[-1] in _ENDS_ID and value != "" for name, value in call.leaves())


def list_where_asked_for(call: Answered) -> bool | None:
    """Whoever lists or searches gets a list, whose items can be told apart."""
    if call.name[0] not in _LISTS and call.name[-1] != "list":
        return None
    lists = [items for items in _lists(call.value) if all(isinstance(item, dict) for item in items)]
    return any(
        {"id", "name", "title", "key"} & {word for name in item for word in tokens(name)[-1:]}
        for items in lists
        for item in items
    )


def asked_thing_is_named(call: Answered) -> bool | None:
    """A call about one thing gets an answer that names the thing."""
    ids = [
        value
        for name, value in call.arguments.items()
        if tokens(name)[-1:] == ("id",) and isinstance(value, (str, int))
    ]
    if len(ids) != 1 or call.name[0] not in ("get", "read", "fetch", "retrieve", "update", "delete", "show"):
        return None
    return str(ids[0]) in {str(value) for _, value in _leaves(call.value, "", {})}


def no_field_of_another_domain(call: Answered) -> bool | None:
    """A field belongs to what the tool speaks of: no share price in a stock of goods."""
    names = {"_".join(tokens(name)) for name, _ in call.leaves()}
    if not names:
        return None
    if _STOCK_OF_GOODS & call.words and {"symbol", "change", "volume"} & names:
        return False
    spoken = {*call.words, *map(singular, call.words)}
    return not any(fields & names and words.isdisjoint(spoken) for fields, words in _DOMAINS)


def unit_is_the_one_asked_for(call: Answered) -> bool | None:
    """A unit or currency that was asked for is the one of the answer, and the number is one in that unit."""
    asked = {
        name: value
        for name, value in call.arguments.items()
        if tokens(name)[-1:] in (("unit",), ("units",), ("currency",)) and isinstance(value, str)
    }
    if not asked:
        return None
    told = {
        name: value
        for name, value in _leaves(call.value, "", {})
        if tokens(name)[-1:] and tokens(name)[-1].removesuffix("s") in ("unit", "currency")
    }
    if any(value not in asked.values() for value in told.values()):
        return False
    fahrenheit = any(value.lower() in ("fahrenheit", "f", "imperial") for value in asked.values())
    degrees = [
        value for name, value in call.leaves() if "temperature" in tokens(name) and isinstance(value, (int, float))
    ]
    return all(20 <= value <= 100 if fahrenheit else -20 <= value <= 45 for value in degrees)


def values_fit_their_names(call: Answered) -> bool | None:
    """A number is in the range of what it is called, a count whole, an e-mail address one, an id no sentence."""
    leaves = list(call.leaves())
    return (
        all(_fits(tokens(name)[-1] if tokens(name) else "", "_".join(tokens(name)), value) for name, value in leaves)
        if leaves
        else None
    )


def something_is_told(call: Answered) -> bool | None:
    """An answer to a read holds more than the call did."""
    return (
        any(True for _ in call.leaves()) if call.name[0] in ("get", "read", "fetch", "show", "list", "search") else None
    )


CHECKS: tuple[Callable[[Answered], bool | None], ...] = (
    id_of_what_was_made,
    list_where_asked_for,
    asked_thing_is_named,
    no_field_of_another_domain,
    unit_is_the_one_asked_for,
    values_fit_their_names,
    something_is_told,
)


@dataclass(slots=True)
class Outcome:
    """What one check found: how many calls it applied to, and the tools whose answers failed it."""

    calls: int
    failed: list[str]

    @property
    def share(self) -> float:
        """Share of the calls that passed; 1.0 where there was none."""
        return 1 - len(self.failed) / self.calls if self.calls else 1.0


def outcomes(calls: Sequence[tuple[str, Answered]]) -> dict[str, Outcome]:
    """The outcome of every check, by its name.

    Args:
        calls: (name of the tool, call).
    """
    found = {check.__name__: Outcome(0, []) for check in CHECKS}
    for name, call in calls:
        for check in CHECKS:
            verdict = check(call)
            found[check.__name__].calls += verdict is not None
            if verdict is False:
                found[check.__name__].failed.append(name)
    return found


async def simulated(
    tools: Sequence[Mapping[str, Any]], simulator: Simulator, seed: int = 0
) -> list[tuple[str, Answered]]:
    """One made-up call of each tool with its response, each in an episode of its own; what is refused is left out.

    Args:
        tools: declarations.
        simulator: answers.
        seed: varies arguments.
    """
    calls = []
    for tool in tools:
        try:
            episode = simulator.episode([tool], f"plausibility {seed}")
            (compiled,) = episode.tools.values()
            arguments = generate_arguments(compiled.parameters.schema, seed)
        except DataError:
            continue
        (result,) = await episode.respond([ToolCall(compiled.name, arguments)])
        if not result.is_error:
            calls.append((compiled.name, answered(compiled, arguments, result.content)))
    return calls


def _leaves(value: Any, name: str, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, child in value.items():
            if not (key in known and known[key] == child):
                yield from _leaves(child, key, known)
    elif isinstance(value, list):
        for child in value:
            yield from _leaves(child, name, known)
    elif name not in ("success", "") and value is not None:
        yield name, value


def _lists(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, list):
        yield value
    for child in value.values() if isinstance(value, dict) else ():
        yield from _lists(child)


def _fits(last: str, name: str, value: Any) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = _RANGES.get(last, (-math.inf, math.inf))
        return low <= value <= high and (last not in _WHOLE or value == int(value))
    if isinstance(value, str):
        if last == "id":
            return bool(re.fullmatch(r"\S+", value)) and bool(re.search(r"[\d_-]", value))
        return last not in _RANGES and bool(re.fullmatch(_FORMS.get(name, _FORMS.get(last, r"(?s).*")), value))
    return True
