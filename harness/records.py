"""What a run folder holds, and the record of one finished sample.

runs/x/
  config.json     what was asked, down to data hashes; a rerun must agree with it
  samples.jsonl   one line per sample, written the moment it is finished
  results.json    counts and metrics; no clock values, so equal samples give equal bytes
  run.log         the harness's log; server.log: the model server's, if it was ours
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
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

    def after_request(self) -> Usage:
        """With one more request sent."""
        return replace(self, requests=self.requests + 1)

    def after_reply(self, counted: Mapping[str, Any] | None) -> Usage:
        """With the tokens that a reply's ``usage`` counts; as it is where the server says nothing."""
        prompt, completion = (int((counted or {}).get(key) or 0) for key in ("prompt_tokens", "completion_tokens"))
        return Usage(self.requests, self.prompt_tokens + prompt, self.completion_tokens + completion)


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


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings in which two nested mappings differ, by dotted key, "not set" where one has none.

    Example:
        >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4})
        {'a.c': (2, 3), 'd': ('not set', 4)}
    """
    first, second = dict(_flat(before)), dict(_flat(now))
    keys = sorted(first.keys() | second.keys())
    both = {key: (first.get(key, "not set"), second.get(key, "not set")) for key in keys}
    return {key: values for key, values in both.items() if values[0] != values[1]}


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, list(value) if isinstance(value, tuple) else value


def commit() -> str | None:
    """The commit that this code was checked out at, "-dirty" behind it where files were changed; None if installed."""
    where = Path(__file__).parent
    if not (where.parent / ".git").exists():
        return None
    git = ["git", "-C", str(where), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def log_tail(log: Path) -> str:
    """The last 15 lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, the first 16 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
