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
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from verl_slca.sgls.samples import is_value, tokens

_SYNONYMS = {
    word: concept
    for concept, words in {
        "status": "state",
        "title": "subject headline",
        "name": "full_name display_name",
        "description": "desc",
        "content": "body text contents",
        "created_at": "created created_on created_date created_time creation_date creation_time date_created",
        "updated_at": "updated updated_on update_time last_updated modified modified_at modified_on last_modified",
        "due_date": "due due_at due_on deadline",
        "email": "mail email_address",
        "phone": "phone_number telephone tel",
        "url": "link href uri html_url web_url",
        "symbol": "ticker stock_symbol",
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
NAMES = ("path", "filename", "file", "symbol", "ticker", "sku", "isbn", "username", "login", "email", "url", "name",
          "title")  # fmt: skip
"""What identifies things that have no identifier, the surest first."""
_WRAPPERS = {
    "", "data", "result", "results", "response", "item", "items", "record", "records", "rows", "entry", "entries",
    "hits", "matches", "payload", "output", "values", "objects", "nodes", "node", "page",
}  # fmt: skip
"""Fields whose name does not say what they hold: it is what the tool is about."""
_ROLES = {"author", "assignee", "owner", "creator", "reporter", "reviewer", "sender", "recipient"}
_QUALIFIERS = {
    "date", "day", "days", "week", "weeks", "month", "year", "time", "hour", "hours", "from", "to", "start", "end",
    "since", "until", "before", "after", "unit", "units", "currency", "quantity", "amount", "interval", "period",
    "range", "nights", "night", "guests", "language", "lang", "locale", "timezone", "cabin", "class", "version",
}  # fmt: skip
"""Arguments on which the answer about one thing depends: a price in euros is another value than one in dollars."""
_CALL_FIELDS = {"success", "ok", "status_code", "message", "error", "result"}
"""Fields of a response that speak of the call, not of the thing."""
_MAX_DEPTH = 8


class Thing(NamedTuple):
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


@functools.lru_cache(maxsize=8192)
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
    if is_value(kind):  # the `email` of an e-mail is an address
        ids.remove(kind)
    ids += ["key", "identifier", "slug", f"{kind}_code", "code"]
    if by_name:
        ids += [form for word in NAMES for form in (f"{kind}_{word}", word)]
    return next((by_words[words] for words in ids if words in by_words), "")


def plain(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields that a thing can be named by."""
    return [(name, value) for name, value in fields.items() if _is_plain(value)]


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def references(arguments: Mapping[str, Any], kind: str, nouns: Collection[str] = ()) -> list[Thing]:
    """The things that arguments name, those of the kind that the call is about first.

    Args:
        arguments: of the call.
        kind: what the call is about: what a bare `id` identifies.
        nouns: bare words that name things in these tools, e.g. ``{"account"}`` for `balance(account=3)`.

    Example:
        >>> [thing[:3] for thing in references({"body": "Thanks", "userId": 4, "number": 7}, "issue")]
        [('issue', '7', 'number'), ('user', '4', 'user_id')]
    """
    names = tuple(name for name, _ in plain(arguments))
    return [Thing(of, str(arguments[name]), words) for name, of, words in _referring(names, kind, frozenset(nouns))]


@functools.lru_cache(maxsize=8192)
def _referring(names: tuple[str, ...], kind: str, nouns: frozenset[str]) -> tuple[tuple[str, str, str], ...]:
    """(name, kind, words) of the arguments that identify things, those of `kind` first."""
    found = []
    for name in names:
        words = spelled(name)
        referred = _referred(tokens(name), kind) or (words if words in nouns else "")
        if referred:
            found.append((name, referred, words))
    return tuple(sorted(found, key=lambda reference: reference[1] != kind))


def _referred(words: tuple[str, ...], kind: str) -> str:
    """The kind of thing that an argument of these words identifies, "" when it identifies none."""
    if len(words) < 2:
        return kind if words and (words[0] in GENERIC_IDS or words[0] == kind) else ""
    if words[-1] in _SURE_SUFFIXES:
        return singular(words[-2])
    # `phone_number` and `api_key` identify nothing: these words need the kind itself before them.
    return kind if words[-1] in _SUFFIXES and singular(words[-2]) == kind else ""


def named(arguments: Mapping[str, Any], kind: str) -> Thing | None:
    """The thing that arguments name by something else than an identifier: a file by its path, a user by e-mail."""
    name = _naming(tuple(name for name, _ in plain(arguments)), kind)
    return Thing(kind, str(arguments[name]), spelled(name)) if name else None


@functools.lru_cache(maxsize=8192)
def _naming(names: tuple[str, ...], kind: str) -> str:
    by_words = {spelled(name): name for name in names}
    forms = (form for word in NAMES for form in (f"{kind}_{word}", word))
    return next((by_words[form] for form in forms if form in by_words), "")


def qualifier(arguments: Mapping[str, Any]) -> str:
    """The arguments on which the values of a thing depend, as text."""
    given = [(name, str(value)) for name, value in arguments.items() if not _QUALIFIERS.isdisjoint(tokens(name))]
    return repr(sorted(given)) if given else ""


class Shown(NamedTuple):
    """One thing in a response.

    Attributes:
        thing: which.
        fields: the object in the response that shows it: to be read, or changed in place.
    """

    thing: Thing
    fields: dict[str, Any]


def things_in(value: Any, kind: str, subject: Thing | None) -> list[Shown]:
    """The things that a response shows, outermost first.

    Args:
        value: the response.
        kind: what the call is about.
        subject: the one thing that the call asked about, if any.
    """
    found: list[Shown] = []
    _collect(found, value, "", kind, subject, 0)
    return found


def _collect(found: list[Shown], value: Any, name: str, about: str, subject: Thing | None, depth: int) -> None:
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            if isinstance(item, (dict, list)):
                _collect(found, item, name or "items", about, None, depth + 1)
        return
    kind = kind_under(name, about)
    inner = [(key, child) for key, child in value.items() if isinstance(child, (dict, list))]
    if subject is not None and kind in (about, subject.kind) and not any(_wraps(kind, about, *one) for one in inner):
        found.append(Shown(subject, value))
        subject = None
    elif depth or not any(isinstance(child, list) and kind_under(key, about) == about for key, child in inner):
        id_name = identifier(tuple([key for key, child in value.items() if _is_plain(child)]), kind, bool(depth))
        if id_name:
            found.append(Shown(Thing(kind, str(value[id_name]), spelled(id_name)), value))
    for key, child in inner:
        _collect(found, child, key, about, subject, depth + 1)


def _wraps(kind: str, about: str, name: str, child: Any) -> bool:
    """Whether an object about things of that kind only holds the thing itself, in the field called `name`."""
    return isinstance(child, dict) and kind_under(name, about) == kind


def said_of_thing(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are values of the thing: neither about the call nor other things."""
    return {
        name: child
        for name, child in fields.items()
        if spelled(name) not in _CALL_FIELDS
        and not isinstance(child, dict)
        and not (isinstance(child, list) and any(isinstance(item, (dict, list)) for item in child))
    }
