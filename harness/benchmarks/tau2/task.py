"""tau2-bench as a task of the harness: a sample per domain, task and trial, simulated and graded officially.

What differs from the official command, on purpose: what the model itself broke scores 0, where the command calls it
an infrastructure error and takes it out of the denominator; what others broke has no score; pass^k is given only
where every simulation was scored; a judge that leaves out a verdict has failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from harness import environments
from harness.benchmarks.task import Model, Outcome, Play, Rescore, Sample, TaskOptions
from harness.benchmarks.tau2 import installation as installed
from harness.benchmarks.tau2 import preflight
from harness.benchmarks.tau2.aggregates import aggregates, task_of
from harness.benchmarks.tau2.config import SCRIPTED_USER, Tau2Config, key_of
from harness.benchmarks.tau2.floor import floor_of
from harness.benchmarks.tau2.installation import Installation
from harness.benchmarks.tau2.outcome import METRICS, outcome_of
from harness.benchmarks.tau2.simulator import Ask, started
from harness.records import Record
from verl_slca.config import parse

SECTIONS = ("tau2",)

SUBSETS: dict[str, str] = {
    "airline": "50 tasks",
    "retail": "114 tasks; in v1.x 40 of them need a judge",
    "telecom": "114 tasks, in which the user has tools as well",
    "mock": "a handful of tasks to try things with",
}

DEFAULT_DOMAINS = ("airline", "retail", "telecom")

GRADINGS = {
    "v0": "v0.2's grading (database and communicated text), does not compare with v1.x",
    "v1": "v1.x's grading (edited tasks, judged assertions in retail), does not compare with v0.2",
}


class Tau2:
    """The task over some domains; see `harness.benchmarks.task.Task`.

    Args:
        installation: what is installed, and its tasks.
        config: how it is played.
        seed: the trials' seeds follow from it as in the official command.
    """

    name = "tau2"
    metrics = METRICS

    def __init__(self, installation: Installation, config: Tau2Config, seed: int) -> None:
        self.installation, self.config = installation, config
        drawn = random.Random(seed)
        self.seeds = [drawn.randint(0, 1_000_000) for _ in range(config.trials)]
        self._tasks = {
            name: {task["id"]: task for task in domain["tasks"]} for name, domain in installation.domains.items()
        }

    @classmethod
    def load(cls, options: TaskOptions) -> Tau2:
        """The task over the domains asked for; airline, retail and telecom where none was.

        Raises:
            ConfigError: an unknown setting, no user or judge where one is needed, or no tau2-bench to run.
        """
        config = parse(Tau2Config, options.settings.get("tau2"), "tau2")
        installation = installed.inspect(environments.python_of("tau2"), options.subsets or DEFAULT_DOMAINS)
        preflight.check_endpoints(config, installation)
        return cls(installation, config, options.seed)

    def identity(self) -> dict[str, Any]:
        """What is installed, the tasks' hashes, the seeds, and who plays the user and the judge."""
        return {
            "distribution": dict(self.installation.distribution),
            "grading": GRADINGS[self.installation.api],
            "split": "base",
            "domains": {
                name: {key: value for key, value in domain.items() if key != "tasks"} | {"tasks": len(domain["tasks"])}
                for name, domain in self.installation.domains.items()
            },
            "seeds": self.seeds,
            **dataclasses.asdict(self.config),
            **({"label": SCRIPTED_USER} if self.config.user == "scripted" else {}),
        }

    def samples(self) -> Sequence[Sample]:
        """One sample per trial of each task, its domain as kind."""
        return [
            Sample(f"{domain}/{task}/{trial}", domain)
            for domain, tasks in self._tasks.items()
            for task in tasks
            for trial in range(self.config.trials)
        ]

    def entry(self, id: str) -> Mapping[str, Any]:
        """The task of a sample: its right actions, what is to be said, and assertions that a judge decides."""
        task: Mapping[str, Any] = self._tasks[id.split("/", 1)[0]][task_of(id)]
        return task

    @contextlib.asynccontextmanager
    async def session(self, model: Model) -> AsyncIterator[Play]:
        """Enter to get the function that plays and grades one sample; every model is asked once before."""
        await preflight.check_servers(model, self.config, self.installation)
        async with started(self.installation, self._endpoints(model)) as ask:
            yield lambda sample: self._played(sample, model, ask)

    @contextlib.asynccontextmanager
    async def rescoring(self) -> AsyncIterator[Rescore]:
        """Enter to get the function that grades a saved simulation again."""
        async with started(self.installation, self._endpoints(None)) as ask:
            yield lambda record: self._rescored(record, ask)

    def aggregates(self, records: Iterable[Record]) -> Mapping[str, Any]:
        """Pass^k by domain beside its floor (`aggregates.aggregates`), and what a reader has to know."""
        floors = {name: floor_of(domain) for name, domain in self.installation.domains.items()}
        tasks = {domain: list(entries) for domain, entries in self._tasks.items()}
        found = aggregates(tasks, self.config.trials, records, floors)
        name, version = (self.installation.distribution[key] for key in ("name", "version"))
        notes = [f"{name} {version}: {GRADINGS[self.installation.api]}."]
        if self.config.user == "scripted":
            notes.append(f"{SCRIPTED_USER.capitalize()}.")
        elif self.config.trials < 4:
            notes.append(f"{self.config.trials} of the 4 or more trials that a published number takes.")
        return {**found, "notes": [*notes, *found["notes"]]}

    async def _played(self, sample: Sample, model: Model, ask: Ask) -> Outcome:
        job = self._job("simulate", sample.id, model.client.max_retries) | self._playing(sample, model)
        return outcome_of(await ask(job), len(self.entry(sample.id)["assertions"]))

    async def _rescored(self, record: Record, ask: Ask) -> Outcome:
        if "simulation" not in record.trajectory:
            return Outcome.of(record)
        answer = await ask(
            self._job("evaluate", record.id, retries=4) | {"simulation": record.trajectory["simulation"]}
        )
        outcome = outcome_of(answer, len(self.entry(record.id)["assertions"]))
        return dataclasses.replace(outcome, usage=record.usage)

    def _job(self, op: str, id: str, retries: int) -> dict[str, Any]:
        judge = None
        if self.installation.needs_judge:
            # The client retries; the package's own retries would multiply them.
            args: dict[str, Any] = {"temperature": 0.0, "num_retries": 0, "max_retries": retries}
            args["extra_headers"] = {"X-Request-Id": f"{self.name}/{id}/judge"}
            judge = {"llm": f"litellm_proxy/{self.config.judge_model}", "llm_args": args}
        domain, seconds = id.split("/", 1)[0], self.config.sample_seconds
        return {"op": op, "domain": domain, "task": task_of(id), "judge": judge, "seconds": seconds}

    def _playing(self, sample: Sample, model: Model) -> dict[str, Any]:
        """What only a simulation needs; the arguments replace the package's defaults, so the temperature is there."""
        trial = int(sample.id.rsplit("/", 1)[1])
        shared = {"num_retries": 0, "max_retries": 0, "timeout": model.client.timeout}
        asked = {"temperature": model.sampling.temperature, "max_tokens": model.sampling.max_tokens}
        user = {"llm": f"openai/{self.config.user_model}", "llm_args": {"temperature": 0.0, **shared}}
        return {
            "trial": trial,
            "seed": self.seeds[trial],
            "trace": f"{self.name}/{sample.id}",
            "agent": {"llm": f"hosted_vllm/{model.name}", "llm_args": {**asked, **shared}},
            "user": user if self.config.user == "llm" else None,
            "max_steps": self.config.max_steps,
            "max_errors": self.config.max_errors,
            "retries": model.client.max_retries,
        }

    def _endpoints(self, model: Model | None) -> dict[str, str]:
        """Where litellm finds each model, and the keys; the environment is the only way that is never saved."""
        found: dict[str, str] = {}
        if self.installation.needs_judge:
            found |= {"LITELLM_PROXY_API_BASE": self.config.judge_url, "LITELLM_PROXY_API_KEY": key_of("judge")}
        if model is not None:
            url, key = str(model.client.base_url), model.client.api_key
            found |= {"HOSTED_VLLM_API_BASE": url, "HOSTED_VLLM_API_KEY": key}
            if self.config.user == "llm":
                found |= {"OPENAI_API_BASE": self.config.user_url, "OPENAI_API_KEY": key_of("user")}
        return found
