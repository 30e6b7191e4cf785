"""What a benchmark is to the harness.

A task names its samples, plays one at a time against a model, and says how its scores are averaged. It
knows nothing of files, resuming, concurrency or tables. A task that needs an environment of its own (BFCL,
tau2-bench) starts it when its session is entered and stops it when the session is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from harness.policy import Sampling
from harness.records import Record, Status, Usage
from verl_slca.episode import Limits

if TYPE_CHECKING:
    import openai


@dataclass(frozen=True, slots=True)
class Sample:
    """One thing to score: an id that is unique in its task, and the subset it is reported under."""

    id: str
    kind: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a sample ended; the fields are those of `records.Record`."""

    status: Status
    reason: str = ""
    fault: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    trajectory: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def of(cls, record: Record) -> Outcome:
        """The outcome that `record` saved."""
        return cls(record.status, record.reason, record.fault, record.scores, record.trajectory, record.usage)


@dataclass(frozen=True, slots=True)
class Model:
    """The model under evaluation: a client of its server, its name there, and how it is asked."""

    client: openai.AsyncOpenAI
    name: str
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Metric:
    """One column of a report.

    Attributes:
        kind: ``"share"`` of samples (values 0 or 1), ``"mean"`` of a real value, or ``"count"`` of something
            per sample.
        meaning: one line for a reader.
    """

    kind: Literal["share", "mean", "count"]
    meaning: str


Play = Callable[[Sample], Awaitable[Outcome]]
Rescore = Callable[[Record], Awaitable[Outcome]]


class Task(Protocol):
    """A benchmark, its data loaded and checked."""

    @property
    def name(self) -> str:
        """As given to ``--tasks``."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Every score of a sample, in the order of the report."""

    def identity(self) -> dict[str, Any]:
        """Whatever changes the scores: versions, data hashes, scoring settings. A resumed run must agree."""

    def samples(self) -> Sequence[Sample]:
        """The whole set, always in the same order."""

    def session(self, model: Model) -> AbstractAsyncContextManager[Play]:
        """Enter to get the function that plays one sample.

        It may raise `InfrastructureFault`, which costs that sample, or `ConfigError`, which ends the run: what it is
        set up with cannot work for any sample.
        """

    def rescoring(self) -> AbstractAsyncContextManager[Rescore]:
        """Enter to get the function that scores a saved sample again, without a model.

        A record that holds nothing to score (its server failed, its prompt did not fit) comes back as it was.
        """

    def aggregates(self, records: Iterable[Record]) -> Mapping[str, Any]:
        """What is no plain mean over samples (weighted overalls, pass^k), JSON-ready; {} where there is nothing.

        A number, or a mapping with ``kind`` and ``value`` (and ``stderr``, if known) as in `Metric`, gets a line in
        the tables; ``notes``, sentences that a reader has to know, stand below them; anything else is kept in
        results.json only.
        """


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What the command line says that a task may need.

    Attributes:
        data: file of rows, for tasks whose data is the user's.
        subsets: what was asked for behind the task's name (``bfcl:simple_python,live``); () is all of it.
        limits: where an episode ends.
        seed: base of every seed.
        settings: sections of ``--config`` by name; a task takes those it knows.
    """

    data: Path | None
    limits: Limits
    seed: int
    settings: Mapping[str, Any]
    subsets: tuple[str, ...] = ()


Script = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Sample id and body of a chat request to the assistant message that a scripted model answers with; the id is ""
where a request does not say which sample it belongs to."""


@dataclass(frozen=True, slots=True)
class Gold:
    """Models whose scores are known, to check a benchmark's whole path with (`harness.selfcheck`).

    Attributes:
        scripts: the models by name, such as gold, wrong, noop.
        expected: sample id to the scores that the script of that name must get; metrics not named are not compared.
        settings: sections of the configuration for a run in which the server at this URL plays every model there is.
        data: writes a file for ``--data`` into this folder; None where the benchmark brings its own.
    """

    scripts: Callable[[Task], Mapping[str, Script]]
    expected: Callable[[Task, str], Mapping[str, Mapping[str, float]]]
    settings: Callable[[str], Mapping[str, Any]] = lambda url: {}
    data: Callable[[Path], Path | None] = lambda folder: None
