"""A tool declaration -> a `CompiledTool` that says what is wrong with the arguments of a call.

Compiling is where bad data is found: a schema that cannot be used raises `DataError` with tool and JSON
path, when a dataset is prepared. After that, `errors` always ends, with a verdict or with
`SchemaLimitError`, whatever the policy writes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

from referencing.jsonschema import EMPTY_REGISTRY

from verl_slca.errors import DataError
from verl_slca.sgls.explain import ArgumentError, cut_json, explained
from verl_slca.sgls.normalise import normalised
from verl_slca.sgls.validation import FORMATS, BoundedValidator, SchemaLimitError, canonical_json, start_budget

CACHED_TOOLS = 4096
"""Compiled tools kept; the least recently used goes first. All of Toucan has fewer distinct ones."""
MAX_ARGUMENT_DEPTH = 32
MAX_ARGUMENT_VALUES = 10_000
MAX_ERRORS = 64
MAX_NAME_CHARS = 256

_PARAMETERS = ("parameters", "inputSchema", "input_schema")
_JSON_TYPES: dict[type, tuple[str, ...]] = {str: ("string",), int: ("integer", "number"), bool: ("boolean",)}
_OUTPUT = ("outputSchema", "output_schema", "response", "returns")


class CompiledSchema:
    """One normalised schema, ready to judge instances.

    Attributes:
        schema: the JSON Schema 2020-12 document; not to be changed.
    """

    __slots__ = ("_validator", "schema")

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self._validator = BoundedValidator(schema, registry=EMPTY_REGISTRY, format_checker=FORMATS)

    def errors(self, instance: Any) -> list[ArgumentError]:
        """What is wrong with `instance`, ordered by field; empty when it is valid.

        Raises:
            SchemaLimitError: no verdict within the limits on work and time.
        """
        too_big = _size_error(instance)
        if too_big:
            return [too_big]
        start_budget()
        try:
            return explained(islice(self._validator.iter_errors(instance), MAX_ERRORS))
        except RecursionError as error:
            raise SchemaLimitError("schema and value nest too deeply together") from error

    def accepts(self, instance: Any, subschema: Any) -> bool:
        """Whether `instance` is valid under `subschema`, a part of this schema."""
        if isinstance(subschema, dict) and len(subschema) == 1 and type(instance) in _JSON_TYPES:
            kinds = subschema.get("type")
            if kinds is not None:  # most fields of most responses: no validator is needed
                return any(
                    kind in _JSON_TYPES[type(instance)] for kind in ([kinds] if isinstance(kinds, str) else kinds)
                )
        start_budget()
        try:
            return bool(self._validator.evolve(schema=subschema).is_valid(instance))
        except (RecursionError, SchemaLimitError):
            return False

    def resolve(self, ref: str) -> Any:
        """The schema that a normalised ``$ref`` names."""
        return self.schema if ref == "#" else self.schema["$defs"][ref.removeprefix("#/$defs/")]


class CompiledTool:
    """One tool: what it is called with and what it returns.

    Attributes:
        name: as the policy must write it.
        description: "" when there is none.
        parameters: schema of the arguments.
        output: declared schema of the response, None when the tool declares none.
        digest: hash of the declaration, the same whatever the order of its keys.
        read_only: what its MCP annotations say of it, None when they say nothing.
    """

    __slots__ = ("description", "digest", "name", "output", "parameters", "read_only")

    def __init__(
        self,
        name: str,
        description: str,
        parameters: CompiledSchema,
        output: CompiledSchema | None,
        digest: str,
        read_only: bool | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters
        self.output = output
        self.digest = digest
        self.read_only = read_only

    def errors(self, arguments: Any) -> list[ArgumentError]:
        """What is wrong with the arguments of a call, ordered by field; empty when they are valid.

        Raises:
            SchemaLimitError: no verdict within the limits on work and time.
        """
        return self.parameters.errors(arguments)


def compile_tool(tool: Mapping[str, Any]) -> CompiledTool:
    """The compiled form of one tool declaration, cached by content.

    Args:
        tool: ``{"type": "function", "function": {...}}``, or the inner object alone, or an MCP tool:
            ``name``, ``description``, the arguments' schema under ``parameters``, ``inputSchema`` or
            ``input_schema``, and optionally the response's under ``outputSchema``, ``output_schema``,
            ``response`` or ``returns``, and MCP's ``annotations``.

    Raises:
        DataError: naming tool, JSON path, problem and fix.

    Example:
        >>> tool = compile_tool({"name": "add", "parameters": {"properties": {"a": {"type": "float"}}}})
        >>> [str(error) for error in tool.errors({"a": "x"})]
        ['a: must be number, got "x"']
    """
    function = tool.get("function", tool) if isinstance(tool, Mapping) else tool
    if not isinstance(function, Mapping):
        raise DataError(f"a tool must be a JSON object, got {cut_json(function)}", "tool")
    name = function.get("name")
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME_CHARS:
        raise DataError(f"name must be a text of 1 to {MAX_NAME_CHARS} characters, got {cut_json(name)}", "tool")
    outer = {key: tool[key] for key in (*_OUTPUT, "annotations") if key in tool and key not in function}
    try:
        text = json.dumps({**outer, **function}, default=_plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"not plain JSON: {str(error)[:200]}", f"tool {name!r}") from error
    return _compiled(text)


def compile_parameters(schema: Mapping[str, Any]) -> CompiledSchema:
    """The compiled form of an arguments' schema alone. Raises `DataError` as `compile_tool`."""
    return compile_tool({"name": "tool", "parameters": schema}).parameters


