"""A run: every sample of every task played against one model, into a folder that can be picked up again."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import platform
import random
import time
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.benchmarks.registry import load_tasks
from harness.benchmarks.task import Model, Outcome, Play, Sample, Task, TaskOptions
from harness.checkpoint import Checkpoint, merged
from harness.journal import FolderLock, Journal, Samples
from harness.policy import Sampling
from harness.progress import TaskProgress
from harness.records import SCORED, Record, commit, differences, read_json, write_json
from harness.report import print_results
from harness.results import summarise
from harness.serving import ServingConfig, Target, find, served
from harness.unread import without_stopping
from verl_slca.endpoint import connect
from verl_slca.episode import Limits
from verl_slca.errors import ConfigError, DataError, InfrastructureFault

logger = logging.getLogger(__name__)

DEFAULT_CONCURRENCY = 16
DEFAULT_TIMEOUT = 600.0
DEFAULT_RETRIES = 4

_ENOUGH_FAULTS = 20
"""So many faults in a row (at least) mean that the server is gone, and that going on is pointless."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user asked for.

    Attributes:
        model: URL or Hugging Face folder.
        tasks: comma-separated task names.
        output_dir: the run folder.
        model_name: the model's name at the server, None to find out.
        data: file of rows, for tasks that take one.
        limit: play only so many samples of each task, drawn with the seed; None plays all.
        sampling: how the model is asked.
        limits: where an episode ends.
        concurrency: samples in flight; does not change the scores.
        timeout: seconds one request may take.
        retries: how often a failed request is sent again.
        settings: sections of the configuration file, by name.
        serving: how vLLM serves a folder.
    """

    model: str
    tasks: str
    output_dir: Path
    model_name: str | None = None
    data: Path | None = None
    limit: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    limits: Limits = field(default_factory=Limits)
    concurrency: int = DEFAULT_CONCURRENCY
    timeout: float = DEFAULT_TIMEOUT
    retries: int = DEFAULT_RETRIES
    settings: Mapping[str, Any] = field(default_factory=dict)
    serving: ServingConfig = field(default_factory=ServingConfig)

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"--limit must be at least 1, got {self.limit}")
        if self.concurrency < 1:
            raise ConfigError(f"--concurrency must be at least 1, got {self.concurrency}")
        if not self.timeout > 0:
            raise ConfigError(f"--timeout must be above 0 seconds, got {self.timeout}")
        if self.retries < 0:
            raise ConfigError(f"--retries must be at least 0, got {self.retries}")


@dataclass(frozen=True, slots=True)
class Plan:
    """A task and those of its samples that a run is about.

    Attributes:
        total: samples the whole task has.
        identity: the task's.
    """

    task: Task
    chosen: Sequence[Sample]
    total: int
    identity: Mapping[str, Any]


def make_plans(options: RunOptions) -> list[Plan]:
    """The tasks asked for, loaded and checked, and which samples of them to play.

    Raises:
        ConfigError, DataError: what was asked cannot be done.
    """
    wanted = TaskOptions(options.data, options.limits, options.sampling.seed, options.settings)
    return [_plan(task, options) for task in load_tasks(options.tasks, wanted)]


def run(options: RunOptions, console: Console) -> bool:
    """True when every sample has its scores; False when some failed for reasons not the model's.

    Nothing is started and nothing is written before data, model and settings have been checked. What an
    earlier run in the same folder has finished is not repeated.

    Raises:
        ConfigError, DataError: what was asked cannot be done, or differs from what the folder was made with.
        PolicyServerFault: the model's server cannot be reached or started.
    """
    plans = make_plans(options)
    target = find(options.model, options.model_name, options.timeout)
    folder = options.output_dir
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--output-dir: {folder} is a file")
    if folder.is_dir() and not (folder / "config.json").exists() and {p.name for p in folder.iterdir()} - {".lock"}:
        raise ConfigError(f"--output-dir: {folder} is not empty and is no run folder; take another one")
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    try:
        config = _config(options, plans, target)
        _agree(folder / "config.json", config)
        with _logging_to(folder / "run.log"), Journal(folder / "samples.jsonl") as journal:
            _play_all(plans, journal, target, options, console)
            results = run_results(plans, journal, config["asked"]["model"])
            journal.sort()
            write_json(folder / "results.json", results)
    finally:
        lock.release()
    print_results(results, console)
    console.print(f"Run folder: {folder}", highlight=False, soft_wrap=True)
    return bool(results["complete"])


def _plan(task: Task, options: RunOptions) -> Plan:
    samples = task.samples()
    if not samples:
        raise DataError("no samples to play", f"task {task.name}")
    chosen = samples
    if options.limit is not None and options.limit < len(samples):
        picked = random.Random(options.sampling.seed).sample(range(len(samples)), options.limit)
        chosen = [samples[i] for i in sorted(picked)]
    return Plan(task, chosen, len(samples), task.identity())


def _config(options: RunOptions, plans: Sequence[Plan], target: Target) -> dict[str, Any]:
    return {
        "asked": {
            "model": {"location": target.location, "name": target.name, "fingerprint": target.fingerprint},
            "tasks": {plan.task.name: plan.identity for plan in plans},
            "limit": options.limit,
            "sampling": asdict(options.sampling),
            "limits": asdict(options.limits),
            "settings": without_stopping(options.settings),
            "serving": asdict(options.serving),
            "verl_slca": importlib.metadata.version("verl-slca"),
        },
        "made_with": {
            "tasks": options.tasks,
            "data": str(options.data.resolve()) if options.data else None,
            "served_by": target.kind,
            "commit": commit(),
            "python": platform.python_version(),
            **{name: _version(name) for name in ("openai", "transformers", "torch", "vllm")},
        },
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _agree(path: Path, config: Mapping[str, Any]) -> None:
    """Write the config of a new run; of a run that goes on, check that it is the same."""
    if not path.exists():
        write_json(path, config)
        return
    if differing := differences(read_json(path).get("asked", {}), config["asked"]):
        raise ConfigError(
            f"{path.parent} was made with other settings, and mixing them would give numbers of neither:\n"
            + "\n".join(f"  {key}: {before!r} then, {now!r} now" for key, (before, now) in differing.items())
            + "\nGive the old ones to go on with that run, or another --output-dir for a new one."
        )


def check_belonging(plans: Sequence[Plan], samples: Samples) -> None:
    """Check that every sample is one of the plans'. Raises `DataError` naming the first that is not."""
    known = {(plan.task.name, sample.id) for plan in plans for sample in plan.chosen}
    if strange := sorted(samples.keys - known):
        raise DataError(f"sample {strange[0][1]!r} of {strange[0][0]} does not belong to this run", str(samples.path))


