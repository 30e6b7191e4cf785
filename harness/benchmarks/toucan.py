"""Toucan-Test, or any file of rows in its schema: the training episode and the training scorer, held-out rows.

A row becomes an episode (`verl_slca.episode`) with its tools played by SGLS, and its trajectory is scored by
HierR. What the paper and its release call "success" is three things; each is reported under its own name
(method, section 8).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.benchmarks.task import Metric, Model, Outcome, Play, Rescore, Sample, TaskOptions
from harness.policy import ChatPolicy, ContextOverflowError, check_tools_are_seen
from harness.records import Record, Usage, file_hash
from harness.unread import Unread
from verl_slca.config import parse
from verl_slca.episode import Limits, run_episode
from verl_slca.errors import ConfigError, DataError
from verl_slca.hierr.process import success_at
from verl_slca.hierr.reward import HierrConfig, HierrReward, make_judge, score_rollout
from verl_slca.hierr.summary import SummaryJudge
from verl_slca.model_families import family_warning
from verl_slca.parsing import parse_turn
from verl_slca.rows import Gold, Row, listed, load_rows
from verl_slca.seeds import derived_seed
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import Trajectory

_log = logging.getLogger(__name__)
SECTIONS = ("toucan", "hierr", "sgls")
"""Sections of the configuration file: the task's settings, and the scorer's and the simulator's, as in training."""


@dataclasses.dataclass(frozen=True, slots=True)
class ToucanConfig:
    """Settings of the section `toucan`.

    Attributes:
        stop_unread: end a run in which none of the first answers to rows with gold calls holds one that can be read;
            false scores it to its end.
    """

    stop_unread: bool = True


METRICS: dict[str, Metric] = {
    "success@0.9": Metric("share", "process reward reaches 0.9: the paper's Success@0.9"),
    "score_success@0.9": Metric("share", "(process + summary) / 2 reaches 0.9: the release's success@0.9"),
    "tool_success@0.9": Metric("share", "name F1 reaches 0.9: the release's tool_success@0.9"),
    "process": Metric("mean", "process reward in [0, 1]"),
    "summary": Metric("mean", "summary reward in [0, 1]"),
    "score": Metric("mean", "weighted sum of both, the scalar that stock GRPO trains on"),
    "name_f1": Metric("mean", "multiset F1 of tool names"),
    "arg_match": Metric("mean", "(key + value) / 2 of the arguments: the paper's ArgMatch"),
    "parallel": Metric("mean", "first step has as many calls as the gold's"),
    "tool_turns": Metric("count", "turns that attempted a call"),
    "calls": Metric("count", "well-formed calls"),
    "extra_calls": Metric("count", "calls beyond the gold's, by name"),
    "duplicate_calls": Metric("count", "calls equal to an earlier one of the same rollout, arguments included"),
    "invalid_calls": Metric("count", "calls answered with an error: malformed, unknown tool, invalid arguments"),
    "response_tokens": Metric("count", "tokens the model wrote"),
}