def _plain(value: Any) -> Any:
    """Rows read through Arrow or OmegaConf hold mappings and arrays that are not dict and list."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a JSON value")


@functools.lru_cache(maxsize=CACHED_TOOLS)
def _compiled(text: str) -> CompiledTool:
    function = json.loads(text)
    where = f"tool {function['name']!r}"
    description = function.get("description") or ""
    if not isinstance(description, str):
        raise DataError(f"description must be text, got {cut_json(description)}", where)
    key = next((key for key in _PARAMETERS if function.get(key) is not None), "parameters")
    digest = hashlib.sha256(canonical_json(function).encode()).hexdigest()[:32]
    parameters = normalised(function.get(key), f"{where}: {key}", arguments=True)
    # A text under "returns" or "response" is documentation, not a schema.
    declared = next((key for key in _OUTPUT if isinstance(function.get(key), dict)), None)
    output = None
    if declared:
        output = CompiledSchema(normalised(function[declared], f"{where}: {declared}", arguments=False))
    read_only = _read_only(function.get("annotations"))
    return CompiledTool(function["name"], description, CompiledSchema(parameters), output, digest, read_only)


def _read_only(annotations: Any) -> bool | None:
    hints = annotations if isinstance(annotations, dict) else {}
    if isinstance(hints.get("readOnlyHint"), bool):
        return bool(hints["readOnlyHint"])
    return False if isinstance(hints.get("destructiveHint"), bool) else None  # means something for writers only


def _size_error(instance: Any) -> ArgumentError | None:
    """The error for arguments that no API would read: too deep, too many values, a number JSON lacks."""
    level, count = [instance], 0
    for _ in range(MAX_ARGUMENT_DEPTH + 1):
        count += len(level)
        if count > MAX_ARGUMENT_VALUES:
            return ArgumentError("", "", f"must hold at most {MAX_ARGUMENT_VALUES} values")
        children: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                children.extend(value.values())
            elif isinstance(value, list):
                children.extend(value)
            elif isinstance(value, float) and not math.isfinite(value):
                return ArgumentError("", str(value), "must hold finite numbers only")
            elif isinstance(value, int) and value.bit_length() > 1000:
                return ArgumentError("", "", "must hold numbers below 1e300 only")
        if not children:
            return None
        level = children
    return ArgumentError("", "", f"must be nested at most {MAX_ARGUMENT_DEPTH} levels deep")
