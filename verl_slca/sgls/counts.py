"""What a call does to a count: an order lowers a stock, a deposit raises a balance.

place_order(product_id="p1", quantity=3)          ->  stock of product p1, 3 less
transfer(from_account=1, to_account=2, amount=5)  ->  balance of account 1, 5 less; of account 2, 5 more
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from verl_slca.sgls.effects import Action
from verl_slca.sgls.things import Thing, concept, plain, references

_TAKING = {"order", "buy", "purchase", "place", "book", "reserve", "sell", "consume", "checkout", "withdraw", "pay",
           "transfer", "send", "create"}  # fmt: skip
_GIVING = {"restock", "replenish", "deposit"}
_ORDERS = {"order", "purchase", "sale"}
_COUNTS = {"quantity": "stock", "amount": "balance"}
"""By what a call counts -> the field of the thing that follows."""
_SOURCES, _TARGETS = ("from", "source", "sender"), ("to", "target", "destination", "recipient")


def count_changes(
    action: Action, arguments: Mapping[str, Any], nouns: Collection[str] = ()
) -> Iterator[tuple[Thing, str, float]]:
    """The counts that a call changes: whose, which, and by how much.

    Args:
        action: what the called tool does.
        arguments: of the call; each object of a list in them is a line of an order.
        nouns: bare words that name things (`things.references`).
    """
    if action.verb not in _TAKING | _GIVING or (action.verb == "create" and action.kind not in _ORDERS):
        return
    yield from _changes(action, arguments, nouns)
    for lines in arguments.values():
        for line in lines if isinstance(lines, list) else ():
            if isinstance(line, dict):
                yield from _changes(action, line, nouns)


def _changes(action: Action, fields: Mapping[str, Any], nouns: Collection[str]) -> Iterator[tuple[Thing, str, float]]:
    amounts = [(_COUNTS[about], value) for name, value in plain(fields) if (about := concept(name)) in _COUNTS]
    if len(amounts) != 1 or isinstance(amounts[0][1], str):
        return
    (name, amount), first = amounts[0], True
    for thing in references(fields, action.kind, nouns):
        role = thing.id_name.split("_", 1)[0]
        if thing.kind == action.kind and action.effect == "create":
            continue
        if role in _TARGETS or (action.verb in _GIVING and role not in _SOURCES):
            yield thing, name, amount
        elif role in _SOURCES or first:
            yield thing, name, -amount
        first = False
