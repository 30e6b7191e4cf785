"""The model behind an OpenAI-compatible server, as the `Policy` of an episode: messages in, text out.

What the model wrote is kept as one text with hermes ``<tool_call>`` blocks, as in training, also where the
server took the calls apart; the conversation sent back to the server keeps the server's own form, so that
the checkpoint's chat template renders its own history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from harness.records import Usage
from verl_slca.episode import Action
from verl_slca.errors import ConfigError, PolicyServerFault
from verl_slca.parsing import call_from, render_call
from verl_slca.seeds import derived_seed
from verl_slca.trajectory import ToolCall, ToolResult

if TYPE_CHECKING:
    import openai

_OVERFLOW = re.compile(r"context.{0,9}(length|size|window)|max(imum)?.model.len|prompt.{0,20}too long", re.IGNORECASE)
_PLAIN = "/!#$&'()*+,:;<=>?@[]^`{|}"
_FINISHED = ("stop", "length", "tool_calls")


class ContextOverflowError(Exception):
    """The conversation alone is longer than the model's context: the sample's end, not the server's fault."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the model is asked.

    Attributes:
        temperature: 0 is greedy.
        max_tokens: response tokens per episode, in all turns, tool responses included, as in training; of one reply
            where a benchmark bounds its episodes otherwise (BFCL, tau2-bench).
        seed: base of every request's seed; each turn has its own.
    """

    temperature: float = 0.0
    max_tokens: int = 8192
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature <= 2.0:
            raise ValueError(f"temperature must be in [0, 2], got {self.temperature}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")


def trace_headers(trace: str, number: int) -> dict[str, str]:
    """The tracing header of a request: ``X-Request-Id: task/sample id/number``, percent-encoded where HTTP needs it.

    Example:
        >>> trace_headers("toucan/000001-ab", 2)
        {'X-Request-Id': 'toucan/000001-ab/2'}
        >>> trace_headers("", 0)
        {}
    """
    return {"X-Request-Id": quote(f"{trace}/{number}", safe=_PLAIN)} if trace else {}


def server_fault(error: openai.OpenAIError) -> PolicyServerFault:
    """The fault that `error` of the client is counted under."""
    import openai  # not at the top: half a second for each command that asks no model

    if isinstance(error, openai.APITimeoutError):
        return PolicyServerFault("policy_server_timeout", "no answer in time; see --timeout")
    if isinstance(error, openai.APIConnectionError):
        return PolicyServerFault("policy_server_unreachable", f"{error} {error.__cause__ or ''}".strip())
    if isinstance(error, openai.RateLimitError):
        return PolicyServerFault("policy_server_rate_limit", str(error))
    if isinstance(error, openai.InternalServerError):
        return PolicyServerFault("policy_server_error", str(error))
    if isinstance(error, openai.APIStatusError):
        return PolicyServerFault("policy_server_refused", str(error))
    return PolicyServerFault("policy_server_malformed", repr(error))


async def complete(client: openai.AsyncOpenAI, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """The server's reply to a chat request, one with a first choice that says how it ended.

    Raises:
        PolicyServerFault: the server, not the model, failed.
        ContextOverflowError: what is asked for does not fit the model's context.
    """
    import openai

    try:
        # The client's own untyped request: same retries and errors, without typed copies of long conversations.
        reply = await client.post("/chat/completions", cast_to=object, body=body, options={"headers": dict(headers)})
    except openai.BadRequestError as error:
        if _OVERFLOW.search(str(error)):
            raise ContextOverflowError(str(error)) from error
        raise server_fault(error) from error
    except openai.OpenAIError as error:
        raise server_fault(error) from error
    except ValueError as error:
        raise PolicyServerFault("policy_server_malformed", f"the reply is not JSON: {error}") from error
    if not _is_finished(reply):
        raise PolicyServerFault("policy_server_malformed", f"no finished choice in the reply: {str(reply)[:500]}")
    return reply  # type: ignore[return-value]


async def check_tools_are_seen(client: openai.AsyncOpenAI, model: str, trace: str) -> None:
    """Check that the model behind a server sees the tools of a request: they cost it prompt tokens.

    Most servers render a chat template without tools without a word, and the model then seems to abstain. Nothing is
    said where the server does not count tokens, or cannot be asked.

    Raises:
        ConfigError: a request with a tool has as many prompt tokens as one without.
    """
    tool = {"type": "function", "function": {"name": "find_order", "description": "Look up an order by its id."}}
    counts: list[int | None] = []
    for offered in ({}, {"tools": [tool]}):
        body = {"model": model, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1, **offered}
        try:
            reply = await complete(client, body, trace_headers(trace, len(counts)))
        except (PolicyServerFault, ContextOverflowError):
            return
        counts.append((reply.get("usage") or {}).get("prompt_tokens"))
    if counts[0] and counts[0] == counts[1]:
        raise ConfigError(
            f"{model} never sees the tools it is offered: a request with one has as many prompt tokens as one without, "
            "so its chat template does not show them. Serve it with a template that does; else BFCL can be asked with "
            "bfcl.mode: prompt, and Toucan rows can hold their tools in the system message"
        )


async def within_context(request: Callable[[int | None], Awaitable[dict[str, Any]]], max_tokens: int) -> dict[str, Any]:
    """The reply to a request for at most `max_tokens`, or for what the context has left, where that is less.

    Raises:
        ContextOverflowError: not even the conversation fits.
    """
    try:
        return await request(max_tokens)
    except ContextOverflowError:
        # Servers refuse a prompt + max_tokens beyond the context; without max_tokens they use what is left.
        return await request(None)


class ChatPolicy:
    """One conversation over ``/chat/completions``.

    Args:
        client: from `verl_slca.endpoint.connect`.
        model: name the server knows the model by.
        messages: the conversation so far, role and content each.
        tools: JSON tool definitions for the chat template; None where the messages already hold them.
        sampling: how to ask; its seed is this conversation's own.
        trace: whose conversation it is, ``task/sample id``; requests carry it, numbered, as ``X-Request-Id``.

    Attributes:
        usage: requests and tokens so far.
        fault: detail of the server fault that ended the conversation, "" while there is none.
    """

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        sampling: Sampling,
        trace: str = "",
    ) -> None:
        self._client = client
        self._trace = trace
        self._fixed: dict[str, Any] = {
            "model": model,
            "temperature": sampling.temperature,
            **({"tools": list(tools)} if tools else {}),
        }
        self._messages: list[dict[str, Any]] = [dict(message) for message in messages]
        self._budget, self._seed = sampling.max_tokens, sampling.seed
        self._used = 0
        self._prompt_tokens: int | None = None
        self._call_ids: list[str] = []
        self._next: Action | None = None
        self.usage = Usage()
        self.fault = ""

    async def act(self) -> Action:
        """The next turn.

        Raises:
            PolicyServerFault: the server, not the model, failed.
            ContextOverflowError: the first prompt does not fit the model's context.
        """
        action, self._next = self._next, None
        return action if action is not None else await self._ask()

    async def observe(self, results: Sequence[ToolResult]) -> bool:
        """Append the tool responses and ask for the next turn; False when the context or the budget is used up.

        The turn is asked for here, not in `act`, since only the server can tell that it does not fit; the
        rollout then ends on its tool turn, as one does in training.
        """
        ids = self._call_ids or [f"call_{len(self._messages)}_{i}" for i in range(len(results))]
        for i, call_id in enumerate(ids):
            # A server that wants an answer to every call gets the last one, "too many calls", for those beyond it.
            result = results[min(i, len(results) - 1)]
            named = {"name": result.name} if result.name else {}
            self._messages.append({"role": "tool", "tool_call_id": call_id, **named, "content": result.content})
        if self._used >= self._budget:
            return False
        try:
            self._next = await self._ask()
        except ContextOverflowError:
            return False
        return True

    async def _ask(self) -> Action:
        try:
            reply = await within_context(self._complete, self._budget - self._used)
        except PolicyServerFault as fault:
            self.fault = fault.detail
            raise
        choice = reply["choices"][0]
        text, assistant = _text_and_message(choice["message"])
        self._messages.append(assistant)
        self._call_ids = [call["id"] for call in assistant.get("tool_calls", ())]
        self._count(reply.get("usage"))
        return Action(text.strip("\n"), finished=choice["finish_reason"] != "length" and self._used <= self._budget)

    async def _complete(self, max_tokens: int | None) -> dict[str, Any]:
        seed = derived_seed(self._seed, len(self._messages))
        varying: dict[str, Any] = {"messages": self._messages, "seed": seed}
        if max_tokens is not None:
            varying["max_tokens"] = max_tokens
        headers = trace_headers(self._trace, self.usage.requests)
        try:
            return await complete(self._client, {**self._fixed, **varying}, headers)
        finally:
            self.usage = self.usage.after_request()

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        if not usage:
            return
        self.usage = self.usage.after_reply(usage)
        prompt, completion = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
        if self._prompt_tokens is None:
            self._prompt_tokens = prompt
        # Whatever lies behind the first prompt, tool responses included, is response: the trainer's count.
        self._used = prompt + completion - self._prompt_tokens


def _is_finished(reply: object) -> bool:
    """True when the reply has a first choice with a message, and says how it ended."""
    choices = reply.get("choices") if isinstance(reply, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or choice.get("finish_reason") not in _FINISHED:
        return False
    message = choice.get("message")
    return isinstance(message, dict) and all(
        isinstance(call, dict) and isinstance(call.get("function"), dict) and call.get("id")
        for call in message.get("tool_calls") or ()
    )


def _text_and_message(message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The turn as one text, and as the server wants to see it again."""
    content = message.get("content") or ""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    history: dict[str, Any] = {"role": "assistant", "content": content}
    text = f"<think>\n{reasoning}\n</think>\n\n{content}" if reasoning else content
    if reasoning:
        history["reasoning_content"] = reasoning
    if calls := message.get("tool_calls"):
        history["tool_calls"] = calls
        blocks = (_block(call["function"].get("name"), call["function"].get("arguments")) for call in calls)
        text = "\n".join(part for part in (text, *blocks) if part)
    return text, history


def _block(name: Any, arguments: Any) -> str:
    """The hermes block of a call that the server took apart; arguments that are no JSON object stay malformed."""
    call = call_from({"name": name, "arguments": arguments or {}})
    if isinstance(call, ToolCall):
        return render_call(call)
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
