"""What the calls of one episode have left behind: things created, changed, deleted, and those there from the start.

The world is open: a thing that nobody mentioned may exist, and a read of it is answered from the world alone. Only what
the episode itself did has to be agreed with: what was created is there, what was changed has its new values, what was
deleted is gone. Of kinds that the user has seeded, there is nothing else than what was seeded and created.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from verl_slca.sgls.effects import Action, Effect, action_of, singular
from verl_slca.sgls.explain import cut_json
from verl_slca.sgls.samples import tokens
from verl_slca.sgls.schema import CompiledTool
from verl_slca.sgls.validation import canonical_json

MAX_CONTENT_CHARS = 50_000
"""Of a longer response no field is remembered."""
NAMELESS = "#"
_SAID_ONLY = {"success", "ok", "status_code", "message", "error", "result"}
"""Fields of a response that speak of the call, not of the thing."""
_GENERIC = {"id", "uuid", "key", "name", "title", "number", "code"}
"""Names of identifiers that say nothing about what they identify."""
_ID_WORDS = ("id", "uuid", "key", "slug", "path", "filename", "file", "url", "number", "code", "name", "title", "email")
_QUERIES = {"query", "q", "search", "keyword", "keywords", "term", "text"}


@dataclass(frozen=True, slots=True)
class Entity:
    """One thing of the world.

    Attributes:
        scope: words of the server it belongs to; () when tools name none.
        kind: e.g. ``"note"``.
        id_name: words of the field that identifies it, joined by ``_``; "" for the only one of its kind, `NAMELESS`
            for one that nothing identifies.
        id: the value of that field, as text.
        fields: what is known of it.
        deleted: it is gone, and stays known as gone.
        whole: it was seeded or created here; of others only what was changed is known.
    """

    scope: tuple[str, ...]
    kind: str
    id_name: str
    id: str
    fields: Mapping[str, Any]
    deleted: bool = False
    whole: bool = True

    def is_same(self, other: Entity) -> bool:
        """True when both are the same thing, perhaps at different times."""
        return (self.scope, self.kind, self.id_name, self.id) == (other.scope, other.kind, other.id_name, other.id)

    def known(self, name: str, default: Any = None) -> Any:
        """The value of the field of that name, however it is spelled."""
        if name in self.fields:
            return self.fields[name]
        wanted = _spelled(name)
        if wanted in _aliases(self.kind) and self.id_name in _aliases(self.kind):
            return next((value for value in self.fields.values() if str(value) == self.id), self.id)
        return next((value for key, value in self.fields.items() if _spelled(key) == wanted), default)


@dataclass(frozen=True, slots=True)
class State:
    """The world as the calls so far have left it; never changed, only followed by another.

    Attributes:
        digest: equal exactly when the same was seeded and the same writes succeeded in the same order; "" when nothing.
        entities: things that are known, oldest first.
        closed: scope and kind of the things that were all seeded.
        effects: what tools do, by name, where the user says so.
    """

    digest: str = ""
    entities: tuple[Entity, ...] = ()
    closed: frozenset[tuple[tuple[str, ...], str]] = frozenset()
    effects: Mapping[str, Effect] = field(default_factory=lambda: MappingProxyType({}))

    def action(self, tool: CompiledTool) -> Action:
        """What `tool` does."""
        return action_of(tool, self.effects.get(tool.name))

    def after(self, tool: CompiledTool, arguments: Mapping[str, Any], content: str) -> State:
        """The state once a call was answered with `content`, not with an error; a read changes nothing."""
        action = self.action(tool)
        if not action.writes:
            return self
        parts = [self.digest, tool.digest, dict(arguments), content]
        digest = hashlib.blake2b(canonical_json(parts).encode(), digest_size=16).hexdigest()
        return replace(self, digest=digest, entities=tuple(self._changed(action, tool, arguments, content)))

    def found(self, action: Action, arguments: Mapping[str, Any]) -> Entity | None:
        """The thing that a call refers to, newest first; None when it names none that is known and there."""
        for entity in reversed(self.entities):
            if not entity.deleted and _named_by(action, arguments, entity) is not None:
                return entity
        return None

    def missing(self, action: Action, arguments: Mapping[str, Any]) -> str:
        """What a call refers to though it is not there, e.g. ``note "n1"``; "" when nothing."""
        if not self.digest or self.found(action, arguments) is not None:
            return ""
        for entity in self.entities:
            # A thing can be made again, and a search that finds nothing is no mistake.
            fine = action.effect in ("create", "list") and action.kind == entity.kind
            if entity.deleted and not fine and (name := _named_by(action, arguments, entity)):
                return f"{entity.kind} {cut_json(name)}"
        for scope, kind in sorted(self.closed):  # one order in every process
            if action.effect != "create" and _compatible(scope, action.scope):
                there = {entity.id for entity in self._of_kind(scope, kind) if not entity.deleted}
                for name, value in _plain(arguments):
                    if _names(action, _spelled(name), kind) and str(value) not in there:
                        return f"{kind} {cut_json(str(value))}"
        return ""

    def listed(self, action: Action, arguments: Mapping[str, Any]) -> list[Entity]:
        """The things that a list or a search asked with `arguments` has to hold, newest first."""
        of_kind = self._of_kind(action.scope, action.kind)
        return [entity for entity in of_kind if not entity.deleted and entity.id_name and _fits(entity, arguments)]

    def removed(self, action: Action) -> set[str]:
        """Identifiers that a list must not hold."""
        return {entity.id for entity in self._of_kind(action.scope, action.kind) if entity.deleted}

    def is_closed(self, action: Action) -> bool:
        """True when all things of the action's kind are known."""
        return any(kind == action.kind and _compatible(scope, action.scope) for scope, kind in self.closed)

    def _of_kind(self, scope: tuple[str, ...], kind: str) -> list[Entity]:
        """The things of that kind, gone ones too, newest first."""
        return [e for e in reversed(self.entities) if e.kind == kind and _compatible(e.scope, scope)]

    def _changed(
        self, action: Action, tool: CompiledTool, arguments: Mapping[str, Any], content: str
    ) -> Iterable[Entity]:
        if action.effect == "write":
            return self.entities
        said, arguments = _said(content), _opened(arguments)
        if action.effect == "create":
            made = _created(action, arguments, said, len(self.entities))
            return [*(entity for entity in self.entities if not made.is_same(entity)), made]
        target = self.found(action, arguments)
        if target is None and action.effect == "delete" and not list(_plain(arguments)):
            gone = self._of_kind(action.scope, action.kind)
            return [replace(entity, deleted=True) if entity in gone else entity for entity in self.entities]
        if target is None:
            name, value = _reference(action, tool, arguments)
            target = Entity(action.scope, action.kind, _spelled(name), str(value), {}, whole=False)
        others = [entity for entity in self.entities if entity is not target]
        if action.effect == "delete":
            return [*others, replace(target, deleted=True)]
        return [*others, replace(target, fields={**target.fields, **said, **arguments})]


