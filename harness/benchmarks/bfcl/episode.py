"""One entry played against the model: a single reply, or turns of steps with the official executor as the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.benchmarks.bfcl.decode import Result, result_of
from harness.benchmarks.bfcl.names import Mode
from harness.benchmarks.bfcl.pool import Pool
from harness.benchmarks.task import Model
from harness.policy import complete, trace_headers, within_context
from harness.records import Usage
from verl_slca.seeds import derived_seed

MAX_STEPS = 20
"""The official limit of steps with calls within a turn; one more ends the whole entry."""


class Conversation:
    """Messages exchanged with the model; remembers all of them, as the server wants to see them again.

    Unlike in training, `max_tokens` is for one reply: BFCL bounds an episode by its steps.

    Args:
        model: who is asked.
        sample: the id that requests carry, and that seeds follow from.

    Attributes:
        messages: everything so far.
        tools: those on offer.
        usage: requests and tokens so far.
        truncated: whether a reply was cut off by the token limit.
    """

    def __init__(self, model: Model, sample: str) -> None:
        self._model, self._sample = model, sample
        self.messages: list[dict[str, Any]] = []
        self.tools: list[dict[str, Any]] = []
        self.usage = Usage()
        self.truncated = False

    async def ask(self) -> dict[str, Any]:
        """The model's next message, appended to the conversation.

        Raises:
            PolicyServerFault: the server, not the model, failed.
            ContextOverflowError: the conversation does not fit the model's context.
        """
        reply = await within_context(self._request, self._model.sampling.max_tokens)
        choice = reply["choices"][0]
        self.truncated = self.truncated or choice["finish_reason"] == "length"
        kept = ("content", "tool_calls", "reasoning_content", "reasoning")
        message = {"role": "assistant", **{key: choice["message"][key] for key in kept if choice["message"].get(key)}}
        message.setdefault("content", "")
        self.messages.append(message)
        return message

    async def _request(self, max_tokens: int | None) -> dict[str, Any]:
        sampling = self._model.sampling
        body: dict[str, Any] = {
            "model": self._model.name,
            "messages": self.messages,
            "temperature": sampling.temperature,
            "seed": derived_seed(sampling.seed, self._sample, len(self.messages)),
            **({"tools": self.tools} if self.tools else {}),
            **({"max_tokens": max_tokens} if max_tokens is not None else {}),
        }
        headers = trace_headers(f"bfcl/{self._sample}", self.usage.requests)
        self.usage = self.usage.after_request()
        reply = await complete(self._model.client, body, headers)
        self.usage = self.usage.after_reply(reply.get("usage"))
        return reply


@dataclass(frozen=True, slots=True)
class Played:
    """An entry that was played to its end.

    Attributes:
        result: as in the official result files: of one reply, or by turn and step.
        failure: how the model broke its own episode, "" where it did not.
    """

    result: Result | list[list[Result]]
    failure: str = ""


async def play_single(
    conversation: Conversation, turns: Sequence[Mapping[str, Any]], mode: Mode, lenient: bool
) -> Played:
    """One request, one reply."""
    conversation.messages += turns[0]["messages"]
    conversation.tools += turns[0]["tools"]
    return Played(result_of(await conversation.ask(), mode, lenient))


async def play_multi(
    conversation: Conversation, turns: Sequence[Mapping[str, Any]], mode: Mode, lenient: bool, pool: Pool, id: str
) -> Played:
    """Turn by turn: the model calls and is answered until it has nothing more to call.

    Every step's calls are played anew from the start, so that no worker has to remember an episode: the worlds
    depend on the calls alone.
    """
    result: list[list[Result]] = []
    for turn in turns:
        conversation.messages += turn["messages"]
        conversation.tools += turn["tools"]
        result.append([])
        while True:
            message = await conversation.ask()
            result[-1].append(result_of(message, mode, lenient))
            steps = [step for steps in result for step in steps]
            answer = await pool.ask({"op": "execute", "id": id, "mode": mode, "steps": steps})
            if "killed" in answer:
                return Played(result, f"a call {answer['killed']}")
            if "ended" in answer:
                break
            conversation.messages += _answers(message, answer, mode, len(conversation.messages))
            if len(result[-1]) > MAX_STEPS:
                return Played(result)
    return Played(result)


def _answers(message: Mapping[str, Any], answer: Mapping[str, Any], mode: Mode, number: int) -> list[dict[str, Any]]:
    """The messages that tell the model what its calls returned."""
    if mode == "prompt":
        return [{"role": "user", "content": answer["message"]}]
    ids = [call["id"] for call in message.get("tool_calls", ())]
    ids = ids or [f"call_{number}_{i}" for i in range(len(answer["results"]))]
    return [
        {"role": "tool", "tool_call_id": call_id, "content": content}
        for call_id, content in zip(ids, answer["results"], strict=False)
    ]
