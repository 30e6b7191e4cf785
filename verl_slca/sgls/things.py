"""Which things arguments and responses speak of: told by the names of fields alone.

A thing is named by its kind and its identifier, however a field spells them:

    get_issue(issueNumber=7)       ->  Thing("issue", "7")
    {"issues": [{"id": 7, ...}]}   ->  Thing("issue", "7")
    {"data": {"number": 7, ...}}   ->  Thing("issue", "7"), as the answer to get_issue

Fields that say the same (`status` and `state`, `created` and `createdAt`) share one *concept*, by which a thing's
values are kept and drawn.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verl_slca.sgls.samples import tokens

_SYNONYMS = {
    word: concept
    for concept, words in {
        "status": "state",
        "title": "subject headline",
        "name": "full_name display_name",
        "description": "desc",
        "content": "body text contents",
        "created_at": "created created_on created_date created_time creation_date creation_time date_created create_time",
        "updated_at": "updated updated_on update_time last_updated modified modified_at modified_on last_modified",
        "due_date": "due due_at due_on deadline",
        "email": "mail email_address",
        "phone": "phone_number telephone tel",
        "url": "link href uri html_url web_url",
        "assignee": "assigned_to",
        "author": "creator created_by",
        "latitude": "lat",
        "longitude": "lon lng long",
        "zip": "zip_code postcode postal_code",
        "quantity": "qty",
        "start_time": "start starts_at start_at",
        "end_time": "end ends_at end_at",
        "departure_time": "departure departs_at departure_at",
        "arrival_time": "arrival arrives_at arrival_at",
        "stock": "inventory stock_level stock_quantity quantity_available available_quantity quantity_in_stock "
        "units_in_stock on_hand quantity_on_hand current_stock available_stock",
        "balance": "account_balance current_balance available_balance",
        "completed": "done is_done is_completed is_complete finished",
    }.items()
    for word in words.split()
}  # fmt: skip
_ADDRESS_WORDS = {"city", "country", "zip", "zip_code", "postal_code", "street", "address"}
"""Beside one of these, `state` is a part of a country."""

GENERIC_IDS = {"id", "uuid", "guid", "key", "number", "identifier", "code", "slug", "no"}
"""Names of identifiers that do not say what they identify."""
_SURE_SUFFIXES = {"id", "uuid", "guid"}
_SUFFIXES = _SURE_SUFFIXES | {"number", "no", "key", "code", "slug", "identifier", "ref"}
_NAMES = ("path", "filename", "file", "symbol", "ticker", "sku", "isbn", "username", "login", "email", "url", "name",
          "title")  # fmt: skip
"""What identifies things that have no identifier, the surest first."""
_WRAPPERS = {"", "data", "result", "results", "response", "item", "items", "record", "records", "rows", "entry",
             "entries", "hits", "matches", "payload", "output", "values", "objects", "nodes", "node", "page"}  # fmt: skip
"""Fields whose name does not say what they hold: it is what the tool is about."""
_ROLES = {"author", "assignee", "owner", "creator", "reporter", "reviewer", "sender", "recipient"}
_QUALIFIERS = {"date", "day", "days", "week", "weeks", "month", "year", "time", "hour", "hours", "from", "to", "start",
               "end", "since", "until", "before", "after", "unit", "units", "currency", "quantity", "amount", "interval",
               "period", "range", "nights", "night", "guests", "language", "lang", "locale", "timezone", "cabin",
               "class", "version"}  # fmt: skip
"""Arguments on which the answer about one thing depends: a price in euros is another value than one in dollars."""
_CALL_FIELDS = {"success", "ok", "status_code", "message", "error", "result"}
"""Fields of a response that speak of the call, not of the thing."""
_MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing of the world, as a call or a response names it.

    Attributes:
        kind: lower-case word in the singular, e.g. ``"issue"``.
        id: the identifier as text.
        id_name: the field that holds it, in words joined by ``_``.
        qualifier: other arguments that its values depend on, as text; "" when there are none.
    """

    kind: str
    id: str
    id_name: str = "id"
    qualifier: str = ""


def spelled(name: str) -> str:
    """The words of a name joined by ``_``.

    Example:
        >>> spelled("issueNumber"), spelled("Issue-ID")
        ('issue_number', 'issue_id')
    """
    return "_".join(tokens(name))


@functools.lru_cache(maxsize=8192)
def concept(name: str, kind: str = "") -> str:
    """What a field of a thing is about, the same for all its spellings.

    Example:
        >>> concept("state"), concept("orderStatus", "order"), concept("creationDate")
        ('status', 'status', 'created_at')
    """
    words = spelled(name)
    short = words.removeprefix(f"{kind}_") if kind else words
    if kind == "address" and short == "state":
        return short
    return _SYNONYMS.get(short, short)


def is_region(name: str, siblings: Collection[str]) -> bool:
    """Whether a field called ``state`` stands in an address, where it is no status."""
    return spelled(name) == "state" and not _ADDRESS_WORDS.isdisjoint(map(spelled, siblings))


def singular(noun: str) -> str:
    """The singular of an English noun, roughly.

    Example:
        >>> [singular(noun) for noun in ("notes", "entries", "boxes", "status", "address", "news")]
        ['note', 'entry', 'box', 'status', 'address', 'news']
    """
    if noun in ("news", "series", "species"):
        return noun
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    if noun.endswith(("xes", "ches", "shes", "sses")):
        return noun[:-2]
    return noun[:-1] if noun.endswith("s") and not noun.endswith(("ss", "us", "is")) and len(noun) > 3 else noun


