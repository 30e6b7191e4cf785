"""Token generation on a CPU: continuous batching over any Hugging Face decoder with a key/value cache.

In: requests (token ids and sampling settings), at any time and from any thread. Out: one `Completion` each.
A request joins the running batch between two decoding steps and leaves as soon as it is finished, so the
next turn of a conversation never waits for the batch it arrived in. It stands behind the rollout server of
verl on a CPU and behind the harness's own HTTP server; it knows neither.

The state of a request is its tokens and how many of them have their keys and values in the cache. One
token missing: it takes part in the next decoding step. More missing: it is prefilled first. Everything else
follows from that: a prefix that some other row has already computed is copied (the G rollouts of a prompt,
the next turn of a conversation), and new weights only set the cached length to zero.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import torch
from transformers import PreTrainedModel

from verl_slca.errors import PolicyServerFault
from verl_slca.grouped_attention import use_grouped_attention
from verl_slca.reproducible import use_reproducible_kernels
from verl_slca.sampling import Sampling, sample, uniform_stream
from verl_slca.seeds import derived_seed
from verl_slca.slot_cache import SlotCache, whole_steps

__all__ = ["Completion", "GenerationEngine", "Sampling", "derived_seed"]

T = TypeVar("T")

PREFILL_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back for one request.

    Attributes:
        token_ids: sampled tokens, the stop token included.
        log_probs: of each sampled token under softmax(logits / temperature) over the whole vocabulary,
            before top-k and top-p: what verl's actor recomputes. At temperature 0: under softmax(logits).
        stop: the policy wrote a stop token; the limit was reached; the request was aborted.
        cached_tokens: prompt tokens whose keys and values did not have to be computed.
    """

    token_ids: list[int]
    log_probs: list[float]
    stop: Literal["stop", "length", "abort"]
    cached_tokens: int = 0


@dataclass(eq=False)
class _Request:
    key: str
    prompt: np.ndarray
    sampling: Sampling
    uniforms: np.ndarray
    future: Future[Completion]
    sampled: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    cached_tokens: int = 0


