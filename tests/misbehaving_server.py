"""A real OpenAI-compatible server on loopback that misbehaves on demand.

    with MisbehavingServer([refuse(503), "fine"]) as server:      # one answer per request, the last one repeats
        ...                                                       # server.url, server.requests
    with MisbehavingServer(lambda body: reply("late", delay=1)):  # or an answer made from the request's body

It speaks bare HTTP/1.1 over asyncio streams in a thread of its own, so that it can also break the protocol.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What is sent back.

    Attributes:
        body: sent after the head.
        status: HTTP status.
        headers: beside Content-Type and Content-Length.
        delay: seconds before the first byte.
        trickle: seconds between two bytes of the body; 0 sends it at once.
        sent: bytes of the body after which the connection is closed; -1 sends all, 0 not even the head.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    trickle: float = 0.0
    sent: int = -1


@dataclass(frozen=True)
class Received:
    """One request: its headers, names in lower case, and its JSON body."""

    headers: dict[str, str]
    body: dict[str, Any]


def reply(text: str | None, delay: float = 0.0, finish: str = "stop", **message: Any) -> Answer:
    """A sound completion with this text; further fields go into the message."""
    completion = {
        "id": "cmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
    return Answer(json.dumps(completion).encode(), delay=delay)


def refuse(status: int, retry_after: str | None = None, message: str = "broken by the test") -> Answer:
    """An HTTP error."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Answer(json.dumps({"error": {"message": message, "type": "test"}}).encode(), status, headers)


def garbage(body: bytes | str, status: int = 200) -> Answer:
    """A body that is no completion."""
    return Answer(body if isinstance(body, bytes) else body.encode(), status)


def hang_up(sent: int = 0) -> Answer:
    """The connection is closed, after `sent` bytes of a body, or before the head."""
    return Answer(b"x" * (sent + 100), sent=sent)


def trickle(text: str, pause: float) -> Answer:
    """A sound completion that arrives a byte at a time."""
    return Answer(reply(text).body, trickle=pause)


Script = Callable[[dict[str, Any]], Answer | str] | Sequence[Answer | str]


class MisbehavingServer:
    """Serves while the context is open.

    Args:
        script: an answer per request in order, the last one repeating, or a function of the request's body;
            a plain text is a sound reply. May be replaced while it serves.

    Attributes:
        url: ends in ``/v1``; the same after `revive`.
        requests: everything received so far.
        peak: most requests that were in work at once.
    """

    def __init__(self, script: Script = ("ok",)) -> None:
        self.script = script
        self.requests: list[Received] = []
        self.peak = 0
        self._in_work = 0
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> MisbehavingServer:
        self._thread.start()
        self.revive()
        return self

    def __exit__(self, *_: object) -> None:
        self.die()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def die(self) -> None:
        """Stop listening and cut every connection."""
        self._do(self._stop())

    def revive(self) -> None:
        """Listen again, on the same port."""
        self._do(self._start())

    def _do(self, what: Any) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, backlog=1024)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server:
            self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while (received := await _received(reader)) is not None:
                self.requests.append(received)
                self._in_work += 1
                self.peak = max(self.peak, self._in_work)
                try:
                    if not await _send(self._answer(received), writer):
                        break
                finally:
                    self._in_work -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    def _answer(self, received: Received) -> Answer:
        if callable(self.script):
            answer = self.script(received.body)
        else:
            answer = self.script[min(len(self.requests), len(self.script)) - 1]
        return reply(answer) if isinstance(answer, str) else answer


async def _received(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    pairs = (line.split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(headers, json.loads(body) if body else {})


async def _send(answer: Answer, writer: asyncio.StreamWriter) -> bool:
    """True when the connection is still good."""
    await asyncio.sleep(answer.delay)
    if answer.sent == 0:
        return False
    headers = {"Content-Type": "application/json", "Content-Length": str(len(answer.body)), **answer.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {answer.status} X\r\n{head}\r\n".encode())
    body = answer.body if answer.sent < 0 else answer.body[: answer.sent]
    pieces = [body[i : i + 1] for i in range(len(body))] if answer.trickle else [body]
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        if answer.trickle:
            await asyncio.sleep(answer.trickle)
    return answer.sent < 0
