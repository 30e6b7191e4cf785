"""A schema and a seed -> a value that is valid under the schema: arguments for tests, responses for rules.

The draw is plausible rather than uniform: names of fields say what their values look like (`samples`), a response
repeats the arguments it was asked with, and objects that are things of a world (`Things`) look alike wherever shown.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from verl_slca.errors import DataError
from verl_slca.sgls import patterns, scalars
from verl_slca.sgls.conjunction import DeadEndError, merged
from verl_slca.sgls.explain import cut_json
from verl_slca.sgls.schema import CompiledSchema, compile_parameters
from verl_slca.sgls.validation import SchemaLimitError

ATTEMPTS = 24
ECHO = "x-echo"
"""Marks a property that is present only when an argument of its name was given."""
COUNT = "x-count"
"""How many items are drawn for an array, where the schema itself allows any number."""
_MAX_DEPTH = 6
"""Below it only what a schema requires is drawn, so that a recursive one comes to an end."""
_MAX_NESTING = 24
_MAX_ITEMS = 1000
_FEW = 2
"""Items of an array that may have any number, and how many more than it must have one gets."""
_FILLED_SHARE = 0.9
"""How often a value that may be null is not."""


class Thing(Protocol):
    """An object that is one thing of a world.

    Attributes:
        rng: source of the choices inside of it.
        echo: values that its fields repeat, by name.
    """

    rng: random.Random
    echo: Mapping[str, Any]

    def field(self, draw: Draw, name: str, node: Any, depth: int, siblings: Mapping[str, Any]) -> Any:
        """The value of its field called `name`, valid under `node`; `siblings` are the schemas beside it."""

    def finish(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """The object, once all its fields are there."""


class Things(Protocol):
    """The world behind a response: which objects of it are things, and what a list of them holds."""

    def thing(self, draw: Draw, name: str, properties: Mapping[str, Any], depth: int) -> Thing | None:
        """The thing that an object under `name` shows, None when it shows none."""

    def listed(self, draw: Draw, name: str, node: Mapping[str, Any], depth: int) -> list[Any] | None:
        """What an array under `name`, of the schema `node`, holds; None when it is no list of things asked for."""


def generate_arguments(schema: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Arguments that are valid under a tool's parameters schema; the same for the same seed.

    Args:
        schema: as declared; it is normalised as `compile_tool` does.
        seed: varies the values and which optional arguments are given.

    Raises:
        DataError: the schema does not compile, or no valid arguments were found.

    Example:
        >>> generate_arguments({"properties": {"n": {"type": "integer", "enum": [7]}}, "required": ["n"]}, 0)
        {'n': 7}
    """
    value = generate(compile_parameters(schema), random.Random(seed), optional=0.5)
    if not isinstance(value, dict):
        raise DataError(f"arguments must be an object, but the schema led to {cut_json(value)}", "parameters")
    return value


def generate(
    schema: CompiledSchema,
    rng: random.Random,
    echo: Mapping[str, Any] | None = None,
    optional: float = 1.0,
    trusted: bool = False,
    things: Things | None = None,
) -> Any:
    """A value that is valid under `schema`.

    Args:
        schema: what the value must satisfy.
        rng: source of all choices.
        echo: values by property name; used wherever a property of that name accepts its value.
        optional: probability that an optional property is present, at first; later attempts vary it.
        trusted: the schema is ours and every draw from it is valid: skip the check, which costs as much
            as the draw.
        things: the world that the value shows; None draws every object on its own.

    Raises:
        DataError: no valid value in `ATTEMPTS` tries: the schema may contradict itself.
    """
    problem = "it allows no finite value"
    for attempt in range(ATTEMPTS):
        chance = (optional, 0.0, 1.0, 0.5)[attempt % 4]
        if attempt >= ATTEMPTS // 2:  # better a response that contradicts an earlier one than none
            things = None
        try:
            value = Draw(schema, rng, echo or {}, chance, things).value(schema.schema, "", 0)
            errors = [] if trusted else schema.errors(value)
        except (DeadEndError, SchemaLimitError, OverflowError):
            continue
        if not errors:
            return value
        problem = str(errors[0])
    raise DataError(f"no valid value found in {ATTEMPTS} tries ({problem}); simplify the schema", "schema")