def seeded(data: Any, effects: Mapping[str, Effect] | None = None) -> State:
    """The state of an episode that starts with the user's own things.

    Args:
        data: server -> kind -> list of objects, e.g. ``{"notes": {"note": [{"id": "n1", "title": "Milk"}]}}``; the
            server "" stands for all.
        effects: what tools do, by name.

    Raises:
        ValueError: says where `data` has another shape.
    """
    if not isinstance(data, dict):
        raise ValueError(f"expected an object of servers, got {cut_json(data)}")
    entities: list[Entity] = []
    closed: set[tuple[tuple[str, ...], str]] = set()
    for server, kinds in data.items():
        if not isinstance(kinds, dict):
            raise ValueError(f"{server!r}: expected an object of kinds, got {cut_json(kinds)}")
        for kind, things in kinds.items():
            if not isinstance(things, list) or not all(isinstance(thing, dict) and thing for thing in things):
                raise ValueError(f"{server!r}.{kind!r}: expected a list of objects, got {cut_json(things)}")
            owner = Action("create", tokens(server), _kind(kind))
            closed.add((owner.scope, owner.kind))
            for thing in things:
                name = _id_among(thing, owner.kind) or next(iter(thing))
                entities.append(Entity(owner.scope, owner.kind, _spelled(name), str(thing[name]), dict(thing)))
    digest = hashlib.blake2b(canonical_json(data).encode(), digest_size=16).hexdigest() if data else ""
    return State(digest, tuple(entities), frozenset(closed), MappingProxyType(dict(effects or {})))


def _created(action: Action, arguments: Mapping[str, Any], said: Mapping[str, Any], number: int) -> Entity:
    new = {name: value for name, value in said.items() if name not in arguments}
    fields = {**arguments, **said}
    plain = [name for name, value in _plain(new)]
    name = _id_among(new, action.kind) or (plain[0] if len(plain) == 1 else _id_among(arguments, action.kind))
    if not name:
        return Entity(action.scope, action.kind, NAMELESS, str(number), fields)
    spelled = _spelled(name)
    if name in new and spelled.endswith(("_id", "_uuid")):  # whatever the service calls it, it is the new thing's
        spelled = f"{action.kind}_id"
    return Entity(action.scope, action.kind, spelled, str(fields[name]), fields)


