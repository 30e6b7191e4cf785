"""The official agent and user, who here say which request belongs to which sample and whose fault a failure is."""

import json
import random
import time
from typing import Any
from urllib.parse import quote

import openai
import pydantic

from . import api

_TEMPORARY = (408, 409, 429)
_LONGEST_ERROR = 2000


class Failed(Exception):
    """Somebody's turn failed.

    Args:
        who: ``"agent"``, ``"user"``, ``"judge"``, or a part of tau2: its ``"environment"``, its ``"evaluator"``, or an
            ``"assertion"`` on the world that the model left.
        kind: ``"empty"`` or ``"arguments"`` (what a model wrote cannot be used), ``"server"`` or ``"unexpected"``.
        text: what happened.
        error: name of the error's class.
        status: HTTP status, where a server said one.
    """

    def __init__(self, who: str, kind: str, text: str, error: str = "", status: int | None = None) -> None:
        super().__init__(text)
        self.facts = {"who": who, "kind": kind, "text": text[:_LONGEST_ERROR], "error": error, "status": status}

    @classmethod
    def of(cls, who: str, error: Exception) -> "Failed":
        """The failure behind `error`, which a turn of `who` ended in."""
        name = type(error).__name__
        if isinstance(error, json.JSONDecodeError):
            return cls(who, "arguments", f"tool arguments are not JSON: {error.doc!r}", name)
        if isinstance(error, pydantic.ValidationError) and error.title == "ToolCall":
            return cls(who, "arguments", f"a tool call that is none: {error}", name)
        kind = "server" if isinstance(error, openai.OpenAIError) else "unexpected"
        return cls(who, kind, str(error), name, getattr(error, "status_code", None))


class _Speaker:
    """Mixed into an official participant; `speaks` sets it up after its constructor."""

    llm_args: dict[str, Any]

    def speaks(self, who: str, trace: str, retries: int) -> None:
        """Its requests are numbered and carry `trace`; `retries` times one is sent again that a server failed on."""
        self.who, self.trace, self.retries, self.requests = who, trace, retries, 0

    def generate_next_message(self, message: Any, state: Any) -> Any:
        """The official next message, of which there is something."""
        failures = 0
        while True:
            number, self.requests = self.requests, self.requests + 1
            self.llm_args["extra_headers"] = {"X-Request-Id": quote(f"{self.trace}/{number}")}
            # The official method adds to the history before it asks, so each try needs one of its own.
            history = state.model_copy(update={"messages": list(state.messages)})
            try:
                said, after = super().generate_next_message(message, history)  # type: ignore[misc]
            except openai.BadRequestError as error:
                # Servers refuse a prompt + max_tokens beyond the context; without max_tokens they use what is left.
                if self.llm_args.pop("max_tokens", None) is None:
                    raise Failed.of(self.who, error) from error
            except Exception as error:
                status = getattr(error, "status_code", None) or 0
                passing = isinstance(error, openai.OpenAIError) and (status in _TEMPORARY or status >= 500)
                if not passing or failures >= self.retries:
                    raise Failed.of(self.who, error) from error
                time.sleep(min(8.0, 0.5 * 2**failures) * random.uniform(0.75, 1.0))
                failures += 1
            else:
                if not said.has_text_content() and not said.is_tool_call():
                    raise Failed(self.who, "empty", "neither text nor a tool call")
                return said, after


class Agent(_Speaker, api.LLMAgent):
    """The official agent."""


class User(_Speaker, api.UserSimulator):
    """The official user simulator."""


class ScriptedUser(api.UserSimulator):
    """A user without a model: says what it wants, agrees once, and goes."""

    def speaks(self, opening: str) -> None:
        """What it says first."""
        self.lines = (opening, "Yes, please go ahead.", api.STOP)

    def set_seed(self, seed: int) -> None:
        """Nothing of it is random."""

    def generate_next_message(self, message: Any, state: Any) -> Any:
        """The next of its lines."""
        said = sum(isinstance(each, api.UserMessage) for each in state.messages)
        line = api.UserMessage(role="user", content=self.lines[min(said, len(self.lines) - 1)], cost=0.0)
        state.messages.extend([message, line])
        return line, state


def opening_of(task: api.Task) -> str:
    """What a scripted user says first: why it calls, what it knows, and what it was told."""
    told = task.user_scenario.instructions
    if isinstance(told, str):
        return told
    return "\n".join(filter(None, (told.reason_for_call, told.known_info, told.task_instructions)))
