"""What the calls of one episode have left behind: things created, changed, deleted or seen, and those of the start.

The world is open: a thing that nobody mentioned may exist, and a read of it is answered from the world alone. What was
created is there, what was changed has its new values, what was deleted is gone, and what a response has shown, whoever
gave it, is true from then on. Of kinds that the user has seeded, there is nothing beside what was seeded and created.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from verl_slca.sgls.catalog import Catalog, catalog_of
from verl_slca.sgls.counts import count_changes
from verl_slca.sgls.effects import Action
from verl_slca.sgls.entity import Entity
from verl_slca.sgls.explain import cut_json
from verl_slca.sgls.samples import tokens
from verl_slca.sgls.schema import CompiledTool
from verl_slca.sgls.things import (
    GENERIC_IDS,
    NAMES,
    Thing,
    identifier,
    named,
    plain,
    said_of_thing,
    singular,
    spelled,
    things_in,
)
from verl_slca.sgls.validation import canonical_json
from verl_slca.sgls.verbs import Effect

MAX_CONTENT_CHARS = 50_000
"""Of a longer response nothing is remembered."""
MAX_SEEN = 500
"""Things that are remembered; where there are more, those that were only seen are forgotten."""


@dataclass(frozen=True, slots=True)
class State:
    """The world as the calls so far have left it; never changed, only followed by another.

    Attributes:
        digest: equal exactly when the same was seeded and the same writes succeeded in the same order; "" when nothing.
        entities: things that are known, oldest first.
        closed: scope and kind of the things that were all seeded.
        catalog: what the tools of the episode say.
    """

    digest: str = ""
    entities: tuple[Entity, ...] = ()
    closed: frozenset[tuple[tuple[str, ...], str]] = frozenset()
    catalog: Catalog = Catalog()  # noqa: RUF009 - frozen

    def of(self, tools: tuple[CompiledTool, ...]) -> State:
        """This state, for an episode with these tools."""
        return replace(self, catalog=catalog_of(tools, self.catalog.effects))

    def action(self, tool: CompiledTool) -> Action:
        """What `tool` does."""
        return self.catalog.action(tool)

    def after(self, tool: CompiledTool, arguments: Mapping[str, Any], content: str) -> State:
        """The state once a call was answered with `content`, not with an error; the digest of a read's is the same."""
        action, value = self.action(tool), _parsed(content)
        if not action.writes:
            return self._having_seen(action, arguments, value)
        parts = [self.digest, tool.digest, dict(arguments), content]
        digest = hashlib.blake2b(canonical_json(parts).encode(), digest_size=16).hexdigest()
        state = self._written(action, arguments, value)
        for thing, name, by in count_changes(action, arguments, self.catalog.nouns):
            target = state.entity(action.scope, thing) or _entity(action.scope, thing)
            state = state._with(target.with_change(name, by))
        return replace(state._having_seen(action, arguments, value), digest=digest)

    def entity(self, scope: tuple[str, ...], thing: Thing) -> Entity | None:
        """What is known of a thing, gone or not; by its identifier, else by another of its names."""
        for entity in reversed(self.entities):
            if entity.kind == thing.kind and entity.id == thing.id and compatible(entity.scope, scope):
                return entity
        for entity in reversed(self.entities):
            if compatible(entity.scope, scope) and _is_called(entity, thing):
                return entity
        return None

    def found(self, action: Action, arguments: Mapping[str, Any]) -> Entity | None:
        """The thing that a call refers to; None when it names none that is known and there."""
        for thing in self._meant(action, arguments):
            entity = self.entity(action.scope, thing)
            if entity is not None and not entity.deleted:
                return entity
        if not plain(arguments) and action.effect != "list":  # the cart, the settings
            return next((e for e in self._of_kind(action) if not e.deleted and e.written), None)
        return None

    def subject(self, action: Action, arguments: Mapping[str, Any]) -> Thing | None:
        """The one thing that a call reads, changes or deletes, by the identifier under which it is known."""
        thing = self.catalog.subject(action, arguments)
        if not self.entities or action.effect not in ("read", "update", "delete"):
            return thing
        known = self.found(action, arguments)
        if known is None or (thing is not None and thing.kind != known.kind):
            return thing
        return Thing(known.kind, known.id, known.id_name, thing.qualifier if thing else "")

    def refusal(self, action: Action, arguments: Mapping[str, Any]) -> str:
        """Why the API refuses a call: it names what is not there, or cancels what is cancelled; "" when it does not."""
        if not self.digest or (action.effect == "create" and self._is_remade(action, arguments)):
            return ""
        for thing in self._meant(action, arguments):
            entity = self.entity(action.scope, thing)
            # A thing can be made again, and a search that finds nothing is no mistake.
            fine = action.effect in ("create", "list") and action.kind == (entity.kind if entity else thing.kind)
            gone = entity.deleted if entity else self._is_closed(action.scope, thing.kind)
            if gone and not fine:
                return f"{entity.kind if entity else thing.kind} {cut_json(thing.id)} not found"
            if entity and action.verb == "cancel" and entity.known("status") == "cancelled":
                return f"{entity.kind} {cut_json(thing.id)} is already cancelled"
        return ""

    def listed(self, action: Action) -> list[Entity]:
        """The things that a list of everything has to hold, newest first."""
        return [entity for entity in self._of_kind(action) if not entity.deleted and entity.id and entity.written]

    def removed(self, action: Action) -> set[str]:
        """Identifiers that a list must not hold."""
        return {entity.id for entity in self._of_kind(action) if entity.deleted}

    def is_closed(self, action: Action) -> bool:
        """True when all things of the action's kind are known."""
        return self._is_closed(action.scope, action.kind)

    def _is_closed(self, scope: tuple[str, ...], kind: str) -> bool:
        return any(kind == closed and compatible(owner, scope) for owner, closed in self.closed)

    def _of_kind(self, action: Action) -> list[Entity]:
        """The things that the action's kind has, gone ones too, newest first."""
        return [e for e in reversed(self.entities) if e.kind == action.kind and compatible(e.scope, action.scope)]

    def _meant(self, action: Action, arguments: Mapping[str, Any]) -> Iterator[Thing]:
        """The things that a call may refer to: by identifiers, else by what things were identified with before."""
        referred = self.catalog.references(action, arguments)
        yield from referred
        known = {entity.id_name: entity.kind for entity in self.entities if compatible(entity.scope, action.scope)}
        for name, value in plain(arguments):
            words = spelled(name)
            if words in known and words not in GENERIC_IDS and not any(thing.id_name == words for thing in referred):
                yield Thing(known[words], str(value), words)
        if not referred and (thing := named(arguments, action.kind)) is not None:
            yield thing

    def _written(self, action: Action, arguments: Mapping[str, Any], value: Any) -> State:
        arguments = _opened(arguments)
        if action.effect == "create":
            return self._with(self._made(action, arguments, value))
        if action.effect not in ("update", "delete"):
            return self
        target = self.found(action, arguments)
        if target is None and action.effect == "delete" and not plain(arguments):
            gone = {id(entity) for entity in self._of_kind(action)}
            kept = tuple(replace(e, deleted=True) if id(e) in gone else e for e in self.entities)
            return replace(self, entities=kept)
        if target is None:
            target = _entity(action.scope, self.catalog.target(action, arguments))
        if action.effect == "delete":
            return self._with(replace(target, deleted=True))
        names = {spelled(name) for name in arguments}
        fields = {name: new for name, new in said_of_thing(_about(value)).items() if spelled(name) not in names}
        fields |= {name: new for name, new in arguments.items() if spelled(name) not in GENERIC_IDS | {target.id_name}}
        if action.status and not any(spelled(name) in ("status", "state") for name in arguments):
            fields["status"] = action.status
        return self._with(target.with_written(fields))

    def _made(self, action: Action, arguments: Mapping[str, Any], value: Any) -> Entity:
        """What a call created: its arguments and what the response adds to them."""
        said = {name: new for name, new in said_of_thing(_about(value)).items() if name not in arguments}
        names = tuple(name for name, _ in plain(said))
        name = identifier(names, action.kind, by_name=False)
        if not name:
            name = next((n for n in names if spelled(n).endswith(("_id", "_uuid"))), "")
        if not name and len(names) == 1:
            name = names[0]
        fields = {**arguments, **said}
        if not name:
            thing = named(fields, action.kind)
            number = thing.id if thing else f"#{len(self.entities)}"
            return Entity(action.scope, action.kind, number, thing.id_name if thing else "", fields)
        return Entity(action.scope, action.kind, str(fields[name]), spelled(name), fields)

    def _is_remade(self, action: Action, arguments: Mapping[str, Any]) -> bool:
        thing = named(arguments, action.kind)
        return thing is not None and not self.catalog.references(action, arguments)

    def _having_seen(self, action: Action, arguments: Mapping[str, Any], value: Any) -> State:
        """The state once a response was read; the same object when it said nothing new."""
        if not isinstance(value, (dict, list)):
            return self
        seen: dict[tuple[str, str], Entity] = {}
        before: set[int] = set()
        for thing, fields in things_in(value, action.kind, self.subject(action, arguments)):
            if thing.qualifier:
                continue
            old = seen.get((thing.kind, thing.id)) or self.entity(action.scope, thing)
            first = old or _entity(action.scope, thing)
            new = first.with_shown(fields)
            if new is not first:
                before.add(id(old))
                seen[new.kind, new.id] = new
        if not seen:
            return self
        others = [entity for entity in self.entities if id(entity) not in before]
        if len(others) > MAX_SEEN:
            others = [entity for entity in others if entity.written or entity.deleted]
        return replace(self, entities=(*others, *seen.values()))

    def _with(self, entity: Entity) -> State:
        """The state with the newest form of a thing, at the end."""
        others = [
            other
            for other in self.entities
            if not (other.kind == entity.kind and other.id == entity.id and other.scope == entity.scope)
        ]
        return replace(self, entities=(*others, entity))


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
        for noun, things in kinds.items():
            if not isinstance(things, list) or not all(isinstance(thing, dict) and thing for thing in things):
                raise ValueError(f"{server!r}.{noun!r}: expected a list of objects, got {cut_json(things)}")
            scope, kind = tokens(server), singular(tokens(noun)[-1]) if tokens(noun) else "item"
            closed.add((scope, kind))
            for thing in things:
                name = identifier(tuple(name for name, _ in plain(thing)), kind) or next(iter(thing))
                entities.append(Entity(scope, kind, str(thing[name]), spelled(name), dict(thing)))
    digest = hashlib.blake2b(canonical_json(data).encode(), digest_size=16).hexdigest() if data else ""
    return State(digest, tuple(entities), frozenset(closed), catalog_of((), effects or {}))


