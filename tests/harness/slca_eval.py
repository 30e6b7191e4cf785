"""`slca-eval` as a function, and what it left in its run folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from harness.cli import main


def slca_eval(*arguments: object) -> int:
    """The exit code of the command, run in this process."""
    before, sys.argv = sys.argv, ["slca-eval", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def quietly(arguments: list[str]) -> None:
    """The command as the whole of a child process."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    sys.exit(slca_eval(*arguments))


def run_arguments(url: str, data: Path, folder: Path, *more: object) -> list[str]:
    fixed = ["--model", url, "--tasks", "toucan", "--data", data, "--output-dir", folder]
    return [*map(str, ["run", *fixed, "--retries", 0, "--concurrency", 4, *more])]


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())["tasks"]["toucan"]


def samples(folder: Path) -> list[dict[str, Any]]:
    """The samples of a run without what a clock says."""
    lines = (folder / "samples.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def value(folder: Path, metric: str, kind: str | None = None) -> float:
    group = results(folder)["kinds"][kind] if kind else results(folder)
    return group["metrics"][metric]["value"]
