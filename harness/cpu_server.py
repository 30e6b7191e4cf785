"""Our own OpenAI-compatible server for a machine without a GPU: a Hugging Face folder, its chat template, text.

    python -m harness.cpu_server --model FOLDER --name NAME --fd LISTENING_SOCKET --max-rows 16

It answers /v1/chat/completions, /v1/completions, /v1/models and /health; greedy or seeded sampling, one
choice, no streaming. Tool calls stay in the text, as in training, unless a request says ``tool_choice: auto``:
then they are taken apart, as by vLLM's hermes parser.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import time
import uuid
from collections.abc import Sequence
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl_slca.cpu_engine import GenerationEngine, Sampling
from verl_slca.parsing import parse_turn
from verl_slca.rows import for_template

_DISCONNECT_POLL_SECONDS = 1.0


class _Common(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str = ""
    temperature: float = Field(1.0, ge=0.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    n: int = 1
    stream: bool = False


class ChatRequest(_Common):
    """Body of /v1/chat/completions; other fields are ignored."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None


class CompletionRequest(_Common):
    """Body of /v1/completions; other fields are ignored."""

    prompt: str | list[int]


class RefusedError(Exception):
    """A request that cannot be answered; becomes a 400."""

    def __init__(self, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.code = code


class Server:
    """One model, its tokenizer and the engine that runs it.

    Args:
        folder: Hugging Face checkpoint.
        name: the name it is served under.
        max_rows: requests that run at once; more wait.
    """

    def __init__(self, folder: str, name: str, max_rows: int) -> None:
        self.name = name
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.context = int(model.config.get_text_config().max_position_embeddings)
        self.engine = GenerationEngine(model, max_rows=max_rows, max_length=self.context)
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        self.stop_ids = tuple({end for end in [*ends, self.tokenizer.eos_token_id] if end is not None})

    def chat_prompt(self, body: ChatRequest) -> list[int]:
        """Token ids of the conversation under the checkpoint's chat template, generation prompt included."""
        if body.tools and "tools" not in str(self.tokenizer.chat_template):
            raise RefusedError(
                "the chat template of this checkpoint does not show tools, so the model would never see those of the "
                "request; ask without them (BFCL: set bfcl.mode to prompt) or give it a template that does",
                "tools_not_supported",
            )
        messages = [_with_decoded_arguments(message) for message in body.messages]
        try:
            text = self.tokenizer.apply_chat_template(
                messages,
                tools=[for_template(tool) for tool in body.tools] if body.tools else None,
                add_generation_prompt=True,
                tokenize=False,
            )
        except Exception as error:  # a template is foreign code: whatever it raises is about these messages
            raise RefusedError(f"the chat template refused the messages: {error}") from error
        return self.tokenizer(text, add_special_tokens=False).input_ids

    async def complete(self, request: Request, body: _Common, prompt: Sequence[int]) -> tuple[str, str, dict[str, int]]:
        """Text, finish reason and usage of one completion.

        Raises:
            RefusedError: unsupported options, or a prompt that leaves no room in the context.
        """
        if body.stream or body.n != 1:
            raise RefusedError("stream and n > 1 are not supported by this server")
        if body.model not in ("", self.name):
            raise RefusedError(f"model {body.model!r} is not served here, {self.name!r} is", "model_not_found")
        if not 0 < len(prompt) < self.context:
            raise RefusedError(
                f"This model's maximum context length is {self.context} tokens; the prompt has {len(prompt)}",
                "context_length_exceeded",
            )
        room = self.context - len(prompt)
        asked = body.max_completion_tokens or body.max_tokens or room
        sampling = Sampling(
            max_new_tokens=min(asked, room),
            temperature=body.temperature,
            top_p=body.top_p,
            stop_token_ids=self.stop_ids,
            seed=body.seed,
        )
        key = uuid.uuid4().hex
        generation = asyncio.ensure_future(self.engine.generate(prompt, sampling, key))
        while not (await asyncio.wait({generation}, timeout=_DISCONNECT_POLL_SECONDS))[0]:
            if await request.is_disconnected():
                await asyncio.to_thread(self.engine.abort, key)
        completion = generation.result()
        ids = completion.token_ids
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
        return self.tokenizer.decode(ids, skip_special_tokens=True), completion.stop, usage


def make_app(server: Server) -> FastAPI:
    """The HTTP application over `server`."""
    app = FastAPI(title="slca-eval CPU server")

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> JSONResponse:
        body = {"message": str(error), "type": "invalid_request_error", "code": error.code}
        return JSONResponse({"error": body}, status_code=400)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        entry = {"id": server.name, "object": "model", "owned_by": "local", "max_model_len": server.context}
        return {"object": "list", "data": [entry]}

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> dict[str, Any]:
        text, finish, usage = await server.complete(request, body, server.chat_prompt(body))
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if body.tools and body.tool_choice == "auto" and (calls := _calls(text)):
            message |= {"content": text.partition("<tool_call>")[0].strip() or None, "tool_calls": calls}
            finish = "tool_calls" if finish == "stop" else finish
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return _reply("chat.completion", server.name, choice, usage)

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> dict[str, Any]:
        ids = body.prompt if isinstance(body.prompt, list) else server.tokenizer(body.prompt).input_ids
        text, finish, usage = await server.complete(request, body, ids)
        return _reply("text_completion", server.name, {"index": 0, "text": text, "finish_reason": finish}, usage)

    return app


def _reply(kind: str, model: str, choice: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
    head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}
    return {**head, "choices": [choice], "usage": usage}


def _calls(text: str) -> list[dict[str, Any]]:
    """The calls of a turn as the API gives them; none where a block is malformed, which leaves the text as it is."""
    turn = parse_turn(text)
    if any(block.error for block in turn.blocks):
        return []
    functions = [{"name": call.name, "arguments": json.dumps(call.arguments)} for call in turn.calls]
    return [{"id": f"call-{uuid.uuid4().hex}", "type": "function", "function": function} for function in functions]


def _with_decoded_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its calls' arguments as objects, which is what chat templates expect to find."""
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        function = dict(call.get("function", {}))
        if isinstance(function.get("arguments"), str):
            try:
                function["arguments"] = json.loads(function["arguments"])
            except ValueError as error:
                raise RefusedError(f"arguments of {function.get('name')!r} are not JSON: {error}") from error
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Hugging Face folder")
    parser.add_argument("--name", required=True, help="name to serve it under")
    parser.add_argument("--fd", required=True, type=int, help="file descriptor of a listening socket")
    parser.add_argument("--max-rows", required=True, type=int, help="requests that run at once")
    options = parser.parse_args()
    app = make_app(Server(options.model, options.name, options.max_rows))
    with socket.socket(fileno=options.fd) as listener:
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
