"""A response drawn from the world alone -> one that agrees with what the episode has done so far.

Reads of a thing that was created or changed show it; lists hold what was created and not what was deleted. A declared
output schema is kept to: what does not fit it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from verl_slca.sgls.effects import Action
from verl_slca.sgls.schema import CompiledSchema
from verl_slca.sgls.state import Entity, State
from verl_slca.sgls.validation import SchemaLimitError

MAX_LISTED = 50
"""Things that a list holds at most, newest first."""


def with_thing(value: Any, entity: Entity) -> Any:
    """`value` with all that is known of the thing it speaks of, for a response whose shape is ours to choose."""
    if not isinstance(value, dict):
        return value
    known = {name: entity.known(name, child) for name, child in value.items()}
    return {**known, **entity.fields}


def with_things(
    value: Any, state: State, action: Action, arguments: Mapping[str, Any], declared: CompiledSchema | None
) -> Any:
    """`value` with the first list of objects in it holding what it has to hold.

    Args:
        value: as drawn.
        state: what was done so far.
        action: what the called tool does.
        arguments: of the call; they filter.
        declared: the schema to keep to, None when there is none.
    """
    found, gone = state.listed(action, arguments)[:MAX_LISTED], state.removed(action)
    closed = state.is_closed(action)
    if not found and not gone and not closed:
        return value
    place, items = _list_in(value, action.kind)
    if items is None:
        return value
    template = items[0] if items else {}
    own = [_shown(entity, template, declared is None) for entity in found]
    drawn = [item for item in items if gone.isdisjoint(str(child) for child in item.values())]
    for listed in (own, own + drawn) if closed else (own + drawn, own + drawn[: max(0, len(items) - len(own))]):
        changed = listed if place is None else {**value, place: listed}
        if declared is None or _valid(declared, changed):
            return changed
    return value


def _shown(entity: Entity, template: Mapping[str, Any], whole: bool) -> dict[str, Any]:
    """The thing as an item of a list whose items look like `template`."""
    shown = {name: entity.known(name, child) for name, child in template.items()}
    return {**shown, **entity.fields} if whole else shown


def _list_in(value: Any, kind: str) -> tuple[str | None, list[dict[str, Any]] | None]:
    """(its name, the list of objects that holds things of that kind), (None, None) when there is none."""
    if isinstance(value, list) and _is_objects(value):
        return None, value
    lists = dict(_lists(value)) if isinstance(value, dict) else {}
    name = next((name for name in lists if name.lower().startswith(kind[:4])), next(iter(lists), None))
    return (None, None) if name is None else (name, lists[name])


def _lists(value: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    return ((name, child) for name, child in value.items() if isinstance(child, list) and _is_objects(child))


def _is_objects(value: list[Any]) -> bool:
    return all(isinstance(item, dict) for item in value)


def _valid(schema: CompiledSchema, value: Any) -> bool:
    try:
        return not schema.errors(value)
    except SchemaLimitError:
        return False
