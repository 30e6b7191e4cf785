"""An OpenAI-compatible server on loopback whose model follows a script: known answers over real HTTP, at no cost.

It needs the standard library only, knows /v1/models and /v1/chat/completions, and tells samples apart by the
``X-Request-Id: task/sample id/number`` of a request.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from harness.benchmarks.task import Script

NAME = "scripted"


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as it goes over the wire.

    Attributes:
        body: what is sent.
        status: HTTP status.
        content_type: of the body.
        torn: the connection is closed before the promised length is reached.
    """

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    torn: bool = False


class ScriptedServer:
    """A running server; close it, or use it as a context manager.

    Args:
        script: who answers; may be set later.
        models: names it lists and answers to.

    Attributes:
        url: base URL for a client, ends in ``/v1``.
    """

    def __init__(self, script: Script | None = None, models: Sequence[str] = (NAME,)) -> None:
        self.script, self.models = script, list(models)
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def answer(self, sample: str, body: dict[str, Any]) -> Reply:
        """The response to one chat request; a script that fails is the server's error, with its message."""
        if body.get("stream"):
            return error_reply(400, "the scripted server does not stream")
        if self.script is None:
            return error_reply(503, "the scripted server has no script yet")
        try:
            message = self.script(sample, body)
        except Exception as error:  # a script is foreign code; its caller sees a broken server, as it should
            return error_reply(500, f"the script failed on sample {sample!r}: {error!r}")
        spent = sum(len(str(each.get("content") or "")) for each in body["messages"])
        spent += len(json.dumps(body.get("tools") or ""))
        return completion_reply(message, prompt=1 + spent // 4, used=1 + len(json.dumps(message)) // 4)

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def completion_reply(message: Mapping[str, Any], finish: str = "", prompt: int = 1, used: int = 1) -> Reply:
    """A chat completion of that assistant message; it ends as a real server ends one with or without calls."""
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": prompt, "completion_tokens": used, "total_tokens": prompt + used}
    head = {"id": "cmpl-scripted", "object": "chat.completion", "created": 1, "model": NAME}
    return Reply(json.dumps({**head, "choices": [choice], "usage": usage}).encode())


def error_reply(status: int, message: str, code: str | None = None) -> Reply:
    """An error in the form that OpenAI's API gives it."""
    body = {"error": {"message": message, "type": "scripted", "code": code}}
    return Reply(json.dumps(body).encode(), status)


def sample_of(request_id: str) -> str:
    """The sample id in an ``X-Request-Id``, "" when it holds none.

    Example:
        >>> sample_of("tau2/airline/7/0")
        'airline/7'
        >>> sample_of("0f1e")
        \'\'
    """
    parts = unquote(request_id).split("/", 1)
    return parts[1].rsplit("/", 1)[0] if len(parts) == 2 and "/" in parts[1] else ""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    owner: ScriptedServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def do_GET(self) -> None:
        entries = [{"id": name, "object": "model", "owned_by": "local"} for name in self.server.owner.models]
        known = {"/v1/models": {"object": "list", "data": entries}, "/health": {"status": "ok"}}
        if self.path in known:
            self._send(Reply(json.dumps(known[self.path]).encode()))
        else:
            self._send(error_reply(404, f"nothing is at {self.path}"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path != "/v1/chat/completions":
            self._send(error_reply(404, f"nothing is at {self.path}"))
            return
        self._send(self.server.owner.answer(sample_of(self.headers.get("x-request-id", "")), json.loads(body)))

    def _send(self, reply: Reply) -> None:
        self.close_connection = self.close_connection or reply.torn
        length = len(reply.body) + (1000 if reply.torn else 0)
        head = f"HTTP/1.1 {reply.status} {self.responses.get(reply.status, ('',))[0]}\r\n"
        head += f"content-type: {reply.content_type}\r\ncontent-length: {length}\r\n\r\n"
        try:
            self.wfile.write(head.encode() + reply.body)
        except ConnectionError:
            self.close_connection = True  # a client that gave up waiting

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the client's side is logged by whoever asks."""
