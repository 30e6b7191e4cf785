"""A backend whose reads are made to agree with what the episode has done and seen.

For backends that make a response up without being bound to the last one, such as a model: what a read says of a thing
that is known already is replaced by what is known, and a list loses what was deleted. It stands in front of the cache,
so that rollouts of a group share the model's answer and each agrees with itself. A recording is the truth and passes
as it is; `rules` draws every response from one world and needs no mending.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from verl_slca.sgls.backends import Backend, BackendRequest, BackendResponse
from verl_slca.sgls.backends.infer import output_of
from verl_slca.sgls.schema import CompiledSchema
from verl_slca.sgls.things import plain, spelled, things_in
from verl_slca.sgls.validation import SchemaLimitError


class CoherentBackend:
    """A `Backend` that corrects what another one says against what was said before.

    Args:
        backend: answers.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def respond(self, request: BackendRequest) -> BackendResponse:
        """The other backend's answer, corrected. Raises `SimulatorFault` as it does."""
        response = await self._backend.respond(request)
        if response.is_error or not request.state.entities:
            return response
        return replace(response, content=coherent(response.content, request))


def coherent(content: str, request: BackendRequest) -> str:
    """The response to a read as it has to be for the episode to be true; the same text where it is already.

    Args:
        content: the response as it was made up.
        request: what it answers, with all that is known.
    """
    state, action = request.state, request.state.action(request.tool)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if action.writes or not isinstance(value, (dict, list)):
        return content
    schema: CompiledSchema | None = output_of(request.tool)
    if not _is_valid(schema, value):  # a backend that keeps to no schema is not held to one here
        schema = None
    changed = _deleted_left_out(value, schema, state.removed(action))
    for shown in things_in(value, action.kind, state.subject(action, request.arguments)):
        entity = state.entity(action.scope, shown.thing)
        if entity is None or entity.deleted or shown.thing.qualifier:
            continue
        for name, old in list(shown.fields.items()):
            if isinstance(old, (dict, list)) or spelled(name) == shown.thing.id_name:
                continue
            new = entity.value(name, old, shown.fields, functools.partial(_is_alike, old))
            if new != old:
                shown.fields[name] = new
                if _is_valid(schema, value):
                    changed = True
                else:
                    shown.fields[name] = old
    return json.dumps(value, ensure_ascii=False) if changed else content


def _deleted_left_out(value: Any, schema: CompiledSchema | None, gone: set[str]) -> bool:
    """Take what was deleted out of the lists of a response; False when there was nothing to take."""
    changed = False
    for items in _lists(value) if gone else ():
        kept = [item for item in items if not _identifiers(item) & gone]
        if len(kept) < len(items):
            before, items[:] = list(items), kept
            if _is_valid(schema, value):
                changed = True
            else:
                items[:] = before
    return changed


def _identifiers(item: Any) -> set[str]:
    """All that may identify an item: itself, or its fields."""
    values = [value for _, value in plain(item)] if isinstance(item, dict) else [item]
    return {str(value) for value in values if isinstance(value, (str, int, float))}


def _lists(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, list):
        yield value
    elif isinstance(value, dict):
        for child in value.values():
            yield from _lists(child)


def _is_alike(old: Any, new: Any) -> bool:
    """Whether a known value is of the form that the response has; null stands for any."""
    if old is None or isinstance(new, bool) != isinstance(old, bool):
        return old is None
    return isinstance(new, type(old)) or (isinstance(new, (int, float)) and isinstance(old, (int, float)))


def _is_valid(schema: CompiledSchema | None, value: Any) -> bool:
    try:
        return schema is None or not schema.errors(value)
    except SchemaLimitError:
        return False
