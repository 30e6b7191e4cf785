"""What stands between the simulator's servers and the network: who may ask, by which name, and how much at once."""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from verl_slca.endpoint import LOOPBACK
from verl_slca.errors import ConfigError

TOKEN_VARIABLE = "SLCA_SIMULATOR_TOKEN"
MAX_BODY_BYTES = 1 << 20

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def token_for(host: str) -> str:
    """The token that clients must send to a server on `host`, "" for none.

    Raises:
        ConfigError: other machines could reach the server, and no token is set.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token and host not in LOOPBACK:
        raise ConfigError(
            f"host {host} can be reached from other machines; set a token in the environment variable "
            f"{TOKEN_VARIABLE} (clients send it as 'Authorization: Bearer ...'), or use 127.0.0.1"
        )
    return token


class Guard:
    """An ASGI application that lets only sound requests through to another one.

    - With a token, every request must carry it (401).
    - Without one, the Host header must name the loopback interface (403): a web page that a browser on this machine
      opened cannot ask by a name of its own.
    - No body is longer than `MAX_BODY_BYTES` (413), whatever its Content-Length says.

    Args:
        app: the other one.
        token: what clients must send, "" for none.
    """

    def __init__(self, app: Asgi, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self._wanted and not hmac.compare_digest(headers.get(b"authorization", b""), self._wanted):
            await _refuse(send, 401, "a token is needed: Authorization: Bearer ...")
            return
        if not self._wanted and _hostname(headers.get(b"host", b"")) not in LOOPBACK:
            await _refuse(send, 403, "this server answers to localhost only")
            return
        body = await _body(receive)
        if body is None:
            await _refuse(send, 413, f"the body is longer than {MAX_BODY_BYTES} bytes")
            return
        await self._app(scope, _replayed(body, receive), send)


async def _body(receive: Receive) -> bytes | None:
    """The request's body, None when it is too long."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _hostname(header: bytes) -> str:
    try:
        return urlsplit(f"//{header.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""


async def _refuse(send: Send, status: int, why: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": why.encode()})
