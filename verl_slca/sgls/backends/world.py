"""The world behind `rules`: every thing has one set of values, whatever tool shows it.

A value is a function of (seed, world, server, kind and identifier of the thing, field), drawn under the schemas that
all tools of the episode declare for the field; over it lies what the episode has done and seen (`state`). So a list, a
search and a read of one thing agree without anything being kept, in every rollout of a group.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import re
import threading
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from verl_slca.sgls.backends import BackendRequest
from verl_slca.sgls.backends.listing import Listing
from verl_slca.sgls.conjunction import DeadEndError, merged
from verl_slca.sgls.entity import flags
from verl_slca.sgls.generate import Draw
from verl_slca.sgls.samples import tokens
from verl_slca.sgls.things import GENERIC_IDS, Thing, concept, identifier, is_region, kind_under, spelled
from verl_slca.sgls.verbs import EFFECT_OF_VERB

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_DRAWS = 20
"""Identifiers that are tried until one is free."""
_PLAIN_TYPES = {"string", "integer", "number"}


class FieldRandom(random.Random):
    """A source of choices that starts over at a new seed for the price of an assignment.

    The generator is SplitMix64 (Steele et al., OOPSLA 2014).

    Attributes:
        position: its state, or the seed to start from.
    """

    position = 0

    def random(self) -> float:
        """The next number of [0, 1)."""
        return (self._next() >> 11) * 2.0**-53

    def choice(self, seq: SupportsLenAndGetItem[Any]) -> Any:
        """One of `seq`."""
        return seq[self._next() % len(seq)]

    def randint(self, a: int, b: int) -> int:
        """A whole number from `a` to `b`."""
        return a + self.getrandbits(128) % (b - a + 1) if b - a > _MASK else a + self._next() % (b - a + 1)

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` random bits."""
        bits, have = 0, 0
        while have < k:
            bits, have = bits << 64 | self._next(), have + 64
        return bits >> (have - k)

    def _next(self) -> int:
        self.position = z = (self.position + _STEP) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)


class _Thread(threading.local):
    """What one thread draws fields with: making a `random.Random` costs more than a draw."""

    def __init__(self) -> None:
        self.rng = FieldRandom(0)


_THREAD = _Thread()