@functools.lru_cache(maxsize=8192)
def kind_under(name: str, about: str) -> str:
    """The kind of the things that a field of that name holds in an answer about things of the kind `about`."""
    words = tokens(name)
    if spelled(name) in _WRAPPERS or not words:
        return about
    noun = singular(words[-1])
    return "user" if noun in _ROLES and noun != about else noun


@functools.lru_cache(maxsize=8192)
def identifier(names: tuple[str, ...], kind: str, by_name: bool = True) -> str:
    """Which of the fields called `names` identifies a thing of that kind; "" when none does.

    Args:
        names: of fields with plain values.
        kind: of the thing.
        by_name: take a path, an e-mail address or a title where there is no identifier.

    Example:
        >>> identifier(("title", "id", "note_id"), "note"), identifier(("title", "author_id"), "note", by_name=False)
        ('note_id', '')
    """
    by_words = {spelled(name): name for name in reversed(names)}
    ids = [f"{kind}_id", "id", f"{kind}_uuid", "uuid", "guid", f"{kind}_number", f"{kind}_key", "number", kind]
    ids += ["key", "identifier", "slug", f"{kind}_code", "code"]
    if by_name:
        ids += [form for word in _NAMES for form in (f"{kind}_{word}", word)]
    return next((by_words[words] for words in ids if words in by_words), "")


def plain(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields that a thing can be named by."""
    for name, value in fields.items():
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            yield name, value


def references(arguments: Mapping[str, Any], kind: str, nouns: Collection[str] = ()) -> list[Thing]:
    """The things that arguments name, those of the kind that the call is about first.

    Args:
        arguments: of the call.
        kind: what the call is about: what a bare `id` identifies.
        nouns: bare words that name things in these tools, e.g. ``{"account"}`` for `balance(account=3)`.

    Example:
        >>> references({"body": "Thanks", "userId": 4, "number": 7}, "issue")
        [Thing(kind='issue', id='7', id_name='number', qualifier=''), Thing(kind='user', id='4', id_name='user_id', qualifier='')]
    """
    found = []
    for name, value in plain(arguments):
        referred = _referred(name, kind)
        if not referred and spelled(name) in nouns:
            referred = spelled(name)
        if referred:
            found.append(Thing(referred, str(value), spelled(name)))
    return sorted(found, key=lambda thing: thing.kind != kind)


@functools.lru_cache(maxsize=8192)
def _referred(name: str, kind: str) -> str:
    """The kind of thing that an argument identifies, "" when it identifies none."""
    words = tokens(name)
    if not words:
        return ""
    if len(words) == 1:
        return kind if words[0] in GENERIC_IDS or words[0] == kind else ""
    if words[-1] in _SURE_SUFFIXES:
        return singular(words[-2])
    # `phone_number` and `api_key` identify nothing: these words need the kind itself before them.
    return kind if words[-1] in _SUFFIXES and singular(words[-2]) == kind else ""


def named(arguments: Mapping[str, Any], kind: str) -> Thing | None:
    """The thing that arguments name by something else than an identifier: a file by its path, a user by e-mail."""
    by_words = {spelled(name): value for name, value in plain(arguments)}
    for word in _NAMES:
        for words in (f"{kind}_{word}", word):
            if words in by_words:
                return Thing(kind, str(by_words[words]), words)
    return None


def qualifier(arguments: Mapping[str, Any]) -> str:
    """The arguments on which the values of a thing depend, as text."""
    given = sorted((name, str(value)) for name, value in arguments.items() if not _QUALIFIERS.isdisjoint(tokens(name)))
    return repr(given) if given else ""


@dataclass(frozen=True, slots=True)
class Shown:
    """One thing in a response.

    Attributes:
        thing: which.
        fields: the object in the response that shows it: to be read, or changed in place.
        is_subject: it is what the call asked about.
    """

    thing: Thing
    fields: dict[str, Any]
    is_subject: bool = False


def things_in(value: Any, kind: str, subject: Thing | None, listing: bool = False) -> Iterator[Shown]:
    """The things that a response shows, outermost first.

    Args:
        value: the response.
        kind: what the call is about.
        subject: the one thing that the call asked about, if any.
        listing: the call asked for many.
    """
    yield from _things_in(value, "", kind, subject, listing, 0)


def _things_in(
    value: Any, name: str, about: str, subject: Thing | None, listing: bool, depth: int
) -> Iterator[Shown]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            if isinstance(item, (dict, list)):
                yield from _things_in(item, name or "items", about, None, listing, depth + 1)
        return
    if not isinstance(value, dict):
        return
    kind = kind_under(name, about)
    inner = subject
    if subject is not None and kind in (about, subject.kind) and holds_subject(value, kind):
        inner = None
        yield Shown(subject, value, is_subject=True)
    elif not (wraps(value, about) and not depth):
        id_name = identifier(tuple(key for key, _ in plain(value)), kind, by_name=bool(depth))
        if id_name:
            yield Shown(Thing(kind, str(value[id_name]), spelled(id_name)), value)
    for key, child in value.items():
        if isinstance(child, (dict, list)):
            yield from _things_in(child, key, about, inner, listing, depth + 1)


def holds_subject(fields: Mapping[str, Any], about: str) -> bool:
    """Whether an object is the answer's thing itself, not a wrapper around it."""
    return not any(isinstance(child, dict) and kind_under(name, about) == about for name, child in fields.items())


def wraps(fields: Mapping[str, Any], about: str) -> bool:
    """Whether an object holds the things asked for in a list."""
    return any(isinstance(child, list) and kind_under(name, about) == about for name, child in fields.items())


def said_of_thing(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are values of the thing: neither about the call nor other things."""
    return {
        name: child
        for name, child in fields.items()
        if spelled(name) not in _CALL_FIELDS
        and not isinstance(child, dict)
        and not (isinstance(child, list) and any(isinstance(item, (dict, list)) for item in child))
    }
