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
import hashlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from verl_slca.errors import PolicyServerFault

T = TypeVar("T")

GROWTH_TOKENS = 256
PREFILL_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one completion is sampled.

    Attributes:
        max_new_tokens: longest completion, in tokens, the stop token included.
        temperature: 0 takes the most likely token.
        top_p: smallest set of most likely tokens with at least this probability; 1 keeps all.
        top_k: number of most likely tokens; -1 or 0 keeps all.
        stop_token_ids: a completion ends with (and includes) the first of these.
        seed: of this request's own random numbers. Equal prompt, weights and seed give the equal completion
            whatever else is in the batch, up to floating-point ties.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")


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


class _SlotLayer(CacheLayerMixin):
    """Keys and values of one layer: (slots, heads, tokens, head_dim), written in place at each row's own position."""

    is_sliding = False

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self.cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        slots, tokens = self.cache.slots, self.cache.tokens
        self.keys = key_states.new_zeros(slots, key_states.shape[1], tokens, key_states.shape[3])
        self.values = value_states.new_zeros(slots, value_states.shape[1], tokens, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        cache = self.cache
        self.keys[cache.write_rows, :, cache.write_positions] = key_states.transpose(1, 2)
        self.values[cache.write_rows, :, cache.write_positions] = value_states.transpose(1, 2)
        return self.keys[cache.read_rows, :, : cache.read_length], self.values[cache.read_rows, :, : cache.read_length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.read_length, 0

    def get_seq_length(self) -> int:
        return self.cache.read_length

    def get_max_cache_shape(self) -> int:
        return self.cache.tokens


class SlotCache(Cache):
    """A key/value cache whose rows are independent: each has its own length, and rows can be copied and swapped.

    `address` says which rows and positions the next forward pass writes and reads; the layers allocate
    themselves on the first pass, so any number and shape of heads works.
    """

    def __init__(self, layers: int, slots: int) -> None:
        self.slots = slots
        self.tokens = 0
        self.write_rows = self.write_positions = torch.empty(0, dtype=torch.long)
        self.read_rows: slice | torch.Tensor = slice(0, 0)
        self.read_length = 0
        super().__init__(layers=[_SlotLayer(self) for _ in range(layers)])

    def address(self, rows: slice | torch.Tensor, starts: torch.Tensor, width: int, read_length: int) -> torch.Tensor:
        """Position ids (B, width) int64 of the next pass, row b writing from starts[b] on."""
        positions = starts[:, None] + torch.arange(width)
        indices = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        self.write_rows = indices[:, None].expand_as(positions)
        self.write_positions = positions
        self.read_rows, self.read_length = rows, read_length
        return positions

    def reserve(self, tokens: int) -> None:
        """Room for `tokens` per row; grows in steps of `GROWTH_TOKENS` and keeps what is there."""
        if tokens <= self.tokens:
            return
        self.tokens = -(-tokens // GROWTH_TOKENS) * GROWTH_TOKENS
        for tensor, layer, name in self._tensors():
            grown = tensor.new_zeros(*tensor.shape[:2], self.tokens, tensor.shape[3])
            grown[:, :, : tensor.shape[2]] = tensor
            setattr(layer, name, grown)

    def copy(self, source: int, target: int, length: int) -> None:
        """The first `length` positions of row `source` also in row `target`."""
        for tensor, _, _ in self._tensors():
            tensor[target, :, :length] = tensor[source, :, :length]

    def swap(self, a: int, b: int, length: int) -> None:
        """Rows `a` and `b` exchanged, as far as `length`."""
        pair, flipped = torch.tensor([a, b]), torch.tensor([b, a])
        for tensor, _, _ in self._tensors():
            tensor[pair, :, :length] = tensor[flipped, :, :length]

    def _tensors(self) -> Iterable[tuple[torch.Tensor, Any, str]]:
        for layer in self.layers:
            if layer.is_initialized:
                yield layer.keys, layer, "keys"
                yield layer.values, layer, "values"


class GenerationEngine:
    """Continuous batching for one model, in one background thread.

    Rows 0 .. n-1 of the cache are running, the rest keep what finished requests left there until another
    request needs the row; a prompt that starts with such a row's tokens does not compute them again.

    Args:
        model: a causal LM in eval mode with full attention in every layer.
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
        self.model = model.eval()
        self.max_rows, self.max_length = max_rows, max_length
        self.generated_tokens = 0
        self._cache = SlotCache(config.num_hidden_layers, max_rows)
        self._running: list[_Request] = []
        self._tokens = np.zeros((max_rows, 0), dtype=np.int64)
        self._lengths = np.zeros(max_rows, dtype=np.int64)
        self._cached = np.zeros(max_rows, dtype=np.int64)
        self._last_used = np.zeros(max_rows, dtype=np.int64)
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
            parked = np.arange(row, self.max_rows)
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
            self._forward(torch.tensor(batch), np.array(batch), width)
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
        read = int(starts.max()) + width
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
        logits = self._forward(slice(0, count), np.arange(count), 1)
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


def sample(logits: torch.Tensor, settings: Sequence[Sampling], uniforms: torch.Tensor) -> tuple[list[int], list[float]]:
    """One token per row and its log-probability, by inverting the cumulative distribution.

    Args:
        logits: (B, V) float32.
        settings: B sampling settings.
        uniforms: (B,) float64 in [0, 1), the row's random number.
    """
    temperature = torch.tensor([s.temperature if s.temperature > 0 else 1.0 for s in settings])
    log_probs = torch.log_softmax(logits / temperature[:, None], dim=-1)
    probs = log_probs.double().exp()
    filtered = [row for row, s in enumerate(settings) if s.top_p < 1 or s.top_k > 0]
    if filtered:
        probs[filtered] = _truncated(probs[filtered], [settings[row] for row in filtered])
    cumulative = probs.cumsum(dim=-1)
    tokens = torch.searchsorted(cumulative, (uniforms * cumulative[:, -1])[:, None], right=True)[:, 0]
    tokens = tokens.clamp(max=logits.shape[1] - 1)
    greedy = torch.tensor([s.temperature == 0 for s in settings])
    tokens = torch.where(greedy, logits.argmax(dim=-1), tokens)
    return tokens.tolist(), log_probs.gather(1, tokens[:, None])[:, 0].tolist()


def _truncated(probs: torch.Tensor, settings: Sequence[Sampling]) -> torch.Tensor:
    """`probs` (B, V) with every token outside top-k, and then outside top-p of the rest, set to 0."""
    ordered, index = probs.sort(dim=-1, descending=True, stable=True)
    vocabulary = probs.shape[1]
    top_k = torch.tensor([s.top_k if s.top_k > 0 else vocabulary for s in settings])
    ordered = ordered.masked_fill(torch.arange(vocabulary) >= top_k[:, None], 0)
    before = ordered.cumsum(dim=-1) - ordered
    top_p = torch.tensor([s.top_p for s in settings], dtype=probs.dtype)[:, None]
    ordered = ordered.masked_fill((before >= top_p * ordered.sum(dim=-1, keepdim=True)) & (top_p < 1), 0)
    return torch.zeros_like(probs).scatter(1, index, ordered)


def uniform_stream(seed: int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1), float64, the same for the same seed on every machine."""
    return np.random.Generator(np.random.Philox(seed)).random(count)


def derived_seed(*parts: object) -> int:
    """A 63-bit seed from values that name a request, the same in every process.

    Example:
        >>> derived_seed(0, "row-7", 1) == derived_seed(0, "row-7", 1)
        True
        >>> derived_seed(0, "row-7", 1) == derived_seed(0, "row-7", 2)
        False
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
