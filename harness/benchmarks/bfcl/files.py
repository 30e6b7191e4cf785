"""The official result files: a run written as them, so that the official command can check us, and read to be scored.

<folder>/<model>/live/BFCL_v4_live_simple_result.json     one {"id", "result"} a line; V3 has no group folders
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.benchmarks.bfcl import categories
from harness.benchmarks.bfcl.task import Bfcl
from harness.records import Record
from verl_slca.errors import DataError


def write_results(task: Bfcl, records: Iterable[Record], folder: Path) -> list[Path]:
    """Write every scored record's result, and return the files, one a category.

    A sample that broke itself (its context, its time) has an empty result, which the official checker counts as
    wrong everywhere but in irrelevance.

    Args:
        task: that made the records.
        records: of one run.
        folder: of one model, e.g. ``result/gpt-4o-2024-11-20-FC``.
    """
    lines: dict[str, list[tuple[int, str]]] = {}
    order = {sample.id: number for number, sample in enumerate(task.samples())}
    for record in records:
        if record.scores:
            empty: Any = [] if record.kind in categories.MULTI_TURN else ""
            line = json.dumps({"id": record.id, "result": record.trajectory.get("result", empty)})
            lines.setdefault(record.kind, []).append((order[record.id], line))
    paths = []
    for kind, rows in lines.items():
        path = result_path(kind, task.config.version, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for _, line in sorted(rows)), encoding="utf-8")
        paths.append(path)
    return paths


def written(folder: Path, version: str) -> tuple[str, ...]:
    """The categories that a model's folder has results of.

    Raises:
        DataError: there are none.
    """
    kinds = tuple(kind for kind in categories.GROUPS["all"] if result_path(kind, version, folder).exists())
    if not kinds:
        raise DataError(f"no BFCL_{version}_*_result.json of any category; versions are v4 and v3", str(folder))
    return kinds


def read_results(task: Bfcl, folder: Path) -> dict[str, Any]:
    """The results in a model's folder by id, which has a file for each of the task's categories.

    Raises:
        DataError: a line that is blank, cut, twice, of an unknown id or a saved error, with file and line.
    """
    results: dict[str, Any] = {}
    kinds = {sample.id: sample.kind for sample in task.samples()}
    for kind in dict.fromkeys(kinds.values()):
        path = result_path(kind, task.config.version, folder)
        *lines, rest = path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines, 1):
            where = f"{path}:{number}"
            id, result = _row(line, where)
            if kinds.get(id) != kind:
                raise DataError(f"{id!r} is no entry of {kind}", where)
            if id in results:
                raise DataError(f"{id!r} is here twice; delete one line", where)
            results[id] = result
        if rest:
            raise DataError("the last line is cut; delete it to have its entry played again", str(path))
    return results


def result_path(kind: str, version: str, folder: Path) -> Path:
    """Where the official command looks for a category's results."""
    name = f"BFCL_{version}_{categories.file_name(kind, version)}_result.json"
    if version == "v3":
        return folder / name
    group = "multi_turn" if kind in categories.MULTI_TURN else "live" if kind.startswith("live_") else "non_live"
    return folder / group / name


def _row(line: str, where: str) -> tuple[str, Any]:
    try:
        row = json.loads(line)
        id, result = row["id"], row["result"]
    except (ValueError, KeyError, TypeError) as error:
        problem = "blank" if not line.strip() else f"no JSON object with id and result ({error})"
        raise DataError(f"{problem}; delete the line to have its entry played again", where) from error
    if isinstance(result, str) and result.startswith("Error during inference"):
        raise DataError(f"{id!r} holds an error of the server, not an answer; have it played again", where)
    if isinstance(row, Mapping) and isinstance(id, str):
        return id, result
    raise DataError(f"id must be a string, got {id!r}", where)
