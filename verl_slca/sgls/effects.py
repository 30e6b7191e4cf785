"""What a call does to the world: told by MCP annotations, else by the verb in the tool's name or description.

notes-server-create_note   ->  Action("create", ("notes", "server"), "note")
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, get_args

from verl_slca.sgls.samples import tokens
from verl_slca.sgls.schema import CompiledTool
from verl_slca.sgls.verbs import VERBS, adds_numbers

Effect = Literal["read", "list", "create", "update", "delete", "write"]
"""``write`` changes something that is no thing with a name: a transfer, a reset."""
EFFECTS: tuple[Effect, ...] = get_args(Effect)

_EFFECT_OF_SHAPE: dict[str, Effect] = {
    "list": "list", "create": "create", "update": "update", "delete": "delete", "get": "read", "check": "read",
    "calculate": "read",
}  # fmt: skip
_MORE_VERBS: dict[Effect, tuple[str, ...]] = {
    "read": ("look", "locate", "compare", "return", "provide", "measure"),
    "create": ("reserve", "order", "borrow", "rent", "buy", "purchase", "subscribe", "append"),
    "update": ("patch", "increment", "lock", "unlock", "mark", "complete", "put"),
    "delete": ("destroy", "erase", "purge", "unsubscribe", "revoke"),
    "write": ("transfer", "pay", "withdraw", "deposit", "turn", "reset", "execute", "trigger", "restart"),
}
_EFFECT_OF_VERB: dict[str, Effect] = {
    **{verb: _EFFECT_OF_SHAPE[shape] for verb, shape in VERBS.items()},
    **{verb: effect for effect, verbs in _MORE_VERBS.items() for verb in verbs},
}
_ALSO_NOUNS = {
    "order", "book", "transfer", "schedule", "post", "set", "open", "close", "start", "stop", "move", "change", "list",
    "count", "check", "view", "show", "put", "mark", "build", "write", "is", "has", "max", "min", "sum", "round",
    "power",
}  # fmt: skip
"""Verbs that decide only where no plainer one does: `order_status` orders nothing, `book_search` books nothing."""
_PREPOSITIONS = {"to", "in", "into", "from", "of", "by", "for", "with", "on", "at", "as", "via", "and", "or"}


@dataclass(frozen=True, slots=True)
class Action:
    """What a tool does, and to what.

    Attributes:
        effect: ``read`` and ``list`` leave the world as it is.
        scope: words of the tool's name before its verb: its server, as far as the name tells.
        kind: what it is done to, one lower-case word in the singular.
    """

    effect: Effect
    scope: tuple[str, ...]
    kind: str

    @property
    def writes(self) -> bool:
        """True when the call changes the world."""
        return self.effect not in ("read", "list")


@functools.lru_cache(maxsize=4096)
def action_of(tool: CompiledTool, told: Effect | None = None) -> Action:
    """What `tool` does.

    Args:
        tool: the tool.
        told: its effect, where the user says so.
    """
    words = tokens(tool.name)
    verbs = [i for i, word in enumerate(words) if word in _EFFECT_OF_VERB]
    plain = [i for i in verbs if words[i] not in _ALSO_NOUNS]
    described = _described(tool.description)
    at = plain[0] if plain else verbs[0] if verbs else -1
    effect: Effect = _EFFECT_OF_VERB[words[at]] if at >= 0 else "read"
    if not plain and described is not None:
        effect = described
    nouns = _nouns(words[at + 1 :]) if at >= 0 else ()
    scope = words[:at] if at >= 0 else words
    noun = nouns[-1] if nouns else scope[-1] if scope else "item"
    if effect == "read" and nouns and noun != singular(noun):
        effect = "list"
    if effect == "create" and adds_numbers(tool):
        effect = "read"
    if tool.read_only is True and effect != "list":
        effect = "read"
    elif tool.read_only is False and effect in ("read", "list"):
        effect = "write"
    return Action(told or effect, scope, singular(noun))


def singular(noun: str) -> str:
    """The singular of an English noun, roughly.

    Example:
        >>> [singular(noun) for noun in ("notes", "entries", "boxes", "status", "address")]
        ['note', 'entry', 'box', 'status', 'address']
    """
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    if noun.endswith(("xes", "ches", "shes", "sses")):
        return noun[:-2]
    return noun[:-1] if noun.endswith("s") and not noun.endswith(("ss", "us", "is")) and len(noun) > 3 else noun


def _described(description: str) -> Effect | None:
    """The effect that the description's first word states."""
    first = next(iter(tokens(description[:60])), "")
    for word in (first, first.removesuffix("s"), first.removesuffix("es")):
        if word in _EFFECT_OF_VERB:
            return _EFFECT_OF_VERB[word]
    return None


def _nouns(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words up to the first preposition, or behind it when it comes first."""
    end = next((i for i, word in enumerate(words) if word in _PREPOSITIONS), len(words))
    return words[:end] if end else words[1:2]
