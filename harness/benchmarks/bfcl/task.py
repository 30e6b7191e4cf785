"""BFCL as a task of the harness: the official checker's verdicts, on the official requests.

What differs from the official command, on purpose: an answer that is empty, cut off or cannot be decoded is no
abstention (the official verdict is kept beside ours, as ``official``); a sample that failed for reasons not the
model's has no score; an overall is given only where all of its categories were scored.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.benchmarks.bfcl import categories
from harness.benchmarks.bfcl.data import Data
from harness.benchmarks.bfcl.decode import attempts_call
from harness.benchmarks.bfcl.episode import Conversation, play_multi, play_single
from harness.benchmarks.bfcl.names import Mode, originals
from harness.benchmarks.bfcl.pool import Pool, opened
from harness.benchmarks.task import Metric, Model, Outcome, Play, Rescore, Sample, TaskOptions
from harness.policy import ContextOverflowError, check_tools_are_seen
from harness.records import Record
from harness.unread import SETTING, Unread
from verl_slca.config import parse

SECTIONS = ("bfcl",)

METRICS: dict[str, Metric] = {
    "accuracy": Metric("share", "the official checker's verdict; only a real abstention passes irrelevance"),
    "official": Metric("share", "as the official command counts it: what cannot be decoded passes irrelevance"),
    "unparsable": Metric("share", "no call could be read where one was due, or where one was attempted"),
}

READS = {
    "fc": "the server's tool_calls, else the text's hermes blocks (<tool_call>...</tool_call>)",
    "prompt": "the text, a list of Python calls as the official prompt asks for",
}
"""So many samples that want a call, and none of them with one that can be read: the parser does not fit the model."""


@dataclass(frozen=True, slots=True)
class BfclConfig:
    """The section ``bfcl`` of the configuration.

    Attributes:
        version: of the data and its scorer.
        mode: ``"fc"`` offers the functions as tools; ``"prompt"`` describes them in the official system prompt.
        lenient: forgive what stands around the calls (`decode.result_of`); such numbers do not compare.
        stop_unread: end a run in which none of the first answers holds a call that can be read, since most often the
            server's parser does not fit the model; false scores it to its end, for a model that makes no calls.
        sample_seconds: longest that scoring a sample, or playing a step of it, may take.
        memory: most that it may use, in MiB.
    """

    version: Literal["v4", "v3"] = "v4"
    mode: Mode = "fc"
    lenient: bool = False
    stop_unread: bool = True
    sample_seconds: float = 10.0
    memory: int = 1024

    def __post_init__(self) -> None:
        if not self.sample_seconds > 0:
            raise ValueError(f"sample_seconds must be above 0, got {self.sample_seconds}")
        if self.memory < 256:
            raise ValueError(f"memory must be at least 256 MiB, got {self.memory}")


class Bfcl:
    """The task over some categories; see `harness.benchmarks.task.Task`.

    Args:
        data: of one version.
        chosen: categories, by V4's names.
        config: how the model is asked and scored.
    """

    name = "bfcl"
    metrics = METRICS

    def __init__(self, data: Data, chosen: Sequence[str], config: BfclConfig) -> None:
        self.data, self.config = data, config
        self._chosen = tuple(chosen)
        self._kinds = {id: category for category in chosen for id in data.entries(category)}

    @classmethod
    def load(cls, options: TaskOptions) -> Bfcl:
        """The task over the subsets asked for; single-turn and relevance where none were.

        Raises:
            ConfigError: an unknown subset or setting, or an environment that has not been made.
            DataError: data that cannot be read.
        """
        config = parse(BfclConfig, options.settings.get("bfcl"), "bfcl")
        return cls(Data(config.version), categories.selected(options.subsets), config)

    def identity(self) -> dict[str, Any]:
        """The wheel's version, the settings that scores depend on, and the hash of every data file."""
        settings = dataclasses.asdict(self.config)
        del settings[SETTING]
        return {
            "bfcl_eval": self.data.wheel,
            **settings,
            "data": self.data.hashes(self._chosen),
        }

    def samples(self) -> Sequence[Sample]:
        """One sample per entry, its category as kind."""
        return [Sample(id, kind) for id, kind in self._kinds.items()]

    def kind(self, id: str) -> str:
        """The category of a sample."""
        return self._kinds[id]

    @contextlib.asynccontextmanager
    async def session(self, model: Model) -> AsyncIterator[Play]:
        """Enter to get the function that plays and scores one entry."""
        unread = Unread(
            self.name, READS[self.config.mode], ", or set bfcl.mode or bfcl.lenient", self.config.stop_unread
        )
        trusting = self.config.mode == "prompt"
        async with self._pool() as pool:

            async def play(sample: Sample) -> Outcome:
                nonlocal trusting
                outcome = await self._play(sample, model, pool)
                if outcome.status == "model_error":
                    return outcome
                called = bool(outcome.trajectory["verdict"]["calls"])
                if not called and not trusting:
                    trusting = True
                    await check_tools_are_seen(model.client, model.name, f"bfcl/{sample.id}")
                if "irrelevance" not in sample.kind:
                    unread.look(called, str(outcome.trajectory["messages"][-1]))
                return outcome

            yield play

    @contextlib.asynccontextmanager
    async def rescoring(self) -> AsyncIterator[Rescore]:
        """Enter to get the function that scores a saved result again."""
        async with self._pool() as pool:

            async def rescore(record: Record) -> Outcome:
                if "result" not in record.trajectory:
                    return Outcome.of(record)
                said, truncated = record.trajectory, record.status == "truncated"
                verdict = await pool.ask(self._judging(record.id, said["result"]))
                outcome = self._scored(record.id, said["result"], said["messages"], verdict, truncated)
                return dataclasses.replace(outcome, usage=record.usage)

            yield rescore

    async def official_verdicts(self, results: Mapping[str, Any]) -> dict[str, bool]:
        """Whether the official command counts each result as correct, by id.

        Args:
            results: entry id to what the official result files hold for it.
        """
        async with self._pool() as pool:
            verdicts = await pool.ask_all([self._judging(id, result) for id, result in results.items()])
        return {id: verdict.get("valid", False) for id, verdict in zip(results, verdicts, strict=True)}

    def aggregates(self, records: Iterable[Record]) -> Mapping[str, Any]:
        """Non-live, live, multi-turn and both readings of the single-turn overall; see `categories.overalls`."""
        return categories.overalls(records, Counter(self._kinds.values()))

    def _pool(self) -> contextlib.AbstractAsyncContextManager[Pool]:
        return opened(self.data.python, self.config.sample_seconds, self.config.memory)

    async def _play(self, sample: Sample, model: Model, pool: Pool) -> Outcome:
        mode, lenient = self.config.mode, self.config.lenient
        prepared = await pool.ask({"op": "prepare", "id": sample.id, "mode": mode})
        conversation = Conversation(model, sample.id)
        try:
            if sample.kind in categories.MULTI_TURN:
                played = await play_multi(conversation, prepared["turns"], mode, lenient, pool, sample.id)
            else:
                played = await play_single(conversation, prepared["turns"], mode, lenient)
        except ContextOverflowError as error:
            return self._broken(f"the conversation does not fit the model's context: {error}", conversation)
        if played.failure:
            return self._broken(played.failure, conversation)
        verdict = await pool.ask(self._judging(sample.id, played.result))
        outcome = self._scored(sample.id, played.result, conversation.messages, verdict, conversation.truncated)
        return dataclasses.replace(outcome, usage=conversation.usage)

    def _broken(self, reason: str, conversation: Conversation) -> Outcome:
        scores = {"accuracy": 0.0, "official": 0.0, "unparsable": 0.0}
        said = {"messages": conversation.messages}
        return Outcome("model_error", reason, scores=scores, trajectory=said, usage=conversation.usage)

    def _judging(self, id: str, result: Any) -> dict[str, Any]:
        return {"op": "judge", "id": id, "mode": self.config.mode, "result": result}

    def _scored(
        self, id: str, result: Any, messages: Sequence[Mapping[str, Any]], verdict: Mapping[str, Any], truncated: bool
    ) -> Outcome:
        """The outcome of an entry that was played to its end."""
        said: dict[str, Any] = {"messages": list(messages), "result": result}
        if "killed" in verdict:
            reason = f"scoring what it wrote {verdict['killed']}"
            return Outcome("model_error", reason, scores=dict.fromkeys(METRICS, 0.0), trajectory=said)
        kind = self._kinds[id]
        correct, unparsable, error_type, error = verdict["valid"], False, verdict["error_type"], verdict["error"]
        if not verdict["calls"]:
            unparsable = kind not in categories.RELEVANCE or truncated or self._attempted(id, messages[-1])
            if "irrelevance" in kind and unparsable:
                correct, error_type = False, "irrelevance_error:unparsable"
                error = "neither a call nor an abstention: empty, cut off, or a call that cannot be read"
        said["verdict"] = {"calls": verdict["calls"], "error_type": error_type, "error": error}
        scores = {"accuracy": float(correct), "official": float(verdict["valid"]), "unparsable": float(unparsable)}
        if truncated:
            return Outcome("truncated", "a reply was cut off by the token limit", scores=scores, trajectory=said)
        return Outcome("ok", scores=scores, trajectory=said)

    def _attempted(self, id: str, message: Mapping[str, Any]) -> bool:
        functions = self.data.entries(self._kinds[id])[id]["function"]
        return attempts_call(message, originals((function["name"] for function in functions), self.config.mode))