class World:
    """The world as one call shows it: the `generate.Things` of one response.

    Args:
        request: the call.
        arguments: of it, whole numbers as integers.
        echo: those of them that are repeated.
        free: the shape of the response is ours, so that it can hold all that is known of a thing.

    Attributes:
        state: what the episode has done and seen.
        action: what the call does.
        arguments: of the call.
        free: as given.
    """

    def __init__(
        self, request: BackendRequest, arguments: Mapping[str, Any], echo: Mapping[str, Any], free: bool
    ) -> None:
        self.state, self.action = request.state, request.state.action(request.tool)
        self.arguments, self.free = arguments, free
        self._catalog = request.state.catalog
        self._echo = dict(echo)
        if status := "deleted" if self.action.effect == "delete" else self.action.status:
            self._echo.setdefault("status", status)
        self._key = f"{request.seed}\x1f{request.world}"
        self._server = _server(request.tool.name)
        self._subject = self.state.subject(self.action, arguments)
        self._next: ShownThing | None = None
        self._is_listed = False

    def thing(self, draw: Draw, name: str, properties: Mapping[str, Any], depth: int) -> ShownThing | None:
        """The thing that an object under `name` shows, None when it shows none."""
        if self._next is not None:
            shown, self._next = self._next, None
            return shown
        about, subject = self.action.kind, self._subject
        kind = kind_under(name, about)
        if (subject or self.action.effect == "create") and self._is_subject(kind, properties):
            if subject is None:
                return self._made(draw, properties, depth)
            id_name = identifier(_plain_names(properties), subject.kind, by_name=False)
            id_name = id_name or next((key for key in properties if spelled(key) == subject.id_name), "")
            return ShownThing(self, subject, id_name, subject.id, self._echo)
        if depth == 0 and self.action.effect == "list" and any(map(_is_array, properties.values())):
            return None
        id_name = identifier(_plain_names(properties), kind, by_name=depth > 0)
        if not id_name and (nouns := self._catalog.nouns):
            news = (key for key in properties if spelled(key) in nouns and key not in self.arguments)
            id_name = next(news, "")
            kind = spelled(id_name)
        if not id_name:
            return None
        thing, value = self._identified(draw, kind, id_name, properties[id_name], depth)
        return ShownThing(self, thing, id_name, value, self._echo if depth == 0 else {})

    def listed(self, draw: Draw, name: str, node: Mapping[str, Any], depth: int) -> list[Any] | None:
        """What an array under `name` holds; None when it is no list of things asked for."""
        items, about = node.get("items"), self.action.kind
        if self._is_listed or self.action.effect != "list" or not isinstance(items, dict) or "prefixItems" in node:
            return None
        properties = draw.flat(items, depth).get("properties", {})
        id_name = identifier(_plain_names(properties), about)
        if not id_name:
            return None
        self._is_listed = True
        return Listing(self, draw, node, properties, id_name, depth + 1).items()

    def item(
        self,
        draw: Draw,
        thing: Thing,
        id_name: str,
        value: Any,
        echo: Mapping[str, Any],
        fresh: bool,
        node: Any,
        depth: int,
    ) -> dict[str, Any]:
        """The object that shows one given thing; see `ShownThing`."""
        self._next = ShownThing(self, thing, id_name, value, echo, fresh)
        item = draw.value(node, "", depth)
        self._next = None
        if not isinstance(item, dict):
            raise DeadEndError
        return item

    def members(self, draw: Draw, place: str, node: Any, id_name: str, depth: int) -> Iterator[tuple[Thing, Any]]:
        """The things, with their identifiers, that stand in a list asked for under certain conditions."""
        kind, words = self.action.kind, spelled(id_name)
        node, name, seed = self._id_node(kind, node), _sample_name(kind, id_name), self.seed(Thing(kind, place))
        for number in itertools.count():
            value = self.drawn(draw, seed ^ _name_seed(str(number)), {}, node, name, depth)
            yield Thing(kind, str(value), words), value

    def seed(self, thing: Thing) -> int:
        """What all values of a thing are drawn from."""
        server = "" if self._server == thing.kind else self._server
        key = f"{self._key}\x1f{server}\x1f{thing.kind}\x1f{thing.id}\x1f{thing.qualifier}"
        return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "big")

    def drawn(self, draw: Draw, seed: int, echo: Mapping[str, Any], node: Any, name: str, depth: int) -> Any:
        """A value drawn with `seed` in place of the call's own choices."""
        rng = _THREAD.rng
        before = draw.rng, draw.echo, rng.position
        draw.rng, draw.echo, rng.position = rng, echo, seed
        try:
            return draw.value(node, name, depth)
        finally:
            draw.rng, draw.echo, rng.position = before

    def field_node(self, kind: str, about: str, node: Any) -> Any:
        """The schema of a field: what every tool takes for it, as far as that is one thing."""
        if self._catalog.field_schemas:
            for other in self._catalog.field_schemas.get((kind, about), ()):
                node = _conjunction(node, other)
        return node

    def _is_subject(self, kind: str, properties: Mapping[str, Any]) -> bool:
        """Whether an object of that kind is what the call is about, not a wrapper around it."""
        about = self.action.kind
        if kind != about and (self._subject is None or kind != self._subject.kind):
            return False
        return not any(kind_under(key, about) == about and _is_object(child) for key, child in properties.items())

    def _made(self, draw: Draw, properties: Mapping[str, Any], depth: int) -> ShownThing | None:
        """The thing that this call creates, under an identifier that no other has; None where it shows none."""
        kind, names = self.action.kind, _plain_names(properties)
        id_name = identifier(names, kind, by_name=False)
        if not id_name:
            news = (key for key in names if key not in self.arguments)
            id_name = next((key for key in news if spelled(key).endswith(("_id", "_uuid"))), "")
        if not id_name:
            return None
        taken = {entity.id for entity in self.state.entities if entity.kind == kind}
        for _ in range(_DRAWS):
            thing, value = self._identified(draw, kind, id_name, properties[id_name], depth)
            if thing.id not in taken:
                break
        return ShownThing(self, thing, id_name, value, self._echo)

    def _identified(self, draw: Draw, kind: str, id_name: str, node: Any, depth: int) -> tuple[Thing, Any]:
        value = None if depth and spelled(id_name) in GENERIC_IDS else draw.echo.get(id_name)
        if value is None or not draw.schema.accepts(value, node):
            value = draw.value(self._id_node(kind, node), _sample_name(kind, id_name), depth + 1)
        return Thing(kind, str(value), spelled(id_name)), value

    def _id_node(self, kind: str, node: Any) -> Any:
        """The schema of an identifier: of what the field takes, what the tools that ask for it want."""
        asked = self._catalog.id_schemas.get(kind)
        if asked is not None:
            return _conjunction(node, asked)
        return {**node, "type": "string"} if isinstance(node.get("type"), list) and "string" in node["type"] else node


