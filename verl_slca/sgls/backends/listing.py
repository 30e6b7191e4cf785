"""What a list or a search holds: things of the world that fit, and those that the episode has put there.

Asked for without conditions, a list holds the first few things of its kind. Asked for with some, it holds those of
them that fit; where none does, it holds others that do. Both are settled by the world alone, before the episode touched
anything: a thing that no longer fits is missing from then on, and none takes its place.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from verl_slca.sgls.entity import Entity
from verl_slca.sgls.generate import COUNT, Draw
from verl_slca.sgls.samples import tokens
from verl_slca.sgls.things import Thing, concept, spelled
from verl_slca.sgls.validation import canonical_json

if TYPE_CHECKING:
    from verl_slca.sgls.backends.world import World

MAX_LISTED = 50
"""Things that a list holds at most, those of the episode first, newest first."""
_LIMITS = {"limit", "max_results", "count", "top", "top_k", "k", "n", "size", "page_size", "per_page", "max",
           "num_results", "max_items"}  # fmt: skip
_INDIFFERENT = {"sort", "order", "direction", "fields", "include", "format", "verbose"}
_QUERIES = {"query", "q", "search", "keyword", "keywords", "term", "text"}
_FEW = 2
_DRAWS = 20


class Listing:
    """One list of things.

    Args:
        world: that is listed.
        draw: makes the items.
        node: schema of the array.
        properties: of an item.
        id_name: the one that identifies it.
        depth: of an item.
    """

    def __init__(
        self, world: World, draw: Draw, node: Mapping[str, Any], properties: Mapping[str, Any], id_name: str, depth: int
    ) -> None:
        self._world, self._draw, self._node, self._properties = world, draw, node, properties
        self._id_name, self._depth = id_name, depth
        self._kind = world.action.kind
        self._own = world.state.listed(world.action)
        self._limit = MAX_LISTED
        self._filters: dict[str, Any] = {}
        self._queries: list[str] = []
        self._place: dict[str, Any] = {}
        self._sort_arguments()

    def items(self) -> list[dict[str, Any]]:
        """The list."""
        state, action = self._world.state, self._world.action
        base = [] if state.is_closed(action) else self._base()
        there = {thing.id for thing, _, _ in base}
        items = [
            self._item(thing, value, {}) for thing, value in map(self._of_entity, self._own) if thing.id not in there
        ]
        items = [item for item in items if self._fits(item)]
        changed, gone = {entity.id for entity in self._own}, state.removed(action)
        for thing, value, echo in base:
            if thing.id in gone:
                continue
            item = self._item(thing, value, {} if thing.id in changed else echo)
            if thing.id not in changed or self._fits(item, with_query=False):
                items.append(item)
        least, most = self._node.get("minItems", 0), self._node.get("maxItems", MAX_LISTED)
        if len(items) < least:  # the schema asks for more than there is
            items += [self._item(*member) for member in self._members("more", int(least) - len(items), {})]
        return items[: int(min(most, max(least, self._limit)))]

    def _sort_arguments(self) -> None:
        """Tell what limits the list, what its items have to fit, and what says where to look."""
        concepts = {concept(name, self._kind) for name in self._properties}
        concepts |= {concept(name, self._kind) for entity in self._own for name in entity.fields}
        for name, value in self._world.arguments.items():
            words, about = spelled(name), concept(name, self._kind)
            if value is None or not _INDIFFERENT.isdisjoint(tokens(name)):
                continue
            if words in _LIMITS and isinstance(value, (int, float)):
                self._limit = int(value) if value >= 1 else MAX_LISTED
            elif words.rsplit("_", 1)[-1] in _QUERIES:
                self._queries.append(str(value))
            elif about in concepts and not isinstance(value, (dict, list)):
                self._filters[about] = value
            elif not (words in ("page", "offset", "skip") and value in (0, 1)):
                self._place[words] = value

    def _base(self) -> list[tuple[Thing, Any, dict[str, Any]]]:
        """The things that fitted at first: (thing, identifier, values by which it fits)."""
        place = canonical_json(self._place)
        first = self._members(place, self._size(place), {})
        if not self._filters and not self._queries:
            return first
        fitting = [member for member in first if self._fits(self._item(*member, fresh=True))]
        return fitting or self._made_to_fit()

    def _made_to_fit(self) -> list[tuple[Thing, Any, dict[str, Any]]]:
        place = canonical_json([self._place, self._filters, self._queries])
        return self._members(place, self._size(place), self._filters)

    def _size(self, place: str) -> int:
        low, high = (
            self._node.get("minItems", self._node.get(COUNT, 0)),
            self._node.get("maxItems", self._node.get(COUNT)),
        )
        least = max(int(low), 1)
        most = least + _FEW if high is None else min(int(high), least + _FEW)
        return least + self._world.seed(Thing(self._kind, place)) % (most - least + 1) if most >= least else 0

    def _members(self, place: str, count: int, echo: dict[str, Any]) -> list[tuple[Thing, Any, dict[str, Any]]]:
        members: dict[str, tuple[Thing, Any, dict[str, Any]]] = {}
        node = self._properties[self._id_name]
        drawn = self._world.members(self._draw, place, node, self._id_name, self._depth)
        for thing, value in itertools.islice(drawn, count + _DRAWS):
            if len(members) == count:
                break
            members.setdefault(thing.id, (thing, value, echo))
        return list(members.values())

    def _of_entity(self, entity: Entity) -> tuple[Thing, Any]:
        value = next((v for name, v in entity.fields.items() if spelled(name) == entity.id_name), entity.id)
        return Thing(entity.kind, entity.id, entity.id_name), value

    def _item(self, thing: Thing, value: Any, echo: Mapping[str, Any], fresh: bool = False) -> dict[str, Any]:
        node = self._node["items"]
        return self._world.item(self._draw, thing, self._id_name, value, echo, fresh, node, self._depth)

    def _fits(self, item: Mapping[str, Any], with_query: bool = True) -> bool:
        """Whether a thing, as it is shown, fits what was asked for."""
        values = {concept(name, self._kind): value for name, value in item.items()} if self._filters else {}
        for about, wanted in self._filters.items():
            if about in values and not _matches(values[about], wanted):
                return False
        if not with_query or not self._queries:
            return True
        text = canonical_json(list(item.values())).casefold()
        return all(re.sub(r'["\\]', "", query).casefold() in text for query in self._queries)


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and isinstance(value, str):
        return wanted.casefold() in value.casefold()
    return bool(value == wanted) or str(value) == str(wanted)
