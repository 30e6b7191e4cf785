"""The harness's scripted server with a script that sees request bodies only, and replies to break things with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import scripted_server
from harness.scripted_server import Reply, completion_reply, error_reply


def call(name: str, city: str) -> dict[str, Any]:
    return {"name": name, "arguments": {"city": city}}


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def hermes(calls: list[dict[str, Any]]) -> str:
    return "\n".join(f"<tool_call>\n{json.dumps(one)}\n</tool_call>" for one in calls)


def perfect(body: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The gold calls of the next step, then an answer made of the tool responses."""
    messages = body["messages"]
    asked = max(i for i, message in enumerate(messages) if message["role"] == "user")
    truths = {row["reward_model"]["ground_truth"]["question_content"]: row for row in rows}
    steps = json.loads(truths[messages[asked]["content"]]["reward_model"]["ground_truth"]["gold_tool_calls"])
    done = sum(message["role"] == "assistant" for message in messages[asked:])
    if done < len(steps):
        return hermes(steps[done])
    responses = [message["content"] for message in messages[asked:] if message["role"] == "tool"]
    return "Hello there! " + " ".join(responses)


class ScriptedServer(scripted_server.ScriptedServer):
    """`script` makes the text of a reply from the request's body, or a whole message, or a `Reply` to send as it is.

    `delay` is seconds per reply; `bodies` are the requests so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: Callable[[dict[str, Any]], Any] = lambda body: "Hello there!"
        self.delay = 0.0
        self.bodies: list[dict[str, Any]] = []

    def answer(self, sample: str, body: dict[str, Any]) -> Reply:
        self.bodies.append(body)
        time.sleep(self.delay)
        reply = self.script(body)
        return reply if isinstance(reply, Reply) else completion(reply, prompt=100 + len(body.get("tools") or ()))


def completion(reply: str | dict[str, Any], finish: str = "stop", prompt: int = 100, used: int = 10) -> Reply:
    return completion_reply(reply if isinstance(reply, dict) else {"content": reply}, finish, prompt, used)


def torn() -> Reply:
    """A reply whose connection is lost in the middle of its body."""
    return Reply(b'{"id": ', torn=True)


def error(status: int, message: str = "broken by the test", code: str | None = None) -> Reply:
    return error_reply(status, message, code)
