"""One thing of the world with all that is known of it: what was done to it, and what responses have said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from verl_slca.sgls.things import concept, is_region, said_of_thing, spelled

UNKNOWN: Any = object()
"""Stands for a value that nothing has said yet."""
_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _empty() -> Mapping[str, Any]:
    return _EMPTY


_STATUS_GROUPS = (
    ("open", "opened", "active", "todo", "new", "pending", "in_progress"),
    ("closed", "close"),
    ("completed", "complete", "done", "finished"),
    ("cancelled", "canceled", "cancel"),
)
"""Words for one status; a field that only takes one of them takes it for the others."""
_FLAGS = {"completed", "closed", "open", "active", "archived", "resolved", "cancelled", "enabled", "disabled", "locked"}
"""Yes-or-no fields that say what the status says."""


@dataclass(frozen=True, slots=True)
class Entity:
    """One thing of the world.

    Attributes:
        scope: words of the server it belongs to; () when tools name none.
        kind: e.g. ``"note"``.
        id: its identifier as text; "" for the only one of its kind.
        id_name: words of the field that holds it, joined by ``_``.
        fields: what the calls of the episode, or the user, made of it.
        shown: what responses said of it beside that.
        changes: by how much calls changed a count that no response had shown yet.
        deleted: it is gone, and stays known as gone.
    """

    scope: tuple[str, ...]
    kind: str
    id: str
    id_name: str = "id"
    fields: Mapping[str, Any] = field(default_factory=_empty)
    shown: Mapping[str, Any] = field(default_factory=_empty)
    changes: Mapping[str, float] = field(default_factory=_empty)
    deleted: bool = False

    @property
    def written(self) -> bool:
        """True when it was seeded, created or changed, so that lists have to hold it; the others were only seen."""
        return bool(self.fields)

    def known(self, name: str, siblings: Mapping[str, Any] = _EMPTY) -> Any:
        """The value of the field of that name, however it is spelled; `UNKNOWN` when nothing said it.

        Args:
            name: of the field.
            siblings: the object in which it stands.
        """
        if is_region(name, siblings):
            return self.fields.get(name, self.shown.get(name, UNKNOWN))
        wanted = concept(name, self.kind)
        for fields in (self.fields, self.shown):
            if name in fields:
                return fields[name]
            for key, value in fields.items():
                if concept(key, self.kind) == wanted:
                    return value
        flag = wanted.removeprefix("is_")
        if flag in _FLAGS and isinstance(status := self._status(), str):
            return same_status(status, flag)
        if wanted == "status":
            return self._status_by_flag()
        return UNKNOWN

    def value(self, name: str, drawn: Any, siblings: Mapping[str, Any], accepts: Callable[[Any], bool]) -> Any:
        """What a response has to say in a field: the known value where the field takes it, else the one drawn.

        Args:
            name: of the field.
            drawn: its value as far as this thing is not known.
            siblings: the object in which it stands.
            accepts: whether the field may hold a value.
        """
        if not self.fields and self.shown.get(name, UNKNOWN) == drawn:
            return drawn
        known = self.known(name, siblings)
        if known is UNKNOWN:
            change = self.changes.get(concept(name, self.kind), 0)
            if not change or isinstance(drawn, bool) or not isinstance(drawn, (int, float)):
                return drawn
            known = max(drawn + change, 0)
        return fitted(known, drawn, accepts)

    def with_written(self, fields: Mapping[str, Any]) -> Entity:
        """It after a call has set `fields`; every other spelling of one of them follows."""
        return replace(
            self,
            fields=_merged(self.fields, fields, self.kind),
            shown=_merged(self.shown, fields, self.kind, add=False),
        )

    def with_shown(self, fields: Mapping[str, Any]) -> Entity:
        """It after a response has shown `fields`; what is known already stays."""
        news = said_of_thing(fields)
        if self.fields or self.shown:
            news = {name: value for name, value in news.items() if self.known(name, fields) is UNKNOWN}
            return replace(self, shown={**self.shown, **news}) if news else self
        if not news:
            return self
        return Entity(self.scope, self.kind, self.id, self.id_name, _EMPTY, news, self.changes, self.deleted)

    def with_change(self, name: str, by: float) -> Entity:
        """It after a call has taken from, or added to, a count."""
        known = self.known(name)
        if known is UNKNOWN or isinstance(known, bool) or not isinstance(known, (int, float)):
            return replace(self, changes={**self.changes, name: self.changes.get(name, 0) + by})
        return self.with_written({name: max(known + by, 0)})

    def _status(self) -> Any:
        status = _status(self.fields, self.kind)
        return _status(self.shown, self.kind) if status is UNKNOWN else status

    def _status_by_flag(self) -> Any:
        """The status that a flag which was set to true stands for."""
        for name, value in self.fields.items():
            flag = concept(name, self.kind).removeprefix("is_")
            if value is True and flag in _FLAGS:
                return flag
        return UNKNOWN


def flags(fields: Mapping[str, Any], kind: str) -> dict[str, bool]:
    """What the yes-or-no fields of a thing have to say for its status to be true; {} where it has none.

    Example:
        >>> flags({"status": "closed", "closed": False, "pinned": False}, "issue")
        {'closed': True}
    """
    if not any(isinstance(value, bool) for value in fields.values()):
        return {}
    status = _status(fields, kind)
    if not isinstance(status, str):
        return {}
    names = [(name, concept(name, kind).removeprefix("is_")) for name, v in fields.items() if isinstance(v, bool)]
    return {name: same_status(status, flag) for name, flag in names if flag in _FLAGS}


def _status(fields: Mapping[str, Any], kind: str) -> Any:
    names = (name for name in fields if concept(name, kind) == "status" and not is_region(name, fields))
    return next((fields[name] for name in names), UNKNOWN)


def fitted(value: Any, drawn: Any, accepts: Callable[[Any], bool]) -> Any:
    """`value` in the form that a field takes, `drawn` when there is none.

    Example:
        >>> fitted(7, "3", lambda value: isinstance(value, str))
        '7'
    """
    if accepts(value):
        return value
    forms: list[Any] = []
    if isinstance(value, str):
        words = {form for group in _STATUS_GROUPS if spelled(value) in group for form in group} | {spelled(value)}
        forms += [
            f(word) for word in sorted(words, key=lambda w: w != spelled(value)) for f in (str, str.upper, str.title)
        ]
        if value.lstrip("-").isdecimal():
            forms.append(int(value))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        forms += [str(value), round(value)]
    return next((form for form in forms if accepts(form)), drawn)


def same_status(one: str, other: str) -> bool:
    """Whether two words stand for one status.

    Example:
        >>> same_status("Done", "completed"), same_status("open", "closed")
        (True, False)
    """
    one, other = spelled(one), spelled(other)
    return one == other or any(one in group and other in group for group in _STATUS_GROUPS)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any], kind: str, add: bool = True) -> dict[str, Any]:
    """`old` with the values of `new`, under every spelling of their names."""
    by_concept = {concept(name, kind): value for name, value in new.items()}
    status = by_concept.get("status")
    merged: dict[str, Any] = {}
    for name, value in old.items():
        about = name if is_region(name, old) else concept(name, kind)
        merged[name] = by_concept.get(about, value)
        flag = about.removeprefix("is_")
        if isinstance(status, str) and flag in _FLAGS and about not in by_concept:
            merged[name] = same_status(status, flag)
        elif about == "status" and status is None:
            flags = [f for f, v in by_concept.items() if v is True and f.removeprefix("is_") in _FLAGS]
            merged[name] = flags[0].removeprefix("is_") if flags else value
    return {**merged, **new} if add else merged