class Toucan:
    """The task over one file of rows; see `harness.benchmarks.task.Task`.

    Args:
        rows: checked rows; sample ids are their number and content hash.
        data_hash: of the file they came from.
        hierr: the scorer's settings.
        sgls: the simulator's settings.
        limits: where an episode ends.
        config: the task's own settings.

    Attributes:
        rows: by sample id.
    """

    name = "toucan"
    metrics = METRICS

    def __init__(
        self,
        rows: Sequence[Row],
        data_hash: str,
        hierr: HierrConfig,
        sgls: SglsConfig,
        limits: Limits,
        config: ToucanConfig,
    ) -> None:
        self.rows = {f"{number:06d}-{row.key}": row for number, row in enumerate(rows)}
        self._data_hash, self._hierr, self._sgls, self._limits = data_hash, hierr, sgls, limits
        self._config, self._simulator = config, Simulator(sgls)

    @classmethod
    def load(cls, options: TaskOptions) -> Toucan:
        """The task over ``--data``.

        Raises:
            ConfigError: no ``--data``, or unknown settings.
            DataError: rows that cannot be used, or tools that cannot be simulated.
        """
        if options.data is None:
            raise ConfigError("--tasks toucan needs --data FILE, rows in the Toucan RL schema (.parquet or .jsonl)")
        hierr = parse(HierrConfig, options.settings.get("hierr"), "hierr")
        sgls = parse(SglsConfig, options.settings.get("sgls"), "sgls")
        config = parse(ToucanConfig, options.settings.get("toucan"), "toucan")
        task = cls(load_rows(options.data), file_hash(options.data), hierr, sgls, options.limits, config)
        if problems := task.schema_problems():
            raise DataError(listed(problems, len(task.samples())), str(options.data))
        return task

    def schema_problems(self) -> list[str]:
        """What keeps the simulator from playing each row's tools; empty when nothing does."""
        problems = []
        for number, row in enumerate(self.rows.values()):
            try:
                self._simulator.episode(row.tools, row.key)
            except DataError as error:
                problems.append(f"row {number}: {error}")
        return problems

    def identity(self) -> dict[str, Any]:
        """The data's hash and size, and the settings of scorer and simulator, with hashes of the files they name."""
        files = {name: getattr(self._sgls, name) for name in ("replay", "initial_state")}
        read = {name: {"path": path, "sha256": file_hash(Path(path))} for name, path in files.items() if path}
        return {
            "data": {"sha256": self._data_hash, "rows": len(self.rows)},
            "hierr": dataclasses.asdict(self._hierr),
            "sgls": {**dataclasses.asdict(self._sgls), **read},
        }

    def samples(self) -> Sequence[Sample]:
        """One sample per row, its subset as kind."""
        return [Sample(key, row.gold.subset or "other") for key, row in self.rows.items()]

    @contextlib.asynccontextmanager
    async def session(self, model: Model) -> AsyncIterator[Play]:
        """Enter to get the function that plays and scores one row."""
        judge = make_judge(self._hierr)
        judged_by = self._hierr.llm.model if self._hierr.judge == "llm" else None
        played_by = self._sgls.llm.model if "llm" in self._sgls.backends else None
        if warning := family_warning(model.name, judged_by, played_by):
            _log.warning("%s", warning)

        trusting = False
        unread = Unread(self.name, "the server's tool_calls, else hermes blocks", stop=self._config.stop_unread)

        async def play(sample: Sample) -> Outcome:
            nonlocal trusting
            row = self.rows[sample.id]
            sampling = dataclasses.replace(model.sampling, seed=derived_seed(model.sampling.seed, sample.id))
            trace = f"{self.name}/{sample.id}"
            policy = ChatPolicy(model.client, model.name, row.prompt, row.template_tools, sampling, trace)
            try:
                trajectory = await run_episode(policy, self._simulator.episode(row.tools, row.key), self._limits)
            except ContextOverflowError as error:
                reason = f"the prompt does not fit the model's context: {error}"
                return Outcome("model_error", reason, scores=dict.fromkeys(METRICS, 0.0), usage=policy.usage)
            if row.template_tools and not trajectory.calls and not trusting:
                trusting = True
                await check_tools_are_seen(model.client, model.name, trace)
            if row.gold.calls and trajectory.stop != "fault":
                unread.look(bool(trajectory.calls), trajectory.turns[-1].text)
            return await self._scored(trajectory, row, policy.usage, policy.fault, judge)

        yield play

    @contextlib.asynccontextmanager
    async def rescoring(self) -> AsyncIterator[Rescore]:
        """Enter to get the function that scores a saved trajectory again."""
        judge = make_judge(self._hierr)

        async def rescore(record: Record) -> Outcome:
            if not record.trajectory:
                return Outcome.of(record)
            trajectory = Trajectory.from_dict(record.trajectory)
            return await self._scored(trajectory, self.rows[record.id], record.usage, record.reason, judge)

        yield rescore

    def aggregates(self, records: Iterable[Record]) -> Mapping[str, Any]:
        """Nothing: every number of this task is a mean over samples."""
        return {}

    async def _scored(self, trajectory: Trajectory, row: Row, usage: Usage, fault: str, judge: SummaryJudge) -> Outcome:
        """The outcome of a rollout; `fault` says what went wrong where it ended in a fault."""
        reward = await score_rollout(trajectory, row.gold, judge, self._hierr)
        asked = {"question": row.gold.question, **trajectory.to_dict(), "gold": _gold(row.gold)}
        said: dict[str, Any] = {"trajectory": asked, "usage": usage}
        if reward.fault is not None:
            return Outcome("infrastructure_error", fault or f"{reward.fault}; see run.log", reward.fault, **said)
        scores = {**rollout_scores(trajectory, row.gold, reward), "response_tokens": usage.completion_tokens}
        if trajectory.stop == "length":
            return Outcome("truncated", "out of tokens before an answer", scores=scores, **said)
        return Outcome("ok", scores=scores, **said)


def rollout_scores(trajectory: Trajectory, gold: Gold, reward: HierrReward) -> dict[str, float]:
    """Every metric of one scored rollout but its tokens.

    Args:
        trajectory: the rollout.
        gold: what it was scored against.
        reward: from `score_rollout`, without a fault.
    """
    parts = reward.parts
    wanted = Counter(call.name for call in gold.calls)
    made = Counter(call.name for call in trajectory.calls)
    distinct = {json.dumps([call.name, call.arguments], sort_keys=True) for call in trajectory.calls}
    return {
        "success@0.9": float(success_at(reward.process)),
        "score_success@0.9": float(success_at((reward.process + parts["summary"]) / 2)),
        "tool_success@0.9": float(success_at(parts["name"])),
        "process": reward.process,
        "summary": parts["summary"],
        "score": reward.total,
        "name_f1": parts["name"],
        "arg_match": (parts["key"] + parts["value"]) / 2,
        "parallel": parts["parallel"],
        "tool_turns": sum(parse_turn(turn.text).attempted for turn in trajectory.turns),
        "calls": len(trajectory.calls),
        "extra_calls": (made - wanted).total(),
        "duplicate_calls": len(trajectory.calls) - len(distinct),
        "invalid_calls": sum(result.is_error for result in trajectory.results),
    }


def _gold(gold: Gold) -> list[list[dict[str, Any]]]:
    return [[{"name": call.name, "arguments": call.arguments} for call in step] for step in gold.steps]
