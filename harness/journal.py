"""The samples of a run folder, read or appended to, and how a run is picked up again.

A line is on disk before its sample counts as done. After a kill the last line may be torn: it is cut off
and its sample runs again. A sample that failed for reasons not the model's runs again too, and its new line
supersedes the old one. When a run ends, the lines are put in order of id, one per sample. So a run stopped
and gone on with, at whatever points, leaves the same results.json, byte for byte, and the same samples.jsonl
but for `seconds`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.records import SCORED, Record, Status, read_json
from verl_slca.errors import DataError


class Samples:
    """samples.jsonl as it lies there: an index in memory, records read from disk one at a time.

    Args:
        path: the file.

    Attributes:
        torn: True when the last line was cut off, by a kill or a full disk; its sample is not in the index.

    Raises:
        DataError: a line that is not a record, or a sample that was finished twice, with file and line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at: dict[tuple[str, str], tuple[int, int, Status]] = {}
        self._end = 0
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for number, line in enumerate(file, 1):
                where = f"{path}:{number}"
                try:
                    record = Record.from_line(line)
                except (ValueError, KeyError, TypeError) as error:
                    if self._end + len(line) == size:
                        break
                    raise DataError(f"not a sample record ({error}); delete the line to redo it", where) from error
                if not line.endswith(b"\n"):
                    break
                if self.status(record.key) in SCORED:
                    raise DataError(f"sample {record.id!r} of {record.task} is here twice; delete one line", where)
                self._at[record.key] = (self._end, len(line), record.status)
                self._end += len(line)
        self.torn = self._end < size

    def status(self, key: tuple[str, str]) -> Status | None:
        """How that sample ended, None while it has not."""
        return self._at[key][2] if key in self._at else None

    @property
    def keys(self) -> frozenset[tuple[str, str]]:
        """Every sample with a line."""
        return frozenset(self._at)

    def records(self, task: str = "") -> Iterator[Record]:
        """The latest record of each sample (of `task`, if named), in order of task and id, read one at a time."""
        with self.path.open("rb") as file:
            for start, length, _ in (self._at[key] for key in sorted(self._at) if task in ("", key[0])):
                file.seek(start)
                yield Record.from_line(file.read(length))


class Journal(Samples):
    """samples.jsonl of a run that goes on, open for appending.

    Args:
        path: the file; created when missing. A torn last line is cut off.

    Raises:
        DataError: see `Samples`.
    """

    def __init__(self, path: Path) -> None:
        path.touch()
        super().__init__(path)
        self._file = path.open("r+b")
        self._file.truncate(self._end)
        self._file.seek(self._end)

    async def append(self, record: Record) -> None:
        """Write `record`, and return once it is on disk; others may append in the meantime."""
        line = record.to_line()
        self._at[record.key] = (self._file.tell(), len(line), record.status)
        self._file.write(line)
        self._file.flush()
        await asyncio.to_thread(os.fsync, self._file.fileno())

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


def saved_run(folder: Path) -> tuple[dict[str, Any], Samples]:
    """The configuration and the samples of a run folder, to be read and not to be changed.

    Raises:
        DataError: no run folder, or one whose run was stopped in the middle of a line.
    """
    config = read_json(folder / "config.json")
    if not isinstance(config.get("asked"), dict) or not isinstance(config.get("made_with"), dict):
        raise DataError("not a configuration that slca-eval wrote", str(folder / "config.json"))
    path = folder / "samples.jsonl"
    if not path.is_file():
        raise DataError("no samples.jsonl, so nothing was run here", str(folder))
    samples = Samples(path)
    if samples.torn:
        raise DataError("the last line is cut off; run the same command again to finish the run first", str(path))
    return config, samples


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
