"""What a call does to the world: told by MCP annotations, else by the verb in the tool's name or description.

notes-server-create_note   ->  Action("create", ("notes", "server"), "note", "create")
book_flight                ->  Action("create", (), "booking", "book")
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from verl_slca.sgls.samples import tokens
from verl_slca.sgls.schema import CompiledTool
from verl_slca.sgls.things import singular
from verl_slca.sgls.verbs import (
    ALSO_NOUNS,
    CALCULATING,
    CHECKING,
    EFFECT_OF_VERB,
    MADE_BY,
    MADE_ITSELF,
    RESOLVABLE,
    STATUS_AFTER,
    Effect,
    adds_numbers,
)

_PREPOSITIONS = {"to", "in", "into", "from", "of", "by", "for", "with", "on", "at", "as", "via", "and", "or"}
_VAGUE = {"return", "provide", "is", "has"}
"""Verbs with which a description of anything may begin."""
_ASPECTS = {"detail", "details", "info", "information", "status", "state", "summary", "record", "metadata"}
"""Nouns that say which side of a thing is shown: `get_order_status` is about an order."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a tool does, and to what.

    Attributes:
        effect: ``read`` and ``list`` leave the world as it is.
        scope: words of the tool's name before its verb: its server, as far as the name tells.
        kind: what it is done to, one lower-case word in the singular.
        verb: the word that says so, "" when none does.
    """

    effect: Effect
    scope: tuple[str, ...]
    kind: str
    verb: str = ""

    @property
    def writes(self) -> bool:
        """True when the call changes the world."""
        return self.effect not in ("read", "list")

    @property
    def status(self) -> str:
        """The status of the thing once the call was made, "" when it does not say."""
        return STATUS_AFTER.get(self.verb, "") if self.effect == "update" else ""

    @property
    def calculates(self) -> bool:
        """True when the answer is a number computed from the arguments."""
        return self.effect == "read" and (self.verb in CALCULATING or self.verb == "add")

    @property
    def checks(self) -> bool:
        """True when the answer is yes or no."""
        return self.effect == "read" and self.verb in CHECKING


@functools.lru_cache(maxsize=4096)
def action_of(tool: CompiledTool, told: Effect | None = None) -> Action:
    """What `tool` does.

    Args:
        tool: the tool.
        told: its effect, where the user says so.
    """
    words = tokens(tool.name)
    verbs = [i for i, word in enumerate(words) if word in EFFECT_OF_VERB]
    sure = [i for i in verbs if words[i] not in ALSO_NOUNS]
    sure = sure or [i for i in verbs if words[i] == "list"]  # whatever the description begins with
    described = "" if sure else _described_verb(tool.description)
    at = sure[0] if sure else verbs[0] if verbs else -1
    verb = described or (words[at] if at >= 0 else "")
    effect: Effect = EFFECT_OF_VERB.get(verb, "read")
    nouns = _nouns(words[at + 1 :]) if at >= 0 else ()
    scope = words[:at] if at >= 0 else words
    if not nouns and scope:  # todo_create: what stands before the verb is the thing, not the server
        scope, nouns = (scope[:-1], scope[-1:]) if scope[-1] not in _ASPECTS else (scope[:-2], scope[-2:])
    if words[-1:] == ("list",) or (verb == "execute" and nouns[-1:] == ("query",)):
        effect, nouns = "list", nouns[:-1] if len(nouns) > 1 else nouns
    if len(nouns) > 1 and nouns[-1] in _ASPECTS:
        nouns = nouns[:-1]
    noun = nouns[-1] if nouns else "item"
    kind = singular(noun)
    if verb == "resolve" and kind not in RESOLVABLE:
        effect = "read"
    if effect == "read" and noun != kind and noun not in _ASPECTS and verb not in CALCULATING | CHECKING:
        effect = "list"
    if effect == "create" and adds_numbers(tool):
        effect = "read"
    if tool.read_only is True and effect != "list":
        effect = "read"
    elif tool.read_only is False and effect in ("read", "list"):
        effect = "write"
    effect = told or effect
    if effect == "create" and verb in MADE_BY and kind not in MADE_ITSELF:
        kind = MADE_BY[verb]
    return Action(effect, scope, kind, verb)


def _described_verb(description: str) -> str:
    """The verb that the description begins with, "" when it begins with none."""
    first = next(iter(tokens(description[:60])), "")
    forms = (first, first.removesuffix("s"), first.removesuffix("es"))
    return next((form for form in forms if form in EFFECT_OF_VERB and form not in _VAGUE), "")


def _nouns(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words up to the first preposition, or behind it when it comes first."""
    end = next((i for i, word in enumerate(words) if word in _PREPOSITIONS), len(words))
    return words[:end] if end else words[1:2]