class ShownThing:
    """One thing in a response: the `generate.Thing` of one object.

    Args:
        world: that it belongs to.
        thing: which.
        id_name: the field that holds its identifier, "" when none does.
        id_value: the identifier.
        echo: values that it repeats, by name of field or concept.
        fresh: as if the episode had not touched it.
    """

    def __init__(
        self,
        world: World,
        thing: Thing,
        id_name: str,
        id_value: Any,
        echo: Mapping[str, Any],
        fresh: bool = False,
    ) -> None:
        self.thing = thing
        self._random, self._seed = _THREAD.rng, world.seed(thing)
        self.rng: random.Random = self._random
        self.entity = None if fresh else world.state.entity(world.action.scope, thing)
        self._world, self._id_name, self._id_value, self.echo = world, id_name, id_value, echo

    def field(self, draw: Draw, name: str, node: Any, depth: int, siblings: Mapping[str, Any]) -> Any:
        """The value of its field called `name`."""
        accepts = draw.schema.accepts
        if name == self._id_name:
            for value in _forms(self._id_value):
                if accepts(value, node):
                    return value
        about = concept(name, self.thing.kind)
        if about == "status" and is_region(name, siblings):
            about = "state"
        for key in (name, about) if self.echo else ():
            if key in self.echo and accepts(self.echo[key], node):
                return self.echo[key]
        node = self._world.field_node(self.thing.kind, about, node)
        self._random.position = self._seed ^ _name_seed(about)
        drawn = draw.value(node, about, depth)
        if self.entity is None or self.thing.qualifier:
            return drawn
        return self.entity.value(name, drawn, siblings, lambda value: accepts(value, node))

    def finish(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """The object; where its shape is ours, with all that was made of the thing."""
        for name, flag in flags(drawn, self.thing.kind).items():
            if name not in self.echo:
                drawn[name] = flag
        if self.entity is None or not self._world.free or self._world.action.writes:
            return drawn
        kind = self.thing.kind
        there = {concept(name, kind) for name in drawn}
        more = {name: value for name, value in self.entity.fields.items() if concept(name, kind) not in there}
        if self._id_name:
            more.pop(next((name for name in more if spelled(name) == self.entity.id_name), ""), None)
        return {**drawn, **more}


@functools.lru_cache(maxsize=8192)
def _name_seed(field: str) -> int:
    """What tells the seeds of the fields of a thing apart."""
    return zlib.crc32(field.encode("utf-8", "replace")) * _STEP & _MASK


def _forms(identifier: Any) -> Iterator[Any]:
    """An identifier in the types that a field may want it in."""
    yield identifier
    if isinstance(identifier, str) and re.fullmatch(r"-?\d{1,18}", identifier):
        yield int(identifier)
    yield str(identifier)


@functools.lru_cache(maxsize=8192)
def _server(name: str) -> str:
    """The server in a tool's name, "" where it has none: `notes-server-get_note` and `notes-server-list` share one."""
    first = re.split(r"[-.:/]|__", name, maxsplit=1)[0] if re.search(r"[-.:/]|__", name) else ""
    words = tokens(first)
    return "" if not words or words[0] in EFFECT_OF_VERB else "_".join(words)


def _sample_name(kind: str, id_name: str) -> str:
    """The name by which an identifier is drawn: `issue_id` for an issue's `id`."""
    words = spelled(id_name)
    return f"{kind}_id" if words in GENERIC_IDS or words == kind else id_name


def _plain_names(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """The properties that can hold an identifier."""
    return tuple([name for name, node in properties.items() if isinstance(node, dict) and _is_plain(node)])


def _is_plain(node: dict[str, Any]) -> bool:
    kind = node.get("type")
    if isinstance(kind, str):
        return kind in _PLAIN_TYPES
    return "properties" not in node and "items" not in node


def _is_object(node: Any) -> bool:
    return isinstance(node, dict) and (node.get("type") == "object" or "properties" in node)


def _is_array(node: Any) -> bool:
    return isinstance(node, dict) and (node.get("type") == "array" or "items" in node)


def _conjunction(node: Any, other: Any) -> Any:
    """Both schemas as one where something satisfies both, else the first."""
    if not isinstance(node, dict) or "$ref" in other or node == other:
        return node
    try:
        both = merged(node, other)
    except (DeadEndError, TypeError):
        return node
    low, high = both.get("minimum"), both.get("maximum")
    if both.get("enum") == [] or (low is not None and high is not None and low > high):
        return node
    return both
