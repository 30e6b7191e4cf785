"""What users ask in the quickstart world, what should be called, and how a scraped agent handled it.

A `Question` knows its gold calls up to values that only a response can give. `solve` plays it as it should
be; `demonstrate` plays it as the SFT data shows it: with the flaws of `FLAWS`, the kinds that are found in
real scraped demonstrations. The reward is computed against `solve`, so RL has something to correct.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from catalog import Tool

from verl_slca.parsing import render_call
from verl_slca.trajectory import ToolCall

Respond = Callable[[Sequence[ToolCall]], list[str]]
"""One episode of the simulator: the response texts of the calls of one step."""

KINDS = {"one": 0.3, "parallel": 0.25, "chain": 0.2, "follow": 0.15, "none": 0.1}
"""Share of each kind of question: one call; two independent calls; a call that needs an earlier call's
result; a follow-up turn of a conversation; nothing to call."""

FLAWS = {"serial": 0.6, "dropped": 0.55, "sibling": 0.15, "early": 0.3, "unneeded": 0.5, "sloppy": 0.4}
"""Share of demonstrations, of those where it can happen, with each flaw: parallel calls made one by one; an
optional argument of the question left out; a sibling tool of the same server; stopping after the first call
of a chain; a call where none is needed; an answer that leaves a fact out or dumps raw JSON."""

CLEAN = dict.fromkeys(FLAWS, 0.0)

SHARE_OPTIONAL = 0.6

_SMALL_TALK = [
    ("Hello there.", "Hello, what can I do for you?"),
    ("Good morning.", "Good morning, what can I do for you?"),
    ("Thank you very much.", "You are welcome."),
    ("That is all for now.", "Alright, have a good day."),
    ("Who are you?", "I am an assistant with some tools."),
    ("Are you a human?", "No, I am an assistant with some tools."),
]
_RECALL = ["What did you say?", "Can you repeat that answer?", "Please say that again."]
_ONE = ["Please {0}.", "Can you {0}?", "I want you to {0}.", "I need you to {0}.", "Could you {0}?"]
_BOTH = ["Please {0} and {1}.", "Can you {0}, and also {1}?", "I want you to {0}, and at the same time {1}."]
_THEN = ["Please {0}, then {1}.", "Can you {0} and after that {1}?", "I want you to {0}, and once you know, {1}."]
_NEXT = ["Now {0}.", "Next, please {0}.", "And can you {0}?"]


class UnfitError(Exception):
    """This draw makes no question that can be asked and answered here; another may."""


@dataclass(frozen=True)
class Wish:
    """One call the user wants; `link` names the argument that the step before has to provide."""

    tool: Tool
    args: dict[str, Any]
    link: str | None = None


@dataclass(frozen=True)
class Question:
    """A user message, the steps that answer it, and the reply when there are none."""

    kind: str
    text: str
    steps: tuple[tuple[Wish, ...], ...] = ()
    reply: str = ""


@dataclass(frozen=True)
class Played:
    """One played question: messages after the user's, the calls step by step, and what is known now.

    Attributes:
        messages: assistant turns and tool responses, ending with the answer.
        steps: the calls made, step by step.
        last: tool, arguments and response of the last call, None when nothing was called.
    """

    messages: list[dict[str, str]]
    steps: list[list[ToolCall]]
    last: tuple[Tool, dict[str, Any], dict[str, Any]] | None


def offer(tools: Sequence[Tool], rng: random.Random) -> list[Tool]:
    """Three to five tools of two servers, in random order; usually some of them chain."""
    servers = sorted({tool.server for tool in tools})
    first, second = rng.sample(servers, 2)
    offered = []
    for server, count in ((first, rng.choice([2, 3])), (second, rng.choice([1, 2]))):
        siblings = [tool for tool in tools if tool.server == server]
        chains = [(a, b) for a in siblings for b in siblings if b.link(a)]
        picked = list(rng.choice(chains)) if count > 1 and chains else []
        rest = [tool for tool in siblings if tool not in picked]
        offered += picked + rng.sample(rest, min(len(rest), count - len(picked)))
    rng.shuffle(offered)
    return offered


def ask(kind: str, offered: Sequence[Tool], names: Sequence[str], rng: random.Random, past: Played | None) -> Question:
    """A question of that kind over `offered`.

    Args:
        kind: a key of `KINDS`; ``"follow"`` needs a `past`.
        offered: the tools of the row.
        names: proper names to use.
        past: the exchange before, which follow-up and recall questions refer to.

    Raises:
        UnfitError: no question of that kind can be asked here.
    """

    def wish(tool: Tool) -> Wish:
        return Wish(tool, tool.sample(rng, names, SHARE_OPTIONAL))

    def sentence(forms: list[str], *clauses: str) -> str:
        return rng.choice(forms).format(*clauses)

    if kind == "none":
        if past and past.last and rng.random() < 0.5:
            return Question(kind, rng.choice(_RECALL), reply=past.messages[-1]["content"])
        text, reply = rng.choice(_SMALL_TALK)
        return Question(kind, text, reply=reply)
    if kind == "parallel":
        pair = [wish(rng.choice(offered)), wish(rng.choice(offered))]
        if pair[0] == pair[1]:
            raise UnfitError("both calls are the same")
        text = sentence(_BOTH, *(w.tool.clause(w.args, rng) for w in pair))
        return Question(kind, text, (tuple(pair),))
    if kind == "chain":
        chains = [(a, b) for a in offered for b in offered if b.link(a)]
        if not chains:
            raise UnfitError("no tool needs what another one finds")
        producer, consumer = rng.choice(chains)
        first, second = wish(producer), replace(wish(consumer), link=consumer.link(producer))
        clauses = producer.clause(first.args, rng), consumer.clause(second.args, rng, linked=True)
        return Question(kind, sentence(_THEN, *clauses), ((first,), (second,)))
    if kind == "follow":
        if past is None or past.last is None:
            raise UnfitError("nothing to follow up")
        last, _, response = past.last
        linked = [tool for tool in offered if tool.link(last)]
        if linked and rng.random() < 0.7:
            chosen = wish(rng.choice(linked))
            key = chosen.tool.link(last)
            chosen = replace(chosen, args={**chosen.args, key: response[key]})
            clause = chosen.tool.clause(chosen.args, rng, linked=True)
        else:
            chosen = wish(rng.choice(offered))
            clause = chosen.tool.clause(chosen.args, rng)
        return Question(kind, sentence(_NEXT, clause), ((chosen,),))
    chosen = wish(rng.choice(offered))
    return Question(kind, sentence(_ONE, chosen.tool.clause(chosen.args, rng)), ((chosen,),))


def solve(question: Question, respond: Respond) -> Played:
    """The question played without a flaw: its steps are the gold. Raises UnfitError as `demonstrate` does."""
    return demonstrate(question, (), (), respond, random.Random(0), CLEAN)


def demonstrate(
    question: Question,
    offered: Sequence[Tool],
    names: Sequence[str],
    respond: Respond,
    rng: random.Random,
    flaws: dict[str, float],
) -> Played:
    """The question played as a scraped agent did, each flaw with its probability.

    Raises:
        UnfitError: the simulator refuses a call, e.g. to cancel a second time what an earlier call has cancelled.
    """
    plan = [list(step) for step in question.steps]
    if len(plan) == 2 and rng.random() < flaws["early"]:
        plan = plan[:1]
    if len(plan) == 1 and len(plan[0]) == 2 and rng.random() < flaws["serial"]:
        plan = [[wish] for wish in plan[0]]
    if not plan and rng.random() < flaws["unneeded"]:
        tool = rng.choice(list(offered))
        plan = [[Wish(tool, tool.sample(rng, names, 0.0))]]
    plan = [[_blurred(wish, offered, names, rng, flaws) for wish in step] for step in plan]

    messages: list[dict[str, str]] = []
    steps: list[list[ToolCall]] = []
    told: list[str] = []
    raw: list[str] = []
    last = None
    for step in plan:
        calls = []
        for wish in step:
            known = {wish.link: last[2][wish.link]} if wish.link and last and wish.link in last[2] else {}
            calls.append(ToolCall(wish.tool.name, {**wish.args, **known}))
        texts = respond(calls)
        for wish, call, text in zip(step, calls, texts, strict=True):
            last = (wish.tool, call.arguments, _response(call, text))
            told.append(wish.tool.tell.format(**{**call.arguments, **last[2]}))
        raw += texts
        steps.append(calls)
        messages.append({"role": "assistant", "content": "\n".join(render_call(call) for call in calls)})
        messages.append({"role": "user", "content": render_responses(texts)})
    answer = question.reply or " ".join(told)
    if told and not question.reply and rng.random() < flaws["sloppy"]:
        answer = rng.choice([f"The result is {raw[-1]}.", told[0] if len(told) > 1 else "It is done."])
    messages.append({"role": "assistant", "content": answer})
    return Played(messages, steps, last)


def _response(call: ToolCall, text: str) -> dict[str, Any]:
    try:
        response: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise UnfitError(f"{call.name}: {text}") from error
    return response


def render_responses(texts: Sequence[str]) -> str:
    """Tool responses as the user turn that the chat template makes of consecutive tool messages."""
    return "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)


def _blurred(
    wish: Wish, offered: Sequence[Tool], names: Sequence[str], rng: random.Random, flaws: dict[str, float]
) -> Wish:
    siblings = [tool for tool in offered if tool.server == wish.tool.server and tool != wish.tool]
    if siblings and rng.random() < flaws["sibling"]:
        tool = rng.choice(siblings)
        args = {key: wish.args.get(key, value) for key, value in tool.sample(rng, names, 0.0).items()}
        return Wish(tool, args, wish.link if wish.link in tool.args else None)
    if rng.random() < flaws["dropped"]:
        return replace(wish, args={key: value for key, value in wish.args.items() if key in wish.tool.args})
    return wish
