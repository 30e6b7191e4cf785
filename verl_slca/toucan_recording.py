"""The tool responses that Toucan's own rows hold, as a recording for the simulator's `replay` backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_slca.errors import DataError
from verl_slca.rows import read_records, row_from_record
from verl_slca.sgls.recording import Entry
from verl_slca.sgls.validation import canonical_json
from verl_slca.toucan import dialogue_from, rl_records


def recorded(path: str | Path) -> tuple[list[Entry], list[str]]:
    """(entries, problems of the rows left out) of a raw or SFT Toucan file (parquet, jsonl or json).

    A call that was answered alike wherever it was made becomes one entry for every world. One that was answered
    differently (the weather of another day) becomes an entry for the world of each RL row that it belongs to.

    Raises:
        DataError: the file cannot be read.
    """
    found: dict[tuple[str, str], list[Entry]] = {}
    problems: list[str] = []
    for number, record in enumerate(read_records(path)):
        try:
            for entry in _entries(record, f"{path} row {number}"):
                found.setdefault((entry.tool, canonical_json(entry.arguments)), []).append(entry)
        except DataError as error:
            problems.append(str(error))
    entries: list[Entry] = []
    for made in found.values():
        if len({entry.response for entry in made}) == 1:
            entries.append(Entry(made[0].tool, made[0].arguments, made[0].response))
        else:
            first: dict[str, Entry] = {}
            for entry in made:
                first.setdefault(entry.world, entry)
            entries += first.values()
    return entries, problems


def _entries(record: Mapping[str, Any], where: str) -> Iterator[Entry]:
    if "messages" not in record and "reward_model" in record:
        raise DataError("an RL row holds no responses; convert raw or SFT rows", where)
    dialogue = dialogue_from(record, where)
    worlds = [row_from_record(row, where).key for row in rl_records(record, where)]
    for world, exchange in zip(worlds, dialogue.exchanges, strict=True):
        for step in exchange.steps:
            for call, response in zip(step.calls, step.results, strict=True):
                yield Entry(call.name, call.arguments, response, world=world)