def _reference(action: Action, tool: CompiledTool, arguments: Mapping[str, Any]) -> tuple[str, Any]:
    """(name, value) of the argument that says which thing is meant; ("", "") when none can."""
    required = tool.parameters.schema.get("required", ())
    plain = dict(_plain(arguments))
    ordered = {name: plain[name] for name in [*required, *plain] if name in plain}
    name = _id_among(ordered, action.kind) or next(iter(ordered), "")
    return name, ordered.get(name, "")


def _id_among(fields: Mapping[str, Any], kind: str) -> str:
    """The field that identifies a thing of that kind, "" when none looks like it."""
    plain = {name: _spelled(name) for name, _ in _plain(fields)}
    wanted = [f"{kind}_id", "id", kind, *_aliases(kind)]
    for words in wanted:
        for name, spelled in plain.items():
            if spelled == words:
                return name
    for word in _ID_WORDS:
        for name, spelled in plain.items():
            if spelled.rsplit("_", 1)[-1] == word:
                return name
    return ""


def _aliases(kind: str) -> tuple[str, ...]:
    return ("id", "uuid", kind, f"{kind}_id", f"{kind}_uuid", f"{kind}_key")


def _names(action: Action, spelled: str, kind: str) -> bool:
    """Whether an argument so spelled says which thing of that kind is meant."""
    return spelled in _aliases(kind) and (action.kind == kind or spelled not in _GENERIC)


def _named_by(action: Action, arguments: Mapping[str, Any], entity: Entity) -> str | None:
    """The argument's value that names the thing: its identifier, or, where none is given, another name it has."""
    if not _compatible(action.scope, entity.scope):
        return None
    same = action.kind == entity.kind
    given = [(_spelled(name), str(value)) for name, value in _plain(arguments)]
    if not given:
        return "" if same and (not entity.id_name or action.effect == "read") else None
    by_alias = entity.id_name in _aliases(entity.kind)
    identifiers = [
        text
        for name, text in given
        if (name == entity.id_name and (same or name not in _GENERIC))
        or (by_alias and _names(action, name, entity.kind))
    ]
    if identifiers:
        return entity.id if entity.id in identifiers else None
    others = _other_names(entity)
    return next((text for name, text in given if others.get(name) == text and (same or name not in _GENERIC)), None)


def _other_names(entity: Entity) -> dict[str, str]:
    """Fields beside the identifier that a thing is known by: a file's path, a user's email; not its owner's id."""
    found = {_spelled(name): str(value) for name, value in _plain(entity.fields)}
    own = set(_ID_WORDS) | {f"{entity.kind}_{word}" for word in _ID_WORDS}
    return {name: text for name, text in found.items() if name in own}


def _fits(entity: Entity, arguments: Mapping[str, Any]) -> bool:
    """Whether a list filtered by `arguments` holds the thing."""
    text = json.dumps(list(entity.fields.values()), ensure_ascii=False, default=str).casefold()
    for name, value in _plain(arguments):
        known = entity.known(name, value)
        if known != value and str(value).casefold() not in str(known).casefold():
            return False
        if _spelled(name).rsplit("_", 1)[-1] in _QUERIES and str(value).casefold() not in text:
            return False
    return True


def _plain(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields that a thing can be named by."""
    for name, value in fields.items():
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            yield name, value


def _said(content: str) -> dict[str, Any]:
    """What a response says about the thing."""
    try:
        value = json.loads(content) if len(content) <= MAX_CONTENT_CHARS else None
    except (ValueError, RecursionError):
        return {}
    said = _opened(value) if isinstance(value, dict) else {}
    return {name: child for name, child in said.items() if name not in _SAID_ONLY}


def _opened(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with those of the one object among them in its place."""
    inner = [name for name, child in fields.items() if isinstance(child, dict)]
    if len(inner) != 1:
        return dict(fields)
    return {**{name: child for name, child in fields.items() if name != inner[0]}, **fields[inner[0]]}


def _spelled(name: str) -> str:
    return "_".join(tokens(name))


def _kind(noun: str) -> str:
    words = tokens(noun)
    return singular(words[-1]) if words else "item"


def _compatible(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two scopes may be the same server's: one starts with the other."""
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]
