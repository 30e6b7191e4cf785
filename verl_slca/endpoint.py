"""OpenAI-compatible servers: which URLs are taken, and how a client of one is made.

Both that ask models, the harness and `llm_client`, come through here, so that keys and proxies are treated alike.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from verl_slca.errors import ConfigError

if TYPE_CHECKING:
    import aiohttp
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


def connect(base_url: str, timeout: float, retries: int = 0) -> openai.AsyncOpenAI:
    """A client of that server; its key comes from OPENAI_API_KEY and from nowhere else.

    Args:
        base_url: ends in the version, e.g. ``http://localhost:8000/v1``; one on loopback is asked without a proxy.
        timeout: seconds one request may take.
        retries: how often a request is sent again after a timeout, a lost connection, 429 or 5xx.
    """
    import openai  # not at the top: most processes never ask a model, and it costs each 0.8 s

    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=_key(),
        timeout=timeout,
        max_retries=retries,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=urlsplit(base_url).hostname not in LOOPBACK),
    )


def open_session(base_url: str, timeout: float) -> aiohttp.ClientSession:
    """Bare connections to that server for the running event loop, with its key and proxy as `connect` has them.

    For who asks hundreds of times a second: a call takes a fifth of the processor time of one through `connect`.

    Args:
        base_url: the same.
        timeout: seconds one request may take, from sending to the last byte.

    Raises:
        ConfigError: the environment names a proxy that is none for HTTP.
    """
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        headers={"Authorization": f"Bearer {_key()}"},
        timeout=aiohttp.ClientTimeout(total=timeout),
        proxy=_proxy_for(base_url),
    )


def _key() -> str:
    return os.environ.get("OPENAI_API_KEY") or "none"


def _proxy_for(base_url: str) -> str | None:
    url = urlsplit(base_url)
    if url.hostname in LOOPBACK or proxy_bypass(url.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy:
        return None
    kind, there, _ = proxy.rpartition("://")
    if there and kind not in ("http", "https"):
        raise ConfigError(f"the environment names a {kind} proxy for {base_url}; name an HTTP proxy, or set no_proxy")
    return proxy if there else f"http://{proxy}"
