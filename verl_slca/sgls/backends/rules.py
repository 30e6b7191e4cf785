"""Answers every call at once, without a model: plausible, and a function of call, world and what was done before.

The response is drawn from the tool's declared output schema, or from one inferred from its name and
description (`infer`), with a seed made of simulator seed, world, tool and canonical arguments. Fields
that share a name with an argument repeat it. Plain arithmetic is computed, not drawn. Where the episode
has changed the world, the response is made to agree (`coherence`).
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from typing import Any

from verl_slca.errors import DataError, SimulatorFault
from verl_slca.sgls.backends import BackendRequest, BackendResponse
from verl_slca.sgls.backends.arithmetic import UndefinedResultError, arithmetic_result
from verl_slca.sgls.backends.infer import output_of
from verl_slca.sgls.backends.units import asks_for_unit, in_asked_unit
from verl_slca.sgls.backends.world import World
from verl_slca.sgls.generate import generate
from verl_slca.sgls.schema import CompiledSchema, CompiledTool
from verl_slca.sgls.things import concept
from verl_slca.sgls.validation import canonical_json, whole_numbers

MAX_RESPONSE_CHARS = 400
"""A response longer than this is drawn again with required fields only."""
_MAX_ECHO_CHARS = 60


class RulesBackend:
    """The embedded default `Backend`: deterministic, no network, all state in the request."""

    async def respond(self, request: BackendRequest) -> BackendResponse:
        """The response to one call, the same for the same call in the same world and state.

        Raises:
            SimulatorFault: no value satisfies the output schema that the tool declares.
        """
        return rules_response(request)


def rules_response(request: BackendRequest) -> BackendResponse:
    """What `RulesBackend` answers, for callers without an event loop (world builders, recorders).

    Raises:
        SimulatorFault: no value satisfies the output schema that the tool declares.
    """
    tool, arguments = request.tool, whole_numbers(request.arguments)
    try:
        computed = arithmetic_result(tool.name, _operands(tool, arguments))
    except UndefinedResultError as error:
        return BackendResponse(f"Error: {error}.", is_error=True, source="rules")
    action = request.state.action(tool)
    if refusal := request.state.refusal(action, arguments):
        return BackendResponse(f"Error: {refusal}.", is_error=True, source="rules")
    declared = tool.output is not None
    schema = output_of(tool)
    echo = arguments if declared else _short(arguments)
    if computed is not None:
        echo = {**_numeric_fields(schema, arguments, computed), **arguments}
    echo = {**{concept(name, action.kind): value for name, value in echo.items()}, **echo}
    # In a shape of ours, another unit gives the same values in that unit.
    asked = arguments if declared else {name: v for name, v in arguments.items() if not asks_for_unit(name)}
    key = "\x1f".join((str(request.seed), request.world, tool.digest, canonical_json(asked)))
    seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
    content = ""
    for optional in (1.0, 0.0):
        world = World(request, arguments, echo, free=not declared)
        try:
            value = generate(schema, random.Random(seed), echo, optional, trusted=not declared, things=world)
        except DataError as error:
            raise SimulatorFault("simulator_output_schema", f"{tool.name}: {error}") from error
        if not declared:
            value = in_asked_unit(value, arguments)
        content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if not declared or len(content) <= MAX_RESPONSE_CHARS:
            break
    return BackendResponse(content, source="rules")


def _operands(tool: CompiledTool, arguments: dict[str, Any]) -> list[Any]:
    """The argument values in the order in which the tool declares them, whatever order the call has."""
    order = list(tool.parameters.schema.get("properties", {}))
    rank = {name: position for position, name in enumerate(order)}
    return [arguments[name] for name in sorted(arguments, key=lambda name: (rank.get(name, len(order)), name))]


def _short(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments worth repeating: plain values that fit on a line."""
    return {
        name: value
        for name, value in arguments.items()
        if (isinstance(value, (bool, int, float)) and math.isfinite(value))
        or (isinstance(value, str) and len(value) <= _MAX_ECHO_CHARS)
    }


def _numeric_fields(schema: CompiledSchema, arguments: dict[str, Any], computed: float) -> dict[str, float]:
    """`computed` under the one numeric field of the output that is not an argument; {} when that is unclear."""
    properties = schema.schema.get("properties", {})
    names = [
        name
        for name, child in properties.items()
        if name not in arguments and isinstance(child, dict) and child.get("type") in ("number", "integer")
    ]
    return {names[0]: computed} if len(names) == 1 else {}
