"""A tool's schema as found in the wild -> one sound JSON Schema 2020-12 document, or a `DataError`.

Datasets mix drafts, OpenAPI, BFCL's Python and Java type names, and values that a parquet file has filled
with nulls. After this step there is one dialect: every `$ref` is ``#`` or ``#/$defs/rN`` of the same
document, types are JSON Schema's, patterns compile, sizes are bounded, and no chain of references can loop
without consuming a level of the instance. What is repaired is listed in `_Normaliser._repair`; everything
else that is wrong is named with its path.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from verl_slca.errors import DataError
from verl_slca.sgls.patterns import PatternError, compiled
from verl_slca.sgls.references import check_chains, reference_targets

MAX_DEPTH = 64
"""Deepest nesting of a schema document, in JSON levels; the deepest real tool seen has 18."""
MAX_NODES = 20_000
"""Most JSON values in a schema document; the largest real tool seen has about 3,000."""

JSON_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_TYPES: dict[str, str | None] = {
    **{name: name for name in JSON_TYPES},
    **dict.fromkeys(("any", "mixed", "unknown"), None),
    **dict.fromkeys(("dict", "map", "mapping", "hashmap", "hashtable", "json"), "object"),
    **dict.fromkeys(("list", "tuple", "set", "arraylist", "queue", "stack"), "array"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("int", "long", "short", "byte", "bigint"), "integer"),
    **dict.fromkeys(("str", "char", "text"), "string"),
    **dict.fromkeys(("none", "nonetype", "void"), "null"),
    "bool": "boolean",
}
_ONE = (
    "additionalProperties", "items", "contains", "not", "if", "then", "else", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_NUMBERS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
)  # fmt: skip
_DROPPED = (
    "$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment", "$defs",
    "definitions", "nullable",
)  # fmt: skip
_KNOWN = {
    *_ONE, *_MANY, *_NAMED, *_NUMBERS, *_DROPPED, "$ref", "type", "required", "enum", "const", "pattern", "format",
    "title", "description", "default", "examples", "dependencies", "dependentRequired", "additionalItems",
}  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_Shape = tuple[Callable[[Any], bool], str]
_SHAPES: dict[str, _Shape] = {
    **dict.fromkeys(_NUMBERS[:4], (_is_number, "a number")),
    **dict.fromkeys(_NUMBERS[5:], (_is_count, "a whole number of at least 0")),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    **dict.fromkeys(_MANY, (lambda value: isinstance(value, list) and value != [], "a list of schemas, not empty")),
    **dict.fromkeys(_NAMED, (lambda value: isinstance(value, dict), "an object of schemas")),
    **dict.fromkeys(("pattern", "format"), (lambda value: isinstance(value, str), "a text")),
    "enum": (lambda value: isinstance(value, list), "a list of values"),
    "required": (_is_names, "a list of property names"),
    "uniqueItems": (lambda value: isinstance(value, bool), "true or false"),
    "dependentRequired": (
        lambda value: isinstance(value, dict) and all(map(_is_names, value.values())),
        "an object of lists of property names",
    ),
}
"""What each keyword's value must be: the metaschema's rules, applied node by node as the schema is walked
(`jsonschema`'s own check takes ten times as long as everything else here together)."""


def normalised(schema: Any, where: str, *, arguments: bool) -> dict[str, Any]:
    """`schema` as a sound JSON Schema 2020-12 document; the input is changed in place and must be a fresh tree.

    Args:
        schema: decoded JSON (no shared or cyclic objects).
        where: what the schema belongs to, first part of every path in a message.
        arguments: True for a tool's parameters, whose root must accept an object.

    Raises:
        DataError: the schema cannot be compiled; names the JSON path, the value and the fix.
    """
    check_size(schema, where, MAX_DEPTH, MAX_NODES)
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise DataError(f"a schema must be a JSON object, got {_short(schema)}", where)
    if arguments:
        if schema and not _KNOWN & schema.keys() and all(isinstance(value, dict) for value in schema.values()):
            schema = {"properties": schema}
        if schema.get("type") is None:
            schema["type"] = "object"
    normaliser = _Normaliser(schema, where)
    root = normaliser.run()
    if arguments and "type" in root and "object" not in (types := _listed(root["type"])):
        raise DataError(f"arguments are always an object, but the type is {_short(types)}; use object", where)
    return root


def check_size(value: Any, where: str, max_depth: int, max_nodes: int) -> None:
    """Return if `value` is within both limits, without recursion.

    Raises:
        DataError: nested deeper, or more values.
    """
    level, nodes = [value], 0
    for _ in range(max_depth + 1):
        nodes += len(level)
        if nodes > max_nodes:
            raise DataError(f"more than {max_nodes} JSON values; make the schema smaller", where)
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise DataError(f"nested deeper than {max_depth} levels; flatten the schema", where)


class _Normaliser:
    def __init__(self, root: dict[str, Any], where: str) -> None:
        self.root = root
        self.where = where
        # Before 2019-09 a `$ref` hides everything beside it.
        self.ref_hides_siblings = any(f"draft-0{n}" in str(root.get("$schema")) for n in (3, 4, 6, 7))
        self.targets = reference_targets(root, where)
        self.seen: dict[int, str] = {}
        self.lifted: dict[int, str] = {}
        self.definitions: dict[str, Any] = {}
        self.words: set[str] = set()

    def run(self) -> dict[str, Any]:
        self.visit(self.root, self.where)
        if {"unevaluatedProperties", "patternProperties"} <= self.words:
            # jsonschema looks for evaluated properties with `re`, without a time limit.
            raise DataError(
                "unevaluatedProperties and patternProperties together are not supported; use additionalProperties",
                self.where,
            )
        if self.definitions:
            self.root["$defs"] = self.definitions
        check_chains(self.root, self.seen)
        return self.root

    def visit(self, node: Any, path: str) -> None:
        if isinstance(node, bool):
            return
        if not isinstance(node, dict):
            raise DataError(f"a schema must be an object, true or false, got {_short(node)}", path)
        if id(node) in self.seen:
            return
        self.seen[id(node)] = path
        self._repair(node, path)
        for key in _ONE:
            if key in node:
                self.visit(node[key], _joined(path, key))
        for key in _MANY:
            if key in node:
                for index, child in enumerate(node[key]):
                    self.visit(child, _joined(path, key, index))
        for key in _NAMED:
            for name, child in node.get(key, {}).items():
                self.visit(child, _joined(path, key, name))

    def _repair(self, node: dict[str, Any], path: str) -> None:
        """Bring one schema object, not its children, into the one dialect."""
        nullable = node.get("nullable") is True
        null_is_a_value = "null" in _listed(node.get("type")) or node.get("type") is None
        for key in [k for k, value in node.items() if value is None and k != "default"]:
            if key != "const" or not null_is_a_value:
                del node[key]
        self._reference(node, path)
        for key in _DROPPED:
            node.pop(key, None)
        if isinstance(node.get("properties"), dict):
            node["properties"] = {k: v for k, v in node["properties"].items() if v is not None}
        self._numbers(node)
        if "type" in node:
            self._type(node, path)
        self._enum(node)
        self._draft7_words(node, path)
        self._required(node)
        if nullable:
            _admit_null(node)
        for key, (fits, wanted) in _SHAPES.items():
            if key in node and not fits(node[key]):
                raise DataError(f"{key} must be {wanted}, got {_short(node[key])}; correct it", _joined(path, key))
        if "pattern" in node:
            self._pattern(node["pattern"], _joined(path, "pattern"))
        for pattern in _mapping(node.get("patternProperties")):
            self._pattern(pattern, _joined(path, "patternProperties"))
        self.words.update(node)

    def _reference(self, node: dict[str, Any], path: str) -> None:
        # Within one document the dynamic kinds resolve as the plain one does.
        for key in ("$recursiveRef", "$dynamicRef"):
            if key in node:
                node.setdefault("$ref", node.pop(key))
        ref = node.get("$ref")
        if ref is None:
            return
        if not isinstance(ref, str):
            raise DataError(f"$ref must be a string, got {_short(ref)}", path)
        if self.ref_hides_siblings:
            for key in [k for k in node if k not in ("$ref", "title", "description", "default")]:
                del node[key]
        target = self.targets.get(ref)
        if not isinstance(target, (dict, bool)):
            raise DataError(
                f"$ref {_short(ref)} names no schema in this document; nothing outside it is ever read, so inline it",
                _joined(path, "$ref"),
            )
        if target is self.root:
            node["$ref"] = "#"
            return
        name = self.lifted.get(id(target)) if isinstance(target, dict) else None
        if name is None:
            name = f"r{len(self.definitions)}"
            if isinstance(target, dict):
                self.lifted[id(target)] = name
            self.definitions[name] = target
            self.visit(target, _joined(self.where, *ref.removeprefix("#/").split("/")))
        node["$ref"] = f"#/$defs/{name}"

    def _numbers(self, node: dict[str, Any]) -> None:
        for key in _NUMBERS:
            if isinstance(node.get(key), str):
                node[key] = _number(node[key])
        for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(node.get(key), bool):  # draft-04
                strict = node.pop(key)
                if strict and bound in node:
                    node[key] = node.pop(bound)

    def _type(self, node: dict[str, Any], path: str) -> None:
        names = _listed(node["type"])
        types: list[str] = []
        for name in names:
            if not isinstance(name, str) or name.lower() not in _TYPES:
                near = difflib.get_close_matches(str(name)[:40].lower(), JSON_TYPES, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise DataError(
                    f"type {_short(name)} is not a JSON Schema type ({', '.join(JSON_TYPES)}){hint}",
                    _joined(path, "type"),
                )
            known = _TYPES[name.lower()]
            if known is None:
                names = []
                break
            if known not in types:
                types.append(known)
        if not names:
            del node["type"]
        else:
            node["type"] = types[0] if len(types) == 1 else types

    def _enum(self, node: dict[str, Any]) -> None:
        if node.get("enum") == []:
            del node["enum"]
        elif isinstance(node.get("enum"), list) and set(_listed(node.get("type"))) <= {"number", "integer"}:
            node["enum"] = [_number(v) if isinstance(v, str) and "type" in node else v for v in node["enum"]]

    def _draft7_words(self, node: dict[str, Any], path: str) -> None:
        if isinstance(node.get("items"), list):
            if node["items"]:
                node["prefixItems"] = node["items"]
            del node["items"]
            if "additionalItems" in node:
                node["items"] = node["additionalItems"]
        node.pop("additionalItems", None)
        for name, needed in _mapping(node.pop("dependencies", None)).items():
            kind = "dependentRequired" if isinstance(needed, (list, str)) else "dependentSchemas"
            if isinstance(beside := node.setdefault(kind, {}), dict):  # else it is refused for its shape
                beside[name] = [needed] if isinstance(needed, str) else needed

    def _required(self, node: dict[str, Any]) -> None:
        required = node.get("required")
        if isinstance(required, bool):  # draft-03 style, read by the parent
            del node["required"]
            required = None
        names = [required] if isinstance(required, str) else required
        properties = _mapping(node.get("properties"))
        flagged = [name for name, child in properties.items() if _mapping(child).get("required") is True]
        if flagged and (names is None or isinstance(names, list)):
            names = (names or []) + flagged
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return
        closed = node.get("additionalProperties") is False and not node.get("patternProperties")
        # A closed object can never hold an undeclared name: nobody could call the tool.
        node["required"] = [name for name in dict.fromkeys(names) if name in properties or not closed]

    def _pattern(self, pattern: str, path: str) -> None:
        try:
            compiled(pattern)
        except PatternError as error:
            raise DataError(f"pattern {_short(pattern)}: {error}; rewrite or remove it", path) from error


def _admit_null(node: dict[str, Any]) -> None:
    """Accept null, as OpenAPI's ``nullable: true`` asks."""
    if "type" in node:
        types = _listed(node["type"])
        node["type"] = types if "null" in types else [*types, "null"]
    elif "anyOf" in node and isinstance(node["anyOf"], list):
        node["anyOf"].append({"type": "null"})
    if isinstance(node.get("enum"), list) and None not in node["enum"]:
        node["enum"] = [*node["enum"], None]


def _number(text: str) -> Any:
    """`text` as the number it spells, or unchanged."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if abs(value) < 1e300 else text
    return text


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _joined(path: str, *parts: Any) -> str:
    return ".".join([path, *(str(part)[:60] for part in parts)])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
