"""`$ref` within one document: what each names, and that no chain of them runs in a circle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from verl_slca.errors import DataError

MAX_CHAIN = 32
"""Longest chain of ``$ref`` / ``allOf`` / ``anyOf`` / ... applied to one and the same value."""


def reference_targets(root: dict[str, Any], where: str) -> dict[str, Any]:
    """Each reference string of the raw document -> the value it names, or None.

    Raises:
        DataError: references beside a nested ``$id``, which would change what they mean.
    """
    base = str(root.get("$id") or "")
    refs: set[str] = set()
    anchors: dict[str, Any] = {}
    for node in _dicts(root):
        refs.update(ref for key in ("$ref", "$recursiveRef", "$dynamicRef") if isinstance(ref := node.get(key), str))
        for key in ("$anchor", "$dynamicAnchor", "$id"):
            name = node.get(key)
            if isinstance(name, str) and (key != "$id" or name.startswith("#")):
                anchors[name.removeprefix("#")] = node
            elif isinstance(name, str) and node is not root:
                anchors[""] = None  # a nested $id moves what "#..." means below it
    if refs and "" in anchors:
        raise DataError("a nested $id beside $ref is not supported; remove the $id", where)
    return {ref: _target(root, ref.removeprefix(base.rstrip("#")) if base else ref, anchors) for ref in refs}


def _target(root: dict[str, Any], ref: str, anchors: Mapping[str, Any]) -> Any:
    if ref in ("", "#"):
        return root
    if not ref.startswith("#/"):
        return anchors.get(ref[1:]) if ref.startswith("#") else None
    node: Any = root
    for part in unquote(ref[2:]).split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(part)
        elif isinstance(node, list) and part.isdecimal() and len(part) < 7 and int(part) < len(node):
            node = node[int(part)]
        else:
            return None
    return node


def check_chains(root: dict[str, Any], paths: Mapping[int, str]) -> None:
    """Return if every chain of schemas that apply to one value ends within `MAX_CHAIN` steps.

    A recursive schema is fine as long as each round goes one level down into the instance.

    Args:
        root: a document whose references are all ``#`` or ``#/$defs/...``.
        paths: ``id`` of each schema object in it -> its path, for the message.

    Raises:
        DataError: a chain is longer, or endless.
    """
    length: dict[int, int] = {}

    def chain(node: Any, start: str, depth: int) -> int:
        if not isinstance(node, dict):
            return 0
        if id(node) not in length and depth <= MAX_CHAIN:
            steps = [chain(child, start, depth + 1) for child in _in_place(root, node)]
            length[id(node)] = 1 + max(steps, default=0)
        if length.get(id(node), MAX_CHAIN + 1) > MAX_CHAIN:
            raise DataError(
                f"more than {MAX_CHAIN} $ref / allOf / anyOf steps, or a loop of them, apply to one value; break it",
                start,
            )
        return length[id(node)]

    for schema in _dicts(root):
        if id(schema) in paths:
            chain(schema, paths[id(schema)], 0)


def _in_place(root: dict[str, Any], node: dict[str, Any]) -> Iterator[Any]:
    if "$ref" in node:
        yield root if node["$ref"] == "#" else root["$defs"][node["$ref"].removeprefix("#/$defs/")]
    for key in ("allOf", "anyOf", "oneOf"):
        yield from node.get(key, ())
    for key in ("not", "if", "then", "else"):
        if key in node:
            yield node[key]
    yield from node.get("dependentSchemas", {}).values()


def _dicts(node: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object inside `node`, itself included; shared ones once."""
    stack, seen = [node], set()
    while stack:
        value = stack.pop()
        if isinstance(value, (dict, list)) and id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, dict):
                yield value
            stack.extend(value.values() if isinstance(value, dict) else value)