def compatible(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two scopes may be the same server's: one starts with the other."""
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _entity(scope: tuple[str, ...], thing: Thing) -> Entity:
    return Entity(scope, thing.kind, thing.id, thing.id_name)


def _is_called(entity: Entity, thing: Thing) -> bool:
    """Whether a thing goes by that name, too: a file by its path, an issue with an `id` by its `number`."""
    if entity.kind != thing.kind:
        return False
    own = f"{entity.kind}_"
    asked = thing.id_name.removeprefix(own)
    if asked not in NAMES and asked not in GENERIC_IDS:
        return False
    names = [*plain(entity.fields), *plain(entity.shown)]
    return any(spelled(name).removeprefix(own) == asked and str(value) == thing.id for name, value in names)


def _parsed(content: str) -> Any:
    try:
        return json.loads(content) if len(content) <= MAX_CONTENT_CHARS else None
    except (ValueError, RecursionError):
        return None


def _about(value: Any) -> dict[str, Any]:
    """The fields of a response, those of the one object among them in its place."""
    return _opened(value) if isinstance(value, dict) else {}


def _opened(fields: Mapping[str, Any]) -> dict[str, Any]:
    inner = [name for name, child in fields.items() if isinstance(child, dict)]
    if len(inner) != 1:
        return dict(fields)
    return {**{name: child for name, child in fields.items() if name != inner[0]}, **fields[inner[0]]}
