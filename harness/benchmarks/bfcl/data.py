"""BFCL's data files, where the package in its own environment has them; nothing of them is kept in this repository."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.benchmarks.bfcl.categories import file_name
from harness.environments import python_of
from harness.records import file_hash
from verl_slca.errors import DataError


class Data:
    """The entries of one version, read by category.

    Args:
        version: ``"v4"`` or ``"v3"``.

    Raises:
        ConfigError: the version's environment has not been made.
        DataError: its data files are not where they should be.
    """

    def __init__(self, version: str) -> None:
        self.version = version
        self.python = python_of(f"bfcl-{version}")
        packages = sorted(self.python.parent.parent.glob("lib/python*/site-packages"))
        self._folder = (packages[0] if packages else Path()) / "bfcl_eval" / "data"
        wheels = sorted(self._folder.parent.parent.glob("bfcl_eval-*.dist-info"))
        if not self._folder.is_dir() or not wheels:
            raise DataError("no bfcl_eval here; delete the folder and run `slca-eval setup bfcl`", str(self._folder))
        self.wheel = wheels[0].name.removeprefix("bfcl_eval-").removesuffix(".dist-info")
        self.entries = functools.cache(self._entries)
        self.answers = functools.cache(self._answers)

    def hashes(self, categories: Sequence[str]) -> dict[str, str]:
        """SHA-256 of each category's entries, and of its possible answers under ``category/answers``."""
        files = {category: self._path(category) for category in categories}
        files |= {f"{category}/answers": self._path(category, "possible_answer") for category in categories}
        return {name: file_hash(path) for name, path in files.items() if path.exists()}

    def _entries(self, category: str) -> dict[str, dict[str, Any]]:
        """The category's entries by id, in the file's order."""
        return self._read(self._path(category))

    def _answers(self, category: str) -> dict[str, Any]:
        """The possible answers by id; {} for relevance, which has none."""
        path = self._path(category, "possible_answer")
        return {id: entry["ground_truth"] for id, entry in self._read(path).items()} if path.exists() else {}

    def _path(self, category: str, folder: str = "") -> Path:
        return self._folder / folder / f"BFCL_{self.version}_{file_name(category, self.version)}.json"

    def _read(self, path: Path) -> dict[str, dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = {}
        try:
            with path.open(encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    entry = json.loads(line)
                    if entry["id"] in entries:
                        raise DataError(f"entry {entry['id']!r} is here twice", f"{path}:{number}")
                    entries[entry["id"]] = entry
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"cannot be read ({error}); delete the environment and set it up again", str(path)
            ) from error
        return entries
