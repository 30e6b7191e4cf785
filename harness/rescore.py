"""A saved run scored again from what its model said, without the model: after a change of scorer or its settings.

The new scores are a run folder of their own, ``rescored/`` inside the old one; what the run made is not touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.benchmarks.task import Rescore
from harness.compare import compare_scores, scores_of
from harness.journal import FolderLock, Journal, Samples, saved_run
from harness.policy import Sampling
from harness.records import commit, differences, write_json
from harness.report import print_results
from harness.run import (
    DEFAULT_CONCURRENCY,
    Plan,
    RunOptions,
    check_belonging,
    make_plans,
    record_of,
    run_results,
    together,
)
from verl_slca.config import parse
from verl_slca.episode import Limits
from verl_slca.errors import ConfigError, DataError

logger = logging.getLogger(__name__)

FOLDER = "rescored"


def rescore(folder: Path, settings: Mapping[str, Any] | None, data: Path | None, console: Console) -> bool:
    """True when every sample has its scores again; writes ``rescored/`` and shows what changed.

    Args:
        folder: of a run.
        settings: sections of the configuration in place of the run's; None keeps the run's.
        data: where the rows lie now, if they were moved.
        console: where to show it.

    Raises:
        ConfigError: the run's data is not the data at hand.
        DataError: no run folder, a torn one, or one with samples that its tasks do not have.
    """
    config, samples = saved_run(folder)
    lock = FolderLock(folder)
    try:
        options = _options(folder, config, settings, data)
        plans = make_plans(options)
        _check(folder, config, plans, samples)
        new, old = folder / f"{FOLDER}.tmp", folder / FOLDER
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        with Journal(new / "samples.jsonl") as journal:
            for plan in plans:
                asyncio.run(_rescore_task(plan, samples, journal))
            results = run_results(plans, journal, config["asked"]["model"])
            journal.sort()
        identities = {plan.task.name: plan.identity for plan in plans}
        asked = {**config["asked"], "tasks": identities, "settings": dict(options.settings)}
        write_json(new / "config.json", {"asked": asked, "made_with": {**config["made_with"], "rescored_at": commit()}})
        write_json(new / "results.json", results)
        _swap(new, old)
    finally:
        lock.release()
    print_results(results, console)
    _show_changes(plans, config, samples, Samples(old / "samples.jsonl"), console)
    console.print(f"Run folder: {old}", highlight=False, soft_wrap=True)
    return bool(results["complete"])


async def _rescore_task(plan: Plan, samples: Samples, journal: Journal) -> None:
    chosen = {sample.id: sample for sample in plan.chosen}
    records = samples.records(plan.task.name)

    async def work(score: Rescore) -> None:
        for record in records:
            outcome = score(record)
            await journal.append(await record_of(plan.task.name, chosen[record.id], outcome, record.seconds))

    async with plan.task.rescoring() as score:
        await together(work(score) for _ in range(DEFAULT_CONCURRENCY))


def _options(
    folder: Path, config: Mapping[str, Any], settings: Mapping[str, Any] | None, data: Path | None
) -> RunOptions:
    """What the run was asked for, as far as its scores depend on it."""
    asked, made_with = config["asked"], config["made_with"]
    if "tasks" not in made_with:
        raise DataError("made before runs could be scored again; run it again", str(folder / "config.json"))
    saved = Path(made_with["data"]) if made_with["data"] else None
    return RunOptions(
        model=asked["model"]["location"],
        tasks=made_with["tasks"],
        output_dir=folder,
        data=data or saved,
        limit=asked["limit"],
        sampling=parse(Sampling, asked["sampling"], "sampling"),
        limits=parse(Limits, asked["limits"], "limits"),
        settings=asked["settings"] if settings is None else settings,
    )


def _check(folder: Path, config: Mapping[str, Any], plans: list[Plan], samples: Samples) -> None:
    for plan in plans:
        before, now = config["asked"]["tasks"].get(plan.task.name, {}), plan.identity
        if changed := differences({"data": before.get("data")}, {"data": now.get("data")}):
            lines = "\n".join(f"  {key}: {a!r} then, {b!r} now" for key, (a, b) in changed.items())
            raise ConfigError(
                f"{plan.task.name}: {folder} was made with other data; give the old with --data:\n{lines}"
            )
    check_belonging(plans, samples)


def _swap(new: Path, old: Path) -> None:
    """Put the finished folder in place; what was there before is gone only once the new one is complete."""
    before = old.with_suffix(".old")
    shutil.rmtree(before, ignore_errors=True)
    if old.exists():
        os.replace(old, before)
    os.replace(new, old)
    shutil.rmtree(before, ignore_errors=True)


def _show_changes(
    plans: list[Plan], config: Mapping[str, Any], before: Samples, after: Samples, console: Console
) -> None:
    for plan in plans:
        name = plan.task.name
        for key, (then, now) in differences(config["asked"]["tasks"][name], plan.identity).items():
            console.print(f"{name}: {key}: {then!r} then, {now!r} now", markup=False, highlight=False, soft_wrap=True)
        one, other = scores_of(before, name), scores_of(after, name)
        changed = 0
        for row in compare_scores(one, other, plan.task.metrics):
            if row.group == "all" and (row.up or row.down):
                changed += 1
                counts = f"{len(row.up)} up, {len(row.down)} down of {row.n}"
                console.print(f"{name}: {row.metric}: {row.a:.4f} -> {row.b:.4f} ({counts})", highlight=False)
        for word, ids in (
            ("now scored", other.scores.keys() - one.scores.keys()),
            ("no longer scored", one.scores.keys() - other.scores.keys()),
        ):
            if ids:
                changed += 1
                console.print(f"{name}: {len(ids)} samples {word}", highlight=False)
        if not changed:
            console.print(f"{name}: every score is as it was.", highlight=False)
