"""OpenAI-compatible servers: which URLs are taken, and how a client of one is made.

Both that ask models, the harness and `llm_client`, come through here, so that keys and proxies are treated alike.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

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
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=os.environ.get("OPENAI_API_KEY") or "none",
        timeout=timeout,
        max_retries=retries,
        http_client=openai.DefaultAsyncHttpxClient(
            trust_env=urlsplit(base_url).hostname not in LOOPBACK, limits=limits
        ),
    )
