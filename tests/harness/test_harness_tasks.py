"""The registry of tasks, with one whose parts, faults and aggregates are a test's own."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer
from slca_eval import run_arguments, slca_eval

from harness.benchmarks.registry import TASKS, TaskEntry, parse_tasks
from harness.benchmarks.task import Metric, Model, Outcome, Play, Rescore, Sample, TaskOptions
from harness.records import Record
from verl_slca.errors import ConfigError

METRICS = {"right": Metric("share", "right or not")}


class Toy:
    """Ten samples, all right; number 7 finds out that the server cannot be used, where `broken`."""

    name, metrics = "toy", METRICS

    def __init__(self, subsets: Sequence[str], broken: bool = False) -> None:
        self.subsets, self.broken = subsets, broken

    def identity(self) -> dict[str, Any]:
        return {"subsets": list(self.subsets)}

    def samples(self) -> Sequence[Sample]:
        return [Sample(str(i), "odd" if i % 2 else "even") for i in range(10)]

    @contextlib.asynccontextmanager
    async def session(self, model: Model) -> AsyncIterator[Play]:
        async def play(sample: Sample) -> Outcome:
            if self.broken and sample.id == "7":
                raise ConfigError("the server needs --enable-auto-tool-choice")
            return Outcome("ok", scores={"right": 1.0})

        yield play

    @contextlib.asynccontextmanager
    async def rescoring(self) -> AsyncIterator[Rescore]:
        async def rescore(record: Record) -> Outcome:
            return Outcome.of(record)

        yield rescore

    def aggregates(self, records: Iterable[Record]) -> Mapping[str, Any]:
        values = [record.scores["right"] for record in records]
        overall = {"kind": "share", "value": sum(values) / len(values), "stderr": None}
        return {"overall": overall, "by_turn": {"1": 1.0}, "pass^2": 0.25}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(options: TaskOptions) -> Toy:
        return Toy(options.subsets, bool(options.settings.get("toy")))

    parts = {"simple": "easy ones", "live": "others"}
    monkeypatch.setitem(TASKS, "toy", TaskEntry("A toy.", METRICS, ("toy",), load, parts))


def test_what_is_no_task_goes_on_with_the_parts_of_the_task_before_it() -> None:
    assert parse_tasks("toucan, toy:simple, live") == {"toucan": (), "toy": ("simple", "live")}
    assert parse_tasks("toy:live,toucan") == {"toy": ("live",), "toucan": ()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tuocan", "unknown task 'tuocan'. .*Did you mean 'toucan'"),
        ("toy:simpel", "'simpel' is no subset of toy. Allowed: simple, live. Did you mean 'simple'"),
        ("toy:simple,tucan", "'tucan' is no subset of toy.*Did you mean 'toucan'"),
        ("toy,simple", "unknown task 'simple'"),
        ("toucan:simple", "toucan has no subsets"),
        ("toy:simple,simple", "toy:simple is given twice"),
        ("toy:simple,toy:live", "'toy' is given twice"),
        ("toy:", "'' is no subset of toy"),
        ("tau:x", "unknown task 'tau'"),
    ],
)
def test_a_list_of_tasks_that_cannot_be_read_says_where_and_what_is_nearest(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_tasks(text)


def test_parts_and_aggregates_reach_results_and_tables(
    server: ScriptedServer, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slca_eval(*run_arguments(server.url, data, tmp_path / "run", "--tasks", "toy:live,simple")) == 0
    result = json.loads((tmp_path / "run/results.json").read_text())["tasks"]["toy"]
    assert result["made_with"] == {"subsets": ["live", "simple"]}
    assert result["aggregates"]["by_turn"] == {"1": 1.0}
    lines = [line for line in capsys.readouterr().out.splitlines() if "overall" in line or "pass^2" in line]
    assert "100.00 %" in lines[0]
    assert "0.250" in lines[1]
    assert slca_eval("report", tmp_path / "run", "--markdown") == 0
    assert "| overall | 100.00 % | - | - |" in capsys.readouterr().out


def test_a_setting_that_can_never_work_ends_the_run_and_keeps_what_is_done(
    server: ScriptedServer, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broken.yaml"
    config.write_text("toy: {broken: true}\n")
    more = ("--tasks", "toy", "--config", config, "--concurrency", 1)
    assert slca_eval(*run_arguments(server.url, data, tmp_path / "run", *more)) == 2
    said = capsys.readouterr()
    assert "--enable-auto-tool-choice" in said.err
    assert "Traceback" not in said.err
    assert len((tmp_path / "run/samples.jsonl").read_text().splitlines()) == 7
