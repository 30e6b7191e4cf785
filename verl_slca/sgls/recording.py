"""Recorded responses: a JSONL file, one response a line, written by a recorder or made from a dataset.

    {"tool": "weather-now", "arguments": {"city": "Oslo"}, "response": "{\\"degrees\\": 3}"}

tool        name of the called tool
arguments   what it was called with; the order of keys and 2.0 for 2 make no difference
response    the text that was answered
is_error    optional, default false: the API refused the call
digest      optional: hash of the tool's declaration; the line is then for that declaration only
world       optional: key of the world; the line is then for that world only
state       optional: digest of the episode's state; the line is then for that state only

The most specific line that fits a call answers it; of two for the same, the first.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_slca.errors import ConfigError, DataError
from verl_slca.sgls.backends import Backend, BackendRequest, BackendResponse
from verl_slca.sgls.validation import canonical_json

_NAMES = ("tool", "arguments", "response", "is_error", "digest", "world", "state")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a recording; `digest`, `world` and `state` are "" where the line fits any."""

    tool: str
    arguments: dict[str, Any]
    response: str
    is_error: bool = False
    digest: str = ""
    world: str = ""
    state: str = ""

    def line(self) -> str:
        """The entry as JSON text, what it says nothing about left out."""
        fields = {name: getattr(self, name) for name in _NAMES}
        return json.dumps({name: v for name, v in fields.items() if name in _NAMES[:3] or v}, ensure_ascii=False)

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What a call must have to be answered by it."""
        return self.tool, canonical_json(self.arguments), self.digest, self.world, self.state


class Recording:
    """The entries of a recording by what they answer.

    Args:
        entries: earlier ones win.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[tuple[str, str, str, str, str], Entry] = {}
        for entry in entries:
            self._entries.setdefault(entry.key, entry)

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        """All entries, in the order of the recording."""
        return list(self._entries.values())

    def find(self, request: BackendRequest) -> Entry | None:
        """The most specific entry that answers a call: right state before right world before right declaration."""
        called = canonical_json(request.arguments)
        choices = ((request.state_digest, ""), (request.world, ""), (request.tool.digest, ""))
        for state, world, digest in itertools.product(*choices):
            entry = self._entries.get((request.tool.name, called, digest, world, state))
            if entry is not None:
                return entry
        return None


def read_recording(path: str | Path) -> Recording:
    """The recording in a file. Raises `DataError` naming the line that cannot be read."""
    return Recording(_entries(Path(path)))


def write_recording(path: str | Path, entries: Iterable[Entry]) -> None:
    """Write a file that `read_recording` reads."""
    text = "".join(entry.line() + "\n" for entry in entries)
    Path(path).write_text(text, encoding="utf-8", errors="replace")


class RecordingBackend:
    """A `Backend` that appends what another one answers to a recording; each call of a world and state once.

    Several processes may append to the same file, which must lie on a local disk.

    Args:
        backend: answers.
        path: the file; made when it is not there.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, backend: Backend, path: str | Path) -> None:
        self._backend = backend
        self._written: set[int] = set()
        try:
            Path(path).resolve().parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(f"record {path}: {error}") from error

    async def respond(self, request: BackendRequest) -> BackendResponse:
        """The other backend's answer."""
        response = await self._backend.respond(request)
        tool, state = request.tool, request.state_digest
        said = (response.content, response.is_error)
        entry = Entry(tool.name, request.arguments, *said, tool.digest, request.world, state)
        if (key := hash(entry.key)) not in self._written:
            self._written.add(key)
            os.write(self._file, (entry.line() + "\n").encode("utf-8", "replace"))  # one write: lines never mix
        return response


def _entries(path: Path) -> Iterator[Entry]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _entry(line, f"{path} line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", str(path)) from error


def _entry(line: str, where: str) -> Entry:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}; correct or remove the line", where) from error
    if not isinstance(record, dict):
        raise DataError("a line must be a JSON object", where)
    if unknown := sorted(set(record) - set(_NAMES)):
        raise DataError(f"unknown key {unknown[0]!r}; allowed: {', '.join(_NAMES)}", where)
    for name, kind in (("tool", str), ("arguments", dict), ("response", str)):
        if not isinstance(record.get(name), kind):
            raise DataError(f"{name} must be {'an object' if kind is dict else 'a text'}", where)
    for name in _NAMES[4:]:
        if not isinstance(record.get(name, ""), str):
            raise DataError(f"{name} must be a text", where)
    if not isinstance(record.get("is_error", False), bool):
        raise DataError("is_error must be true or false", where)
    return Entry(**record)