class Draw:
    """One attempt at a value: walks the schema and chooses.

    Attributes:
        schema: the document that is drawn from.
        rng: source of the choices.
        echo: values by property name.
    """

    def __init__(
        self,
        schema: CompiledSchema,
        rng: random.Random,
        echo: Mapping[str, Any],
        optional: float,
        things: Things | None,
    ) -> None:
        self.schema = schema
        self.rng = rng
        self.echo = echo
        self._optional = optional
        self._things = things

    def value(self, node: Any, name: str, depth: int) -> Any:
        """A value for the field called `name`, under the schema `node`.

        Raises:
            DeadEndError: these choices lead nowhere.
        """
        if depth > _MAX_NESTING:
            raise DeadEndError
        if not (isinstance(node, dict) and _SIMPLE.issuperset(node)):
            node = self.flat(node, depth)
        if name in self.echo and self.schema.accepts(self.echo[name], node):
            return self.echo[name]
        if "const" in node:
            return node["const"]
        if "enum" in node:
            if not node["enum"]:
                raise DeadEndError
            return self.rng.choice(node["enum"])
        return _DRAWN[self._type(node)](self, node, name, depth)

    def flat(self, node: Any, depth: int) -> dict[str, Any]:
        """`node` with references, combinators and alternatives folded into one schema object."""
        if node is False:
            raise DeadEndError
        flat: dict[str, Any] = {} if node is True else node
        while parts := [key for key in ("$ref", "allOf", "anyOf", "oneOf") if key in flat]:
            rest = {key: value for key, value in flat.items() if key not in parts}
            for key in parts:
                if key == "$ref":
                    rest = merged(rest, self.schema.resolve(flat[key]))
                elif key == "allOf":
                    for part in flat[key]:
                        rest = merged(rest, part)
                else:
                    rest = merged(rest, self._branch(flat[key], depth))
            flat = rest
        return flat

    def _type(self, node: Mapping[str, Any]) -> str:
        types = node.get("type")
        if isinstance(types, str):
            return types
        if isinstance(types, list):
            filled = [kind for kind in types if kind != "null"]
            if not types:
                raise DeadEndError
            return str(self.rng.choice(filled) if filled and self.rng.random() < _FILLED_SHARE else types[-1])
        return next((kind for kind, keys in _IMPLIED.items() if keys & node.keys()), "string")

    def _branch(self, branches: list[Any], depth: int) -> Any:
        usable = [branch for branch in branches if branch is not False]
        if not usable:
            raise DeadEndError
        filled = [branch for branch in usable if branch is True or branch.get("type") != "null"]
        if depth >= _MAX_DEPTH:
            return min(usable, key=lambda branch: len(cut_json(branch, 10_000)) if branch is not True else 0)
        return self.rng.choice(filled if filled and self.rng.random() < _FILLED_SHARE else usable)

    def _array(self, node: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        prefix, contained = node.get("prefixItems", []), node.get("contains")
        items = node.get("items", True if contained is None else contained)
        low = int(node.get("minItems", node.get(COUNT, 0)))
        high = int(node.get("maxItems", node.get(COUNT, max(low, _FEW))))
        if items is False:
            high = min(high, len(prefix))
        if low > _MAX_ITEMS or high < low:
            raise DeadEndError
        if self._things is not None and (listed := self._things.listed(self, name, node, depth)) is not None:
            return listed
        sparse = depth >= _MAX_DEPTH or (items is True and not prefix)
        count = low if sparse and low else self.rng.randint(max(low, min(high, not sparse)), min(high, low + _FEW))
        count = max(count, min(len(prefix), high), min(high, 1) if "contains" in node else 0)
        drawn: list[Any] = []
        for index in range(count):
            schema = prefix[index] if index < len(prefix) else items
            if contained is not None and index == len(prefix):
                schema = contained
            value = self.value(schema, name.removesuffix("s"), depth + 1)
            for _ in range(9):
                if not (node.get("uniqueItems") and value in drawn):
                    break
                value = self.value(schema, name.removesuffix("s"), depth + 1)
            drawn.append(value)
        return drawn

    def _object(self, node: Mapping[str, Any], name: str, depth: int) -> dict[str, Any]:
        thing = None
        if self._things is not None:
            thing = self._things.thing(self, name, node.get("properties", {}), depth)
        if thing is None:
            return self._fields(node, depth, None)
        before = self.rng, self.echo
        self.rng, self.echo = thing.rng, thing.echo
        try:
            return thing.finish(self._fields(node, depth, thing))
        finally:
            self.rng, self.echo = before

    def _fields(self, node: Mapping[str, Any], depth: int, thing: Thing | None) -> dict[str, Any]:
        properties, required = node.get("properties", {}), node.get("required", ())
        chance = self._optional if depth < _MAX_DEPTH else 0.0
        drawn: dict[str, Any] = {}
        for key, child in properties.items():
            needed = key in required
            if not needed and isinstance(child, dict) and child.get(ECHO):
                if key in self.echo:
                    drawn[key] = self.echo[key]
                continue
            if not needed and (child is False or self.rng.random() >= chance):
                continue
            try:
                if thing is None:
                    drawn[key] = self.value(child, key, depth + 1)
                else:
                    drawn[key] = thing.field(self, key, child, depth + 1, properties)
            except DeadEndError:
                if needed:
                    raise
        if "minProperties" in node or "patternProperties" in node or any(key not in drawn for key in required):
            self._add_undeclared(drawn, node, depth)
        return drawn

    def _add_undeclared(self, drawn: dict[str, Any], node: Mapping[str, Any], depth: int) -> None:
        """Add the properties that an object must have though they are declared by pattern or number only."""
        properties, extra = node.get("properties", {}), node.get("additionalProperties", True)
        names = [key for key in node.get("required", ()) if key not in properties]
        wanted = min(int(node.get("minProperties", 0)), 100)
        for pattern, child in node.get("patternProperties", {}).items():
            for _ in range(max(wanted - len(drawn), 0 if drawn else 1)):
                key = patterns.sample(pattern, self.rng)
                if key is not None:
                    drawn[key] = self.value(child, key, depth + 1)
        names += [f"field_{i}" for i in range(wanted - len(drawn) - len(names))]
        for key in names:
            drawn[key] = self.value(extra, key, depth + 1)


_DRAWN: dict[str, Callable[[Draw, Mapping[str, Any], str, int], Any]] = {
    "null": lambda draw, node, name, depth: None,
    "boolean": lambda draw, node, name, depth: draw.rng.random() < 0.5,
    "integer": lambda draw, node, name, depth: int(scalars.number(node, name, draw.rng, whole=True)),
    "number": lambda draw, node, name, depth: scalars.number(node, name, draw.rng, whole=False),
    "string": lambda draw, node, name, depth: scalars.text(node, name, draw.rng),
    "array": Draw._array,
    "object": Draw._object,
}
_SIMPLE = frozenset(("type", "format", "enum", "const", "minimum", "maximum", "properties", "required", "items", COUNT))
"""Keywords of a schema in which nothing has to be folded."""
_IMPLIED = {
    "object": {"properties", "required", "additionalProperties", "minProperties", "patternProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"},
    "string": {"pattern", "format", "minLength", "maxLength"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}
