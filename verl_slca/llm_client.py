"""One chat client for everything that asks a frozen model: the simulator's `llm` backend and the judges.

Messages in, a `Completion` out, or the caller's own typed fault. Passing trouble (a timeout, a lost connection, 429,
5xx, a body that is no completion) is retried with growing, jittered pauses; what remains is a fault of one of six
kinds. Connections belong to an event loop, and verl runs several in one process: each loop has its own.
"""

from __future__ import annotations

import asyncio
import atexit
import email.utils
import json
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import tenacity

from verl_slca.endpoint import holds_secret, open_session
from verl_slca.errors import InfrastructureFault

if TYPE_CHECKING:
    import aiohttp

FIRST_PAUSE = 0.5
"""Seconds before the second attempt; each further pause doubles. Up to as much is added at random."""
MAX_PAUSE = 30.0
"""Seconds that a pause grows to by itself."""
MAX_RETRY_AFTER = 120.0
"""Seconds a server may ask us to wait; one that asks for more is not asked again."""
_MAX_DETAIL = 500


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """How a model is reached. Its key comes from the environment variable OPENAI_API_KEY only.

    Attributes:
        base_url: OpenAI-compatible endpoint, ending in its version.
        model: model name at that endpoint.
        timeout: seconds one attempt may take, from sending to the last byte.
        attempts: requests sent before the server counts as failed.
        concurrency: requests in flight at once, per process (per event loop, where there are several) of all clients
            with this configuration.
        max_tokens: longest completion, in tokens, reasoning included.
        temperature: 0 is greedy.
        seed: sent with every request; None sends none, for servers that refuse the field.
    """

    base_url: str = "http://127.0.0.1:8016/v1"
    model: str = "gpt-oss-120b"
    timeout: float = 120.0
    attempts: int = 6
    concurrency: int = 64
    max_tokens: int = 4096
    temperature: float = 0.0
    seed: int | None = 0

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url must be an http or https URL, e.g. http://127.0.0.1:8000/v1")
        if holds_secret(self.base_url):
            raise ValueError("base_url must hold no user, password or query; keys come from OPENAI_API_KEY only")
        if not self.model:
            raise ValueError("model must name a model at base_url")
        if self.timeout <= 0:
            raise ValueError(f"timeout must be positive, got {self.timeout}")
        for name in ("attempts", "concurrency", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0.0 <= self.temperature <= 2.0:
            raise ValueError(f"temperature must be in [0, 2], got {self.temperature}")


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model wrote, and what it cost.

    Attributes:
        text: the message's content, "" when there is none (e.g. all of it went into reasoning).
        finished: False when `max_tokens` cut it off.
        prompt_tokens: as the server counts them; 0 when it does not say.
        completion_tokens: the same, reasoning included.
        seconds: wall time of all attempts, pauses and the wait for a free slot included.
        attempts: requests that were sent.
    """

    text: str
    finished: bool = True
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    attempts: int = 1


class _MalformedError(Exception):
    """The server answered 200 with something that is no completion."""


class _StatusError(Exception):
    """The server answered with an HTTP error.

    Attributes:
        status: its number.
        retry_after: seconds the server asks to wait, 0 when it asks for nothing.
    """

    def __init__(self, status: int, retry_after: float, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}")
        self.status = status
        self.retry_after = retry_after


_TROUBLE = (TimeoutError, ConnectionError, _StatusError, ValueError, RecursionError, _MalformedError)
"""What a request can end in; the last three: a body that is no JSON, nests without end, or is no completion."""


class LlmClient:
    """Asks one model; safe to share between coroutines, threads and event loops.

    Args:
        config: where and how.
        fault: makes what is raised on failure from a kind and a detail, e.g. `JudgeFault`.
        prefix: of the kinds: ``<prefix>_timeout``, ``_unreachable``, ``_rate_limit``, ``_malformed``, ``_refused``
            (the request is wrong for this server: key, model, length, a field it does not know), ``_error``.
    """

    def __init__(self, config: LlmConfig, fault: Callable[[str, str], InfrastructureFault], prefix: str) -> None:
        self.config = config
        self._fault = fault
        self._prefix = prefix

    async def complete(
        self,
        messages: Sequence[Mapping[str, str]],
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
    ) -> Completion:
        """The model's next message.

        Args:
            messages: role and content each.
            seed: in place of the config's, unless that is None.
            response_format: sent as it is; None sends none.

        Raises:
            InfrastructureFault: from the factory: the server failed, `config.attempts` times or for good.
        """
        session, slots, _ = await _line(self.config)
        body: dict[str, Any] = {
            "model": self.config.model,
            # Policies can write lone surrogates, which no request can carry.
            "messages": [{name: _encodable(text) for name, text in message.items()} for message in messages],
            "max_tokens": self.config.max_tokens,
            "temperature": self.config.temperature,
        }
        if self.config.seed is not None:
            body["seed"] = self.config.seed if seed is None else seed
        if response_format is not None:
            body["response_format"] = response_format
        started, attempts = time.perf_counter(), 0
        try:
            async for attempt in tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(self.config.attempts),
                wait=_pause,
                retry=tenacity.retry_if_exception(_passes),
                reraise=True,
            ):
                with attempt:
                    attempts += 1
                    async with slots:
                        reply = await _post(session, f"{self.config.base_url.rstrip('/')}/chat/completions", body)
                    text, finished, prompt, completion = _read(reply)
        except _TROUBLE as error:
            self._raise(error)
        return Completion(text, finished, prompt, completion, time.perf_counter() - started, attempts)

    def _raise(self, error: Exception) -> NoReturn:
        detail = str(error)
        if isinstance(error, TimeoutError):
            kind, detail = "timeout", f"no answer within {self.config.timeout} s"
        elif isinstance(error, ConnectionError):
            kind = "unreachable"
        elif not isinstance(error, _StatusError):
            kind = "malformed"
        elif error.status == 429:
            kind = "rate_limit"
        else:
            kind = "refused" if error.status < 500 else "error"
        # A server may repeat the key in its message. The cause is cut off: it holds the request with its headers.
        key = os.environ.get("OPENAI_API_KEY")
        detail = detail.replace(key, "***") if key else detail
        raise self._fault(f"{self._prefix}_{kind}", f"{self.config.base_url}: {detail[:_MAX_DETAIL]}") from None


async def _post(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any]) -> Any:
    """The decoded answer. Raises one of `_TROUBLE`."""
    import aiohttp  # not at the top: most processes never ask a model

    try:
        async with session.post(url, json=body) as response:
            content = await response.read()
    except aiohttp.ClientError as error:
        if isinstance(error, TimeoutError):
            raise
        raise ConnectionError(str(error) or type(error).__name__) from error
    if not response.ok:
        wait = _retry_after(response.headers.get("Retry-After", ""))
        raise _StatusError(response.status, wait, content.decode("utf-8", "replace"))
    return json.loads(content)


async def _opened(config: LlmConfig) -> AsyncGenerator[aiohttp.ClientSession]:
    """One session, closed with its event loop: `asyncio.run` ends by closing the loop's asynchronous generators."""
    async with open_session(config.base_url, config.timeout) as session:
        yield session


_Line = tuple["aiohttp.ClientSession", asyncio.Semaphore, AsyncGenerator["aiohttp.ClientSession"]]
_lines: dict[tuple[asyncio.AbstractEventLoop, LlmConfig], _Line] = {}
_guard = threading.Lock()


async def _line(config: LlmConfig) -> _Line:
    """What the running loop asks through: session, free slots, and what holds the session open."""
    key = (asyncio.get_running_loop(), config)
    if key not in _lines:
        opened = _opened(config)
        line = (await anext(opened), asyncio.Semaphore(config.concurrency), opened)
        with _guard:
            for gone in [known for known in _lines if known[0].is_closed()]:
                del _lines[gone]
            _lines[key] = line
    return _lines[key]


@atexit.register
def _end_loops() -> None:
    """The end that `asyncio.run` makes of a loop, for those that were stopped without it, as Ray's are."""
    for loop in {loop for loop, _ in _lines}:
        if not loop.is_running() and not loop.is_closed():
            loop.run_until_complete(loop.shutdown_asyncgens())


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _passes(error: BaseException) -> bool:
    """Whether trouble of this kind may be over at the next attempt."""
    if isinstance(error, _StatusError):
        passing = error.status in (408, 409, 429) or error.status >= 500
        return passing and error.retry_after <= MAX_RETRY_AFTER
    return isinstance(error, _TROUBLE)


def _pause(state: tenacity.RetryCallState) -> float:
    """Seconds until the next attempt: never less than the server asked for."""
    error = state.outcome.exception() if state.outcome else None
    grown = tenacity.wait_exponential(multiplier=FIRST_PAUSE, max=MAX_PAUSE) + tenacity.wait_random(0, FIRST_PAUSE)
    return max(grown(state), error.retry_after if isinstance(error, _StatusError) else 0.0)


def _retry_after(wanted: str) -> float:
    """Seconds that a Retry-After header asks for, 0 when it asks for nothing."""
    try:
        seconds = float(wanted)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(wanted).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return seconds if seconds > 0 else 0.0


def _read(reply: Any) -> tuple[str, bool, int, int]:
    """(text, finished, prompt tokens, completion tokens) of a completion. Raises `_MalformedError`."""
    try:
        choice = reply["choices"][0]
        content = choice["message"].get("content")
    except (TypeError, KeyError, IndexError, AttributeError):
        raise _MalformedError(f"not a chat completion: {str(reply)[:200]!r}") from None
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    if not isinstance(content, str | None):
        raise _MalformedError(f"content is no text: {str(content)[:200]!r}")
    usage = reply.get("usage")
    counts = [usage.get(key) if isinstance(usage, dict) else 0 for key in ("prompt_tokens", "completion_tokens")]
    prompt, completion = (count if type(count) is int and count > 0 else 0 for count in counts)
    return content or "", choice.get("finish_reason") != "length", prompt, completion
