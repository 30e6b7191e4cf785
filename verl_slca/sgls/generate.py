"""A schema and a seed -> a value that is valid under the schema: arguments for tests, responses for rules.

The draw is plausible rather than uniform: names of fields say what their values look like (`samples`), and
a response repeats the arguments it was asked with.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from verl_slca.errors import DataError
from verl_slca.sgls import patterns, samples
from verl_slca.sgls.explain import cut_json
from verl_slca.sgls.schema import CompiledSchema, compile_parameters
from verl_slca.sgls.validation import SchemaLimitError

ATTEMPTS = 24
ECHO = "x-echo"
"""Marks a property that is present only when an argument of its name was given."""
COUNT = "x-count"
"""How many items are drawn for an array, where the schema itself allows any number."""
_MAX_DEPTH = 6
_MAX_LENGTH = 2000


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
) -> Any:
    """A value that is valid under `schema`.

    Args:
        schema: what the value must satisfy.
        rng: source of all choices.
        echo: values by property name; used wherever a property of that name accepts its value.
        optional: probability that an optional property is present, at first; later attempts vary it.
        trusted: the schema is ours and every draw from it is valid: skip the check, which costs as much
            as the draw.

    Raises:
        DataError: no valid value in `ATTEMPTS` tries: the schema may contradict itself.
    """
    problem = "it allows no finite value"
    for attempt in range(ATTEMPTS):
        chance = (optional, 0.0, 1.0, 0.5)[attempt % 4]
        try:
            value = _Draw(schema, rng, echo or {}, chance).value(schema.schema, "", 0)
            errors = [] if trusted else schema.errors(value)
        except (_DeadEndError, SchemaLimitError, OverflowError):
            continue
        if not errors:
            return value
        problem = str(errors[0])
    raise DataError(f"no valid value found in {ATTEMPTS} tries ({problem}); simplify the schema", "schema")


class _DeadEndError(Exception):
    """This draw leads nowhere; another may."""


class _Draw:
    def __init__(self, schema: CompiledSchema, rng: random.Random, echo: Mapping[str, Any], optional: float) -> None:
        self.schema = schema
        self.rng = rng
        self.echo = echo
        self.optional = optional

    def value(self, node: Any, name: str, depth: int) -> Any:
        if depth > 24:
            raise _DeadEndError
        node = self.flat(node, depth)
        if name in self.echo and self.schema.accepts(self.echo[name], node):
            return self.echo[name]
        if "const" in node:
            return node["const"]
        if "enum" in node:
            if not node["enum"]:
                raise _DeadEndError
            return self.rng.choice(node["enum"])
        return getattr(self, f"_{self.kind(node)}")(node, name, depth)

    def kind(self, node: Mapping[str, Any]) -> str:
        types = node.get("type")
        if isinstance(types, list):
            filled = [kind for kind in types if kind != "null"]
            if not types:
                raise _DeadEndError
            return self.rng.choice(filled) if filled and self.rng.random() < 0.9 else types[-1]
        if isinstance(types, str):
            return types
        for kind, keys in _IMPLIED.items():
            if keys & node.keys():
                return kind
        return "string"

    def flat(self, node: Any, depth: int) -> dict[str, Any]:
        """`node` with references, combinators and alternatives folded into one schema object."""
        if node is False:
            raise _DeadEndError
        flat = {} if node is True else node
        while parts := [key for key in ("$ref", "allOf", "anyOf", "oneOf") if key in flat]:
            rest = {key: value for key, value in flat.items() if key not in parts}
            for key in parts:
                if key == "$ref":
                    rest = _merged(rest, self.schema.resolve(flat[key]))
                elif key == "allOf":
                    for part in flat[key]:
                        rest = _merged(rest, part)
                else:
                    rest = _merged(rest, self.branch(flat[key], depth))
            flat = rest
        return flat

    def branch(self, branches: list[Any], depth: int) -> Any:
        usable = [branch for branch in branches if branch is not False]
        if not usable:
            raise _DeadEndError
        filled = [branch for branch in usable if branch is True or branch.get("type") != "null"]
        if depth >= _MAX_DEPTH:  # the plain alternative, so that a recursive schema comes to an end
            return min(usable, key=lambda branch: len(cut_json(branch, 10_000)) if branch is not True else 0)
        return self.rng.choice(filled if filled and self.rng.random() < 0.9 else usable)

    def _null(self, node: Mapping[str, Any], name: str, depth: int) -> None:
        return None

    def _boolean(self, node: Mapping[str, Any], name: str, depth: int) -> bool:
        return self.rng.random() < 0.5

    def _integer(self, node: Mapping[str, Any], name: str, depth: int) -> int:
        return int(self._bounded(node, name, whole=True))

    def _number(self, node: Mapping[str, Any], name: str, depth: int) -> float:
        return self._bounded(node, name, whole=False)

    def _bounded(self, node: Mapping[str, Any], name: str, whole: bool) -> float:
        low, high, decimals = samples.number_range(name)
        floor = max(node.get("minimum", -math.inf), node.get("exclusiveMinimum", -math.inf))
        ceiling = min(node.get("maximum", math.inf), node.get("exclusiveMaximum", math.inf))
        low, high = max(low, floor), min(high, ceiling)
        if low >= high or -math.inf < floor <= ceiling < math.inf:
            low = floor if floor > -math.inf else ceiling - 100
            high = ceiling if ceiling < math.inf else floor + 100
        step = node.get("multipleOf", 1 if whole else None)
        if step:
            step = math.ceil(step) if whole else step
            first, last = math.ceil(low / step), math.floor(high / step)
            first += first * step == node.get("exclusiveMinimum")
            last -= last * step == node.get("exclusiveMaximum")
            if first > last:
                raise _DeadEndError
            return self.rng.randint(first, last) * step
        if 0 < high - low < 1:
            decimals = max(decimals, 2 - math.floor(math.log10(high - low)))
        value = min(max(round(self.rng.uniform(low, high), decimals), low), high)
        return value if decimals else int(value)

    def _string(self, node: Mapping[str, Any], name: str, depth: int) -> str:
        low, high = int(node.get("minLength", 0)), int(node.get("maxLength", _MAX_LENGTH))
        if not low <= high or low > 10 * _MAX_LENGTH:
            raise _DeadEndError
        if "pattern" in node:
            text = patterns.sample(node["pattern"], self.rng, low, high)
            if text is None:
                raise _DeadEndError
            return text
        text = samples.formatted(node["format"], self.rng) if "format" in node else None
        if text is not None:
            return text
        text = samples.text(name, self.rng)
        while len(text) < low:
            text += f" {samples.text('', self.rng)}"
        return text[:high].strip() if low == 0 else text[:high]

    def _array(self, node: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        low = int(node.get("minItems", node.get(COUNT, 0)))
        high = int(node.get("maxItems", node.get(COUNT, max(low, 2))))
        prefix = node.get("prefixItems", [])
        items = node.get("items", node.get("contains", True))
        if items is False:
            high = min(high, len(prefix))
        if low > 1000 or high < low:
            raise _DeadEndError
        deep = depth >= _MAX_DEPTH or (items is True and not prefix)
        count = low if deep and low else self.rng.randint(max(low, min(high, 0 if deep else 1)), min(high, low + 2))
        count = max(count, min(len(prefix), high), min(high, 1) if "contains" in node else 0)
        singular = name.removesuffix("s")
        drawn: list[Any] = []
        for index in range(count):
            if index < len(prefix):
                schema = prefix[index]
            else:
                schema = node["contains"] if index == len(prefix) and "contains" in node else items
            for _ in range(10):
                value = self.value(schema, singular, depth + 1)
                if not (node.get("uniqueItems") and value in drawn):
                    break
            drawn.append(value)
        return drawn

    def _object(self, node: Mapping[str, Any], name: str, depth: int) -> dict[str, Any]:
        properties = node.get("properties", {})
        required = set(node.get("required", ()))
        chance = self.optional if depth < _MAX_DEPTH else 0.0
        drawn: dict[str, Any] = {}
        for key, child in properties.items():
            if key in required:
                drawn[key] = self.value(child, key, depth + 1)
            elif isinstance(child, dict) and child.get(ECHO):
                if key in self.echo:
                    drawn[key] = self.echo[key]
            elif child is not False and self.rng.random() < chance:
                try:
                    drawn[key] = self.value(child, key, depth + 1)
                except _DeadEndError:
                    continue
        extra = node.get("additionalProperties", True)
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
        return drawn


_IMPLIED = {
    "object": {"properties", "required", "additionalProperties", "minProperties", "patternProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"},
    "string": {"pattern", "format", "minLength", "maxLength"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}
_LOWEST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_HIGHEST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


def _merged(left: Mapping[str, Any], right: Any) -> dict[str, Any]:
    """A schema close to the conjunction of two; the full check comes after the draw."""
    if right is False:
        raise _DeadEndError
    merged = dict(left)
    for key, value in ({} if right is True else right).items():
        if key not in merged:
            merged[key] = value
        elif key == "properties":
            both = {
                name: {"allOf": [merged[key][name], child]} if name in merged[key] else child
                for name, child in value.items()
            }
            merged[key] = {**merged[key], **both}
        elif key == "required":
            merged[key] = list(dict.fromkeys([*merged[key], *value]))
        elif key == "enum":
            merged[key] = [item for item in merged[key] if item in value]
        elif key == "type":
            merged[key] = _common_types(merged[key], value)
        elif key in _LOWEST:
            merged[key] = min(merged[key], value)
        elif key in _HIGHEST:
            merged[key] = max(merged[key], value)
        elif key in ("$ref", "allOf", "anyOf", "oneOf"):
            merged["allOf"] = [*merged.get("allOf", []), {key: value}]
        else:
            merged[key] = value
    return merged


def _common_types(left: Any, right: Any) -> Any:
    sets = [{kind} if isinstance(kind, str) else set(kind) for kind in (left, right)]
    for one, other in (sets, sets[::-1]):
        if "number" in one and "integer" in other:
            one.add("integer")
    both = sorted(sets[0] & sets[1])
    if not both:
        raise _DeadEndError
    return both[0] if len(both) == 1 else both
