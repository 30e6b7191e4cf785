"""The run folder: which files it holds, one JSON line per finished sample, and how it is picked up again.

    runs/x/
      config.json     what was asked, down to data hashes; a rerun must agree with it
      samples.jsonl   one line per sample, written the moment it is finished
      results.json    counts and metrics; no clock values, so equal samples give equal bytes
      run.log         the harness's log; server.log: the model server's, if it was ours

A line is on disk before its sample counts as done. After a kill the last line may be torn: it is cut off
and its sample runs again. A sample that failed for reasons not the model's runs again too, and its new line
supersedes the old one. When a run ends, the lines are put in order of id, one per sample.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from verl_slca.errors import DataError

Status = Literal["ok", "truncated", "model_error", "infrastructure_error"]
"""How a sample ended: the model answered or used up its turns; it ran out of tokens; it broke its own sample
(a prompt beyond its context, code that does not end); something that is not the model failed. Only the last
has no scores."""

SCORED: tuple[Status, ...] = ("ok", "truncated", "model_error")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one sample cost: requests sent, and tokens as the server counted them."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One finished sample: a line of samples.jsonl.

    Attributes:
        id: unique within its task.
        task: the benchmark it belongs to.
        kind: the subset it is reported under.
        status: how it ended.
        reason: why, in words, where the status is not ``"ok"``.
        fault: kind of the infrastructure error, "" where there was none.
        scores: metric name to value; empty exactly when status is ``"infrastructure_error"``.
        trajectory: everything that was said, JSON-ready.
        usage: requests and tokens.
        seconds: wall-clock time of the sample.
    """

    id: str
    task: str
    kind: str
    status: Status
    reason: str = ""
    fault: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    trajectory: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """Task and id: unique within a run."""
        return self.task, self.id

    def to_line(self) -> bytes:
        """The record as one line of JSON, newline included.

        What a model wrote may hold lone surrogates (kept as escapes) and NaN arguments (kept as Python's NaN).
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)} | {"usage": asdict(self.usage)}
        return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Record:
        """The record that `to_line` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        data = json.loads(line)
        return cls(**{**data, "usage": Usage(**data["usage"])})


class Journal:
    """samples.jsonl of one run, open for appending; keeps an index in memory, never the records.

    Args:
        path: the file; created when missing. A torn last line is cut off.

    Raises:
        DataError: a line that is not a record, or a sample that was finished twice, with file and line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at: dict[tuple[str, str], tuple[int, int, Status]] = {}
        path.touch()
        size, end = path.stat().st_size, 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                where = f"{path}:{number}"
                try:
                    record = Record.from_line(line)
                except (ValueError, KeyError, TypeError) as error:
                    if end + len(line) == size:
                        break
                    raise DataError(f"not a sample record ({error}); delete the line to redo it", where) from error
                if not line.endswith(b"\n"):
                    break
                if self.status(record.key) in SCORED:
                    raise DataError(f"sample {record.id!r} of {record.task} is here twice; delete one line", where)
                self._at[record.key] = (end, len(line), record.status)
                end += len(line)
        self._file = path.open("r+b")
        self._file.truncate(end)
        self._file.seek(end)

    def status(self, key: tuple[str, str]) -> Status | None:
        """How that sample ended, None while it has not."""
        return self._at[key][2] if key in self._at else None

    @property
    def keys(self) -> frozenset[tuple[str, str]]:
        """Every sample with a line."""
        return frozenset(self._at)

    async def append(self, record: Record) -> None:
        """Write `record`, and return once it is on disk; others may append in the meantime."""
        line = record.to_line()
        self._at[record.key] = (self._file.tell(), len(line), record.status)
        self._file.write(line)
        self._file.flush()
        await asyncio.to_thread(os.fsync, self._file.fileno())

    def records(self, task: str = "") -> Iterator[Record]:
        """The latest record of each sample (of `task`, if named), in order of task and id, read one at a time."""
        with self.path.open("rb") as file:
            for start, length, _ in (self._at[key] for key in sorted(self._at) if task in ("", key[0])):
                file.seek(start)
                yield Record.from_line(file.read(length))

    def sort(self) -> None:
        """Rewrite the file in order of task and id, one line per sample; all or nothing. Closes the journal."""
        ordered = self.path.with_suffix(".tmp")
        with self.path.open("rb") as source, ordered.open("wb") as target:
            for start, length, _ in (self._at[key] for key in sorted(self._at)):
                source.seek(start)
                target.write(source.read(length))
            target.flush()
            os.fsync(target.fileno())
        self.close()
        ordered.replace(self.path)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class FolderLock:
    """Holds a run folder for this process until it ends, however it ends.

    Raises:
        DataError: another process is running in the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / ".lock").open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise DataError(
                "another slca-eval is running here; wait for it or take another folder", str(folder)
            ) from error

    def release(self) -> None:
        """Let others run in the folder."""
        self._file.close()


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace `path` by `data` as indented JSON, keys in their order: all of it, or none of it."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`.

    Raises:
        DataError: the file is missing or holds no JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError("no such file; is this a run folder of slca-eval?", str(path)) from error
    except ValueError as error:
        raise DataError(f"not JSON: {error}", str(path)) from error
    if not isinstance(data, dict):
        raise DataError(f"expected a JSON object, got {type(data).__name__}", str(path))
    return data


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, the first 16 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
