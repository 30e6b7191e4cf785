"""How a judge asks its model: until the answer is a verdict, and never twice for the same material.

What the judged rollout wrote is shown between markers, and never as instructions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_slca.cutting import cut_middle
from verl_slca.disk_cache import Cache, CacheConfig, DiskCache
from verl_slca.errors import JudgeFault
from verl_slca.llm_client import LlmClient, LlmConfig

MAX_SAID_CHARS = 2_000
"""Longest part of an unusable answer that the model is shown when it is asked again."""
_CUT = "...(cut)..."
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LlmJudgeConfig(LlmConfig):
    """How the judge model is reached and asked; beside the client's own settings (`LlmConfig`).

    Attributes:
        verdicts: times the model is asked before its answer counts as unusable.
        max_response_chars: longest tool response shown to the judge; longer ones are cut in the middle.
        cache: where verdicts are kept; None asks again for the same material.
    """

    timeout: float = 540.0
    attempts: int = 4
    concurrency: int = 50
    max_tokens: int = 8192
    verdicts: int = 3
    max_response_chars: int = 20000
    cache: CacheConfig | None = None

    def __post_init__(self) -> None:
        LlmConfig.__post_init__(self)  # a dataclass with slots is made twice, and super() would find the first
        for name in ("verdicts", "max_response_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


class Asker:
    """Asks one judge model.

    Args:
        config: where and how.
        cache: keeps usable answers by the whole of what was asked.
    """

    def __init__(self, config: LlmJudgeConfig, cache: Cache | None = None) -> None:
        self.config = config
        self._cache = cache
        self._client = LlmClient(config, JudgeFault, "judge")

    def at(self, temperature: float) -> Asker:
        """The same model at another temperature."""
        return Asker(replace(self.config, temperature=temperature), self._cache)

    async def ask(
        self, instructions: str, shown: str, reminder: str, read: Callable[[str], Any], seed: int | None = None
    ) -> str:
        """The model's first answer in which `read` finds a verdict; one that was cut off has none.

        Args:
            instructions: system message.
            shown: what is to be judged.
            reminder: said after an answer without a verdict.
            read: the verdict of an answer, None when it has none.
            seed: of the model's sampling; another seed is another question to the cache.

        Raises:
            JudgeFault: the server failed, or `config.verdicts` answers in a row hold no verdict.
        """
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": shown}]
        if self._cache is None:
            return await self._asked(messages, reminder, read, seed)
        key = self._key(messages, reminder, seed)
        text, _ = await self._cache.get_or_make(key, lambda: self._asked(messages, reminder, read, seed), JudgeFault)
        return text

    async def _asked(
        self, messages: list[dict[str, str]], reminder: str, read: Callable[[str], Any], seed: int | None
    ) -> str:
        said = list(messages)
        for _ in range(self.config.verdicts):
            done = await self._client.complete(said, seed)
            if done.finished and read(done.text) is not None:
                return done.text.encode("utf-8", "replace").decode()  # half a surrogate is in no verdict, and no file
            shown = cut_middle(done.text, MAX_SAID_CHARS, _CUT) or "(nothing)"
            said += [{"role": "assistant", "content": shown}, {"role": "user", "content": reminder}]
        last = f"{'' if done.finished else 'cut off at max_tokens, '}{done.text[-200:]!r}"
        raise JudgeFault("judge_unparsable", f"no verdict in {self.config.verdicts} answers, last: {last}")

    def _key(self, messages: list[dict[str, str]], reminder: str, seed: int | None) -> str:
        used = self.config
        parts = ["judge", used.base_url, used.model, used.temperature, used.seed, used.max_tokens, seed]
        return hashlib.sha256(json.dumps([*parts, reminder, messages]).encode()).hexdigest()


def make_asker(config: LlmJudgeConfig, cache: Cache | None = None) -> Asker:
    """The way to the judge's model; its cache is `cache`, or else the file that `config` names.

    Raises:
        ConfigError: the cache's file cannot be used.
    """
    if cache is None and config.cache is not None:
        cache = DiskCache(config.cache)
    return Asker(config, cache)


def material(question: str, responses: Sequence[str], reply: str, limit: int, calls: Sequence[str] = ()) -> str:
    """What a judge is shown of a rollout, each part between markers.

    Args:
        question: the user's request.
        responses: what the tools answered; each is cut in the middle beyond `limit` characters.
        reply: the last message; "" leaves it out.
        limit: characters of a response that are shown.
        calls: the calls behind the responses, where the judge may see them.
    """
    parts = [f"=== request ===\n{question}"]
    if calls:
        parts.append(
            "=== calls ===\n"
            + "\n".join(f"[call {i}] {cut_middle(call, limit, _CUT)}" for i, call in enumerate(calls, 1))
        )
    shown = "\n".join(f"[result {i}]\n{cut_middle(text, limit, _CUT)}" for i, text in enumerate(responses, start=1))
    parts.append(f"=== tool results ===\n{shown or '(no tool was called)'}")
    if reply:
        parts.append(f"=== message to grade ===\n{reply}")
    return "\n".join([*parts, "=== end ==="])


def without_thought(text: str) -> str:
    """`text` without thinking blocks, one that never closes included."""
    return _THOUGHT.sub("", text)