def _play_all(plans: Sequence[Plan], journal: Journal, target: Target, options: RunOptions, console: Console) -> None:
    check_belonging(plans, journal)
    pending = {
        plan.task.name: [s for s in plan.chosen if journal.status((plan.task.name, s.id)) not in SCORED]
        for plan in plans
    }
    left, total = sum(map(len, pending.values())), sum(len(plan.chosen) for plan in plans)
    if left < total:
        console.print(f"Going on: {total - left} of {total} samples are done.", highlight=False)
    if not left:
        return
    console.print(f"Model: {target.name} at {target.location} ({target.kind})", highlight=False, soft_wrap=True)
    server_log = options.output_dir / "server.log"
    if target.shards:
        shards = Checkpoint(Path(target.location), target.name, shards=True)
        folder = merged(shards, options.output_dir / "merged", options.output_dir / "merge.log", console)
        target = replace(target, location=str(folder), shards=False)
    with served(target, server_log, options.concurrency, options.sampling.seed, options.serving) as url:
        for plan in plans:
            if pending[plan.task.name]:
                asyncio.run(_play_task(plan, pending[plan.task.name], journal, url, target.name, options, console))


async def _play_task(
    plan: Plan,
    pending: Sequence[Sample],
    journal: Journal,
    url: str,
    name: str,
    options: RunOptions,
    console: Console,
) -> None:
    queue = iter(pending)
    enough = max(_ENOUGH_FAULTS, 2 * options.concurrency)
    in_a_row = 0

    async def work(play: Play, progress: TaskProgress) -> None:
        nonlocal in_a_row
        for sample in queue:
            record = await record_of(plan.task.name, sample, play(sample))
            await journal.append(record)
            progress.finished(record.status)
            in_a_row = in_a_row + 1 if record.status == "infrastructure_error" else 0
            if in_a_row >= enough:
                return

    async with connect(url, options.timeout, options.retries) as client:
        model = Model(client, name, options.sampling)
        with TaskProgress(console, plan.task.name, len(plan.chosen) - len(pending), len(plan.chosen)) as progress:
            async with plan.task.session(model) as play:
                await together(work(play, progress) for _ in range(min(options.concurrency, len(pending))))
    if in_a_row >= enough:
        console.print(f"[red]Stopped after {in_a_row} samples in a row failed for reasons not the model's.[/red]")


async def together(workers: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them run to their end; the first error stops the others and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def record_of(task: str, sample: Sample, playing: Awaitable[Outcome], seconds: float | None = None) -> Record:
    """The sample's record, whatever happens: one bad sample costs one sample, not the run.

    Only a `ConfigError` ends the run: what the task is set up with cannot work for any sample.

    Args:
        task: its name.
        sample: what is played.
        playing: how it ends.
        seconds: how long it took, where that is not what `playing` takes now.
    """
    started = time.perf_counter()
    try:
        outcome = await playing
    except ConfigError:
        raise
    except InfrastructureFault as fault:
        outcome = Outcome("infrastructure_error", str(fault), fault.kind)
    except Exception as error:
        logger.exception("sample %s of %s", sample.id, task)
        outcome = Outcome("infrastructure_error", f"{type(error).__name__}: {error}", "harness_error")
    if outcome.status != "ok":
        logger.warning("sample %s of %s: %s: %s", sample.id, task, outcome.status, outcome.reason)
    return Record(
        id=sample.id,
        task=task,
        kind=sample.kind,
        status=outcome.status,
        reason=outcome.reason,
        fault=outcome.fault,
        scores=outcome.scores,
        trajectory=outcome.trajectory,
        usage=outcome.usage,
        seconds=round(time.perf_counter() - started, 3) if seconds is None else seconds,
    )


def run_results(plans: Sequence[Plan], samples: Samples, model: Mapping[str, Any]) -> dict[str, Any]:
    """What results.json holds: the model, and each task's numbers and what they were made with."""
    tasks = {}
    for plan in plans:
        name = plan.task.name
        tasks[name] = {
            **summarise(plan.chosen, plan.task.metrics, samples.records(name)),
            "aggregates": dict(plan.task.aggregates(samples.records(name))),
            "partial": {"played": len(plan.chosen), "of": plan.total} if len(plan.chosen) < plan.total else None,
            "made_with": plan.identity,
        }
    return {
        "model": dict(model),
        "complete": all(task["complete"] for task in tasks.values()),
        "tasks": tasks,
    }


@contextlib.contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """While entered, what the harness and the core log goes to `path` as well."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    loggers = [logging.getLogger(name) for name in ("harness", "verl_slca")]
    for each in loggers:
        each.addHandler(handler)
        each.setLevel(logging.INFO)
    try:
        yield
    finally:
        for each in loggers:
            each.removeHandler(handler)
        handler.close()
