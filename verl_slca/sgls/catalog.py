"""What the tools of one episode, taken together, say about the world: what each does, and what identifies what."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from verl_slca.sgls.effects import Action, Effect, action_of
from verl_slca.sgls.samples import is_value
from verl_slca.sgls.schema import CompiledTool
from verl_slca.sgls.things import Thing, concept, kind_under, named, plain, qualifier, references, singular, spelled

_MAX_DEPTH = 6
_PLAIN_TYPES = ("string", "integer", "number")


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tools of an episode as one API.

    Attributes:
        effects: what tools do, by name, where the user says so.
        actions: what the tools of the episode do.
        nouns: bare words that name things: `account`, where one tool answers with it and another asks for it.
        id_schemas: by kind, the schema of the arguments that identify such a thing.
        field_schemas: by kind and concept, the schemas that different tools declare for one field.
    """

    effects: Mapping[str, Effect] = field(default_factory=lambda: MappingProxyType({}))
    actions: Mapping[CompiledTool, Action] = field(default_factory=lambda: MappingProxyType({}))
    nouns: frozenset[str] = frozenset()
    id_schemas: Mapping[str, dict[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    field_schemas: Mapping[tuple[str, str], tuple[dict[str, Any], ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def action(self, tool: CompiledTool) -> Action:
        """What `tool` does."""
        return self.actions.get(tool) or action_of(tool, self.effects.get(tool.name))

    def references(self, action: Action, arguments: Mapping[str, Any]) -> list[Thing]:
        """The things that a call names by identifiers."""
        return references(arguments, action.kind, self.nouns)

    def subject(self, action: Action, arguments: Mapping[str, Any]) -> Thing | None:
        """The one thing that a call reads, changes or deletes; None for other calls and where it names none."""
        if action.effect not in ("read", "update", "delete"):
            return None
        referred = self.references(action, arguments)
        thing = referred[0] if referred else named(arguments, action.kind)
        if thing is None or action.effect != "read":
            return thing
        others = {name: value for name, value in arguments.items() if spelled(name) != thing.id_name}
        return Thing(thing.kind, thing.id, thing.id_name, qualifier(others))

    def target(self, action: Action, arguments: Mapping[str, Any]) -> Thing:
        """The one thing that a call changes or deletes; where nothing identifies it, the first noun says which."""
        thing = self.subject(action, arguments)
        if thing is None:  # cancel(booking=3)
            nouns = (name for name, _ in plain(arguments) if _is_noun(name))
            thing = next((Thing(spelled(name), str(arguments[name]), spelled(name)) for name in nouns), None)
        return thing or Thing(action.kind, "", "")


def catalog_of(tools: tuple[CompiledTool, ...], effects: Mapping[str, Effect]) -> Catalog:
    """The catalog of `tools`; kept for the next episode with the same ones."""
    return _catalog_of(tools, tuple(sorted((name, effect) for name, effect in effects.items())))


@functools.lru_cache(maxsize=512)
def _catalog_of(tools: tuple[CompiledTool, ...], effects: tuple[tuple[str, Effect], ...]) -> Catalog:
    told = dict(effects)
    actions = [action_of(tool, told.get(tool.name)) for tool in tools]
    asked: set[str] = set()
    answered = {action.kind for action in actions}
    id_schemas: dict[str, dict[str, Any]] = {}
    declared: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for tool, action in zip(tools, actions, strict=True):
        properties = tool.parameters.schema.get("properties", {})
        required = set(tool.parameters.schema.get("required", ()))
        for name, schema in properties.items():
            if not isinstance(schema, dict) or schema.get("type") not in _PLAIN_TYPES or "enum" in schema:
                continue
            if name in required and _is_noun(name):
                asked.add(spelled(name))
            for thing in references({name: ""}, action.kind):
                id_schemas.setdefault(thing.kind, schema)
        if tool.output is not None:
            for name, schema, kind in _outputs(tool.output.schema, "", action.kind, 0):
                if schema.get("type") in _PLAIN_TYPES:
                    answered.add(spelled(name))
                schemas = declared.setdefault((kind, concept(name, kind)), [])
                if schema not in schemas:
                    schemas.append(schema)
    nouns = frozenset(asked & answered)
    for tool in tools:
        for name, schema in tool.parameters.schema.get("properties", {}).items():
            if spelled(name) in nouns and isinstance(schema, dict):
                id_schemas.setdefault(spelled(name), schema)
    several = {key: tuple(schemas) for key, schemas in declared.items() if len(schemas) > 1}
    by_tool = MappingProxyType(dict(zip(tools, actions, strict=True)))
    return Catalog(MappingProxyType(told), by_tool, nouns, MappingProxyType(id_schemas), MappingProxyType(several))


def _is_noun(name: str) -> bool:
    """Whether a bare argument can name a thing: not `days`, `limit` or `status`."""
    words = spelled(name)
    return "_" not in words and words == singular(words) and not is_value(words)


def _outputs(schema: Any, name: str, about: str, depth: int) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(name, schema, kind of the thing) of each field that an output schema declares without a reference."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    kind = kind_under(name, about)
    for key, child in schema.get("properties", {}).items():
        if not isinstance(child, dict):
            continue
        if "properties" in child or "items" in child:
            yield from _outputs(child, key, about, depth + 1)
        elif "$ref" not in child:
            yield key, child, kind
    if "items" in schema:
        yield from _outputs(schema["items"], name, about, depth + 1)
