"""A few rows in the RL schema, and a real HTTP server on loopback whose model follows a script."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "weather-now", "description": "Weather of a city.", "parameters": CITY}},
    {"type": "function", "function": {"name": "city-population", "description": "People.", "parameters": CITY}},
]
SYSTEM = "# Tools\n<tools>\n" + "\n".join(json.dumps(tool) for tool in TOOLS) + "\n</tools>"


def call(name: str, city: str) -> dict[str, Any]:
    return {"name": name, "arguments": {"city": city}}


def make_row(question: str, steps: list[list[dict[str, Any]]], subset: str) -> dict[str, Any]:
    truth = {
        "question_content": question,
        "allowed_tools": [tool["function"]["name"] for tool in TOOLS],
        "tool_schemas": json.dumps(TOOLS),
        "gold_tool_calls": json.dumps(steps),
        "subset_name": subset,
    }
    return {
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
        "data_source": "toucan_toolcall",
        "tools": json.dumps(TOOLS),
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {},
    }


def make_rows(count: int) -> list[dict[str, Any]]:
    rows = []
    for i in range(count):
        city = f"City{i}"
        weather, people = call("weather-now", city), call("city-population", city)
        question, steps, subset = [
            (f"What is the weather in {city}?", [[weather]], "single"),
            (f"Weather and population of {city}?", [[weather, people]], "parallel"),
            (f"Weather of {city}, and then its population?", [[weather], [people]], "chain"),
            (f"Say hello to {city}.", [], "none"),
        ][i % 4]
        rows.append(make_row(question, steps, subset))
    return rows


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


class ScriptedServer:
    """An OpenAI-compatible server in a thread.

    `script` makes the text of a reply from the request's body, or a whole message, or a `Response` to send as it
    is; `delay` is seconds per reply.
    """

    def __init__(self) -> None:
        self.script: Callable[[dict[str, Any]], Any] = lambda body: "Hello there!"
        self.delay = 0.0
        self.bodies: list[dict[str, Any]] = []
        self.models = ["scripted"]
        app = FastAPI()
        app.get("/v1/models")(self._models)
        app.post("/v1/chat/completions")(self._chat)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    async def _models(self) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "t"} for name in self.models]}

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if self.delay:
            await asyncio.sleep(self.delay)
        reply = self.script(body)
        if isinstance(reply, Response):
            return reply
        return JSONResponse(completion(reply))

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(5)
        self._socket.close()


def completion(reply: str | dict[str, Any], finish: str = "stop", prompt: int = 100, used: int = 10) -> dict[str, Any]:
    message = reply if isinstance(reply, dict) else {"role": "assistant", "content": reply}
    return {
        "id": "cmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": used, "total_tokens": prompt + used},
    }


def torn() -> Response:
    """A reply whose connection is lost in the middle of its body."""

    async def half() -> Any:
        yield b'{"id": '
        raise ConnectionResetError("cut here by the test")

    return StreamingResponse(half(), headers={"content-length": "1000"}, media_type="application/json")


def error(status: int, message: str = "broken by the test", code: str | None = None) -> Response:
    return JSONResponse({"error": {"message": message, "type": "test", "code": code}}, status_code=status)


def run_quietly(arguments: list[str]) -> None:
    """`slca-eval` with these arguments, as the whole of a child process."""
    from harness.cli import main

    sys.argv = ["slca-eval", *arguments]
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    main()