class GenerationEngine:
    """Continuous batching for one model, in one background thread.

    Rows 0 .. n-1 of the cache are running, the rest keep what finished requests left there until another
    request needs the row; a prompt that starts with such a row's tokens does not compute them again.

    Args:
        model: a causal LM with full attention in every layer; the engine owns it from here on.
        max_rows: most requests that run at once; more wait.
        max_length: longest prompt plus completion, in tokens.
    """

    def __init__(self, model: PreTrainedModel, max_rows: int = 64, max_length: int = 32768) -> None:
        config = model.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise ValueError(
                f"{config.model_type}: layers of kind {', '.join(sorted(kinds))}; this engine serves models with full "
                "attention only. Use rollout.name=vllm for others."
            )
        use_reproducible_kernels()
        use_grouped_attention(model)
        self.model = model.eval()
        self.max_rows, self.max_length = max_rows, max_length
        self.generated_tokens = 0
        rows = max_rows + max_rows % 2
        self._cache = SlotCache(config.num_hidden_layers, rows)
        self._running: list[_Request] = []
        self._tokens = np.zeros((rows, 0), dtype=np.int64)
        self._lengths = np.zeros(rows, dtype=np.int64)
        self._cached = np.zeros(rows, dtype=np.int64)
        self._last_used = np.zeros(rows, dtype=np.int64)
        self._clock = itertools.count(1)
        self._waiting: deque[_Request] = deque()
        self._commands: deque[Callable[[], None]] = deque()
        self._paused = False
        self._closed = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)
        self._thread.start()

    async def generate(self, prompt: Sequence[int], sampling: Sampling, key: str = "") -> Completion:
        """The completion of `prompt`; see `submit`."""
        return await asyncio.wrap_future(self.submit(prompt, sampling, key))

    def submit(self, prompt: Sequence[int], sampling: Sampling, key: str = "") -> Future[Completion]:
        """A future of the completion of `prompt`.

        Args:
            prompt: token ids, at least one.
            sampling: see `Sampling`; `max_new_tokens` is cut to what `max_length` leaves.
            key: name to abort it by.

        Raises:
            ValueError: an empty prompt, or one that leaves no room for a token.
        """
        tokens = np.asarray(prompt, dtype=np.int64)
        room = self.max_length - len(tokens)
        if len(tokens) == 0 or room < 1:
            raise ValueError(f"prompt of {len(tokens)} tokens; allowed are 1 to {self.max_length - 1}")
        future: Future[Completion] = Future()
        uniforms = uniform_stream(sampling.seed, min(sampling.max_new_tokens, room))
        request = _Request(key, tokens, sampling, uniforms, future)

        def enqueue() -> None:
            self._waiting.append(request)

        self._send(enqueue)
        return future

    def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """The model with `weights` copied in; running requests go on under them, nothing cached survives.

        Raises:
            KeyError: a name the model does not have.
            ValueError: a tensor of another shape.
        """

        def load() -> None:
            own = self.model.state_dict(keep_vars=True)
            for name, tensor in weights:
                if own[name].shape != tensor.shape:
                    raise ValueError(f"weight {name}: shape {tuple(tensor.shape)}, model's {tuple(own[name].shape)}")
                own[name].copy_(tensor)
            self._cached[:] = 0

        self._call(load)

    def clear_cache(self) -> None:
        """Nothing of what was computed so far is reused."""
        self._call(lambda: self._cached.fill(0))

    def pause(self) -> int:
        """Every request ended with ``stop="abort"``, new ones held until `resume`; the number aborted."""

        def stop() -> int:
            self._paused = True
            return self._abort(lambda request: True)

        return self._call(stop)

    def resume(self) -> None:
        """Held requests run again."""

        def go() -> None:
            self._paused = False

        self._call(go)

    def abort(self, key: str) -> int:
        """Requests submitted under `key` ended with ``stop="abort"``; their number."""
        return self._call(lambda: self._abort(lambda request: request.key == key))

    def close(self) -> None:
        """The thread ended and every open request failed with `PolicyServerFault`."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _send(self, command: Callable[[], None]) -> None:
        with self._wake:
            if self._closed:
                raise PolicyServerFault("engine_closed", "the generation engine has been closed or has failed")
            self._commands.append(command)
            self._wake.notify()

    def _call(self, function: Callable[[], T]) -> T:
        """What `function` returns when the engine's thread runs it between two steps."""
        done: Future[T] = Future()

        def command() -> None:
            try:
                done.set_result(function())
            except Exception as error:
                done.set_exception(error)

        self._send(command)
        return done.result()

    def _run(self) -> None:
        fault = PolicyServerFault("engine_closed", "the generation engine was closed")
        try:
            with torch.inference_mode():
                while self._obey():
                    self._admit()
                    self._prefill()
                    self._decode()
        except Exception as error:
            fault = PolicyServerFault("engine_failed", f"{type(error).__name__}: {error}")
            raise
        finally:
            with self._wake:
                self._closed = True
                for command in self._commands:
                    command()
            for request in [*self._running, *self._waiting]:
                if not request.future.cancelled():
                    request.future.set_exception(fault)

    def _obey(self) -> bool:
        """False once closed, else True as soon as there is something to compute; commands carried out meanwhile."""
        while True:
            with self._wake:
                while not (self._commands or self._closed or self._runnable()):
                    self._wake.wait()
                if self._closed:
                    return False
                commands = [self._commands.popleft() for _ in range(len(self._commands))]
            for command in commands:
                command()
            if self._runnable():
                return True

    def _runnable(self) -> bool:
        return bool(self._running or (self._waiting and not self._paused))

    def _admit(self) -> None:
        """Waiting requests moved into rows, each with the longest prefix that some row has."""
        while self._waiting and not self._paused and len(self._running) < self.max_rows:
            request = self._waiting.popleft()
            if not request.future.set_running_or_notify_cancel():
                continue
            row, length = len(self._running), len(request.prompt)
            self._reserve(length + len(request.uniforms))
            source, shared = self._longest_prefix(request.prompt)
            # A parked conversation that goes on keeps its row; else the row unused for longest is given up.
            parked = np.arange(row, len(self._lengths))
            taken = (
                source if row <= source and shared == self._cached[source] else parked[self._last_used[row:].argmin()]
            )
            if taken != source and shared:
                self._cache.copy(int(source), int(taken), int(shared))
            self._cached[taken] = request.cached_tokens = int(shared)
            self._swap(int(taken), row)
            self._tokens[row, :length] = request.prompt
            self._lengths[row] = length
            self._running.append(request)

    def _longest_prefix(self, prompt: np.ndarray) -> tuple[int, int]:
        """The row that has most of the prompt in its cache, and how much; the last token is always computed."""
        width = min(len(prompt) - 1, int(self._cached.max(initial=0)))
        same = self._tokens[:, :width] == prompt[:width]
        same &= np.arange(width) < self._cached[:, None]
        shared = np.logical_and.accumulate(same, axis=1).sum(axis=1)
        source = int(shared.argmax())
        return source, int(shared[source])

    def _prefill(self) -> None:
        """All running rows brought to exactly one token left to compute, equal prompts computed once."""
        rows = [row for row in range(len(self._running)) if self._lengths[row] - self._cached[row] > 1]
        first: dict[bytes, int] = {}
        twins: list[tuple[int, int]] = []
        for row in rows:
            twin = first.setdefault(self._tokens[row, : self._lengths[row] - 1].tobytes(), row)
            if twin != row:
                twins.append((twin, row))
        todo = sorted(first.values(), key=lambda row: self._lengths[row] - self._cached[row])
        while todo:
            batch = [todo.pop()]
            width = int(self._lengths[batch[0]] - self._cached[batch[0]]) - 1
            while todo and width * (len(batch) + 1) <= PREFILL_TOKENS:
                batch.append(todo.pop())
            # An even number of tokens, here and in `_decode`: vector code ends in a scalar loop that rounds otherwise,
            # and feature sizes are multiples of 16 where vectors come in twos of 16.
            self._forward(torch.tensor(batch), np.array(batch), width + width * len(batch) % 2)
        for source, row in twins:
            length = int(self._cached[source])
            self._cache.copy(source, row, length)
            self._running[row].cached_tokens = length
            self._cached[row] = length

    def _forward(self, rows: slice | torch.Tensor, index: np.ndarray, width: int) -> torch.Tensor:
        """Logits (B, V) at the last computed position; up to `width` more tokens of each row in the cache.

        A row with fewer than `width` tokens left is padded: what it writes beyond its length is overwritten
        before any query may look at it.
        """
        starts = self._cached[index]
        # In whole steps: the order of the sums over a row must not depend on how long the longest one is.
        read = whole_steps(int(starts.max()) + width)
        self._reserve(read)
        positions = self._cache.address(rows, torch.from_numpy(starts), width, read)
        tokens = np.take_along_axis(self._tokens[index], positions.numpy(), axis=1)
        mask = (torch.arange(read) <= positions[:, :, None])[:, None]
        output = self.model(
            input_ids=torch.from_numpy(tokens),
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cached[index] = np.minimum(starts + width, np.maximum(self._lengths[index] - (width > 1), starts))
        return output.logits[:, -1].float()

    def _decode(self) -> None:
        """One more token for every running row, sampled; finished rows leave."""
        count = len(self._running)
        if count == 0:
            return
        even = count + count % 2  # an odd one's parked neighbour computes its own next token, or overwrites nothing
        logits = self._forward(slice(0, even), np.arange(even), 1)[:count]
        settings = [request.sampling for request in self._running]
        uniforms = [request.uniforms[len(request.sampled)] for request in self._running]
        tokens, log_probs = sample(logits, settings, torch.tensor(np.array(uniforms)))
        self.generated_tokens += count
        for row in reversed(range(count)):
            request = self._running[row]
            request.sampled.append(tokens[row])
            request.log_probs.append(log_probs[row])
            if tokens[row] in request.sampling.stop_token_ids:
                self._finish(row, "stop")
            elif len(request.sampled) == len(request.uniforms):
                self._finish(row, "length")
            else:
                self._tokens[row, self._lengths[row]] = tokens[row]
                self._lengths[row] += 1

    def _finish(self, row: int, stop: Literal["stop", "length", "abort"]) -> None:
        request = self._running[row]
        last = len(self._running) - 1
        self._swap(row, last)
        self._running.pop()
        self._last_used[last] = next(self._clock)
        request.future.set_result(Completion(request.sampled, request.log_probs, stop, request.cached_tokens))

    def _abort(self, chosen: Callable[[_Request], bool]) -> int:
        rows = [row for row in range(len(self._running)) if chosen(self._running[row])]
        queued = [request for request in self._waiting if chosen(request)]
        for row in reversed(rows):
            self._finish(row, "abort")
        for request in queued:
            self._waiting.remove(request)
            if request.future.set_running_or_notify_cancel():
                request.future.set_result(Completion([], [], "abort"))
        return len(rows) + len(queued)

    def _swap(self, a: int, b: int) -> None:
        if a == b:
            return
        self._cache.swap(a, b, int(max(self._cached[a], self._cached[b])))
        for array in (self._tokens, self._lengths, self._cached, self._last_used):
            array[[a, b]] = array[[b, a]]
        if a < len(self._running) and b < len(self._running):
            self._running[a], self._running[b] = self._running[b], self._running[a]

    def _reserve(self, tokens: int) -> None:
        self._cache.reserve(tokens)
        missing = self._cache.tokens - self._tokens.shape[1]
        if missing > 0:
            self._tokens = np.pad(self._tokens, ((0, 0), (0, missing)))
