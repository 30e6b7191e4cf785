"""OpenAI-compatible servers: which URLs are taken, and how a client of one is made.

Both that ask models, the harness and `llm_client`, come through here, so that keys and proxies are treated alike.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

if TYPE_CHECKING:
    import openai

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine, for this machine only."""


def holds_secret(url: str) -> bool:
    """Whether a URL has a place in which keys are passed: a user, a password or a query.

    Example:
        >>> holds_secret("http://localhost:8000/v1"), holds_secret("https://me:pw@host/v1")
        (False, True)
    """
    parts = urlsplit(url)
    return bool(parts.username or parts.password or parts.query)


def connect(base_url: str, timeout: float, retries: int = 0, connections: int | None = None) -> openai.AsyncOpenAI:
    """A client of that server; its key comes from OPENAI_API_KEY and from nowhere else.

    Args:
        base_url: ends in the version, e.g. ``http://localhost:8000/v1``; one on loopback is asked without a proxy.
        timeout: seconds one request may take.
        retries: how often a request is sent again after a timeout, a lost connection, 429 or 5xx.
        connections: most connections at once, all of them kept open; None takes the client's own limits.
    """
    import openai  # not at the top: most processes never ask a model, and it costs each 0.8 s

    limits = openai.DEFAULT_CONNECTION_LIMITS
    if connections is not None:
        limits = type(limits)(max_connections=connections, max_keepalive_connections=connections)
    outside = urlsplit(base_url).hostname not in LOOPBACK
    # Proxies are left to httpx: to aiohttp a SOCKS proxy is one that speaks HTTP.
    proxied = outside and getproxies().keys() - {"no"}
    make_client = openai.DefaultAsyncHttpxClient if proxied else _aiohttp_client()
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=os.environ.get("OPENAI_API_KEY") or "none",
        timeout=timeout,
        max_retries=retries,
        http_client=make_client(trust_env=outside, limits=limits),
    )


@functools.cache
def _aiohttp_client() -> type[Any]:
    """openai's client over aiohttp, for half of the processor time, or a quarter with 200 requests in flight."""
    import aiohttp
    import openai

    # httpx, or httpx2 from openai 3 on.
    http = importlib.import_module(type(openai.DEFAULT_CONNECTION_LIMITS).__module__.partition(".")[0])

    class Client(openai.DefaultAioHttpClient):
        async def send(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return await super().send(*args, **kwargs)
            except http.ConnectTimeout as error:
                # It calls every lost connection a timeout (openai/openai-python#3594, httpx-aiohttp 0.2.0).
                if isinstance(error.__cause__, TimeoutError):
                    raise
                raise http.NetworkError(str(error)) from error.__cause__
            except aiohttp.ClientError as error:  # and lets through what it does not know, as an answer that is no HTTP
                raise http.RemoteProtocolError(str(error)) from error

    return Client
