"""A run as one HTML file: its tables, a bar per kind, and every sample to browse; no network, nothing beside it.

What models wrote is hostile. It reaches the page as JSON whose ``<``, ``>`` and ``&`` are escaped, and is set as text;
a content security policy lets nothing run but the page's own script, known by its hash. The samples are in the page
once and are drawn a hundred at a time, so that thousands of them stay usable; very long texts are cut there, not in
samples.jsonl.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from harness.journal import Samples, saved_run
from harness.records import Record, read_json
from harness.report import caveats, table_cells, value_text
from verl_slca.trajectory import Trajectory

MAX_CHARS = 4000
"""Longest text of a block in the page, in characters."""

_ASSETS = Path(__file__).parent / "assets"
_SCRIPT_SAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}

Block = tuple[str, str]
"""Who speaks, and what."""


def write_html(folder: Path) -> Path:
    """``report.html`` in the run folder, all of it or none of it.

    Raises:
        DataError: no run folder, a torn one, or one without results.
    """
    _, samples = saved_run(folder)
    path = folder / "report.html"
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(render(folder.resolve().name, read_json(folder / "results.json"), samples), encoding="utf-8")
    unfinished.replace(path)
    return path


def render(title: str, results: Mapping[str, Any], samples: Samples) -> str:
    """The page.

    Args:
        title: of the page.
        results: as in results.json.
        samples: of the same run.
    """
    assets = {name: (_ASSETS / f"report.{kind}").read_text() for name, kind in (("style", "css"), ("script", "js"))}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string((_ASSETS / "report.html.jinja").read_text()).render(
        title=title,
        model=results["model"],
        tasks=[_task(name, result) for name, result in results["tasks"].items()],
        data=_data(results, samples.records()),
        policy=f"default-src 'none'; base-uri 'none'; form-action 'none'; script-src {_hash(assets['script'])}; "
        f"style-src {_hash(assets['style'])}",
        **assets,
    )


def blocks(trajectory: Mapping[str, Any]) -> list[Block]:
    """What a sample's record holds, in the order it was said; what is no conversation follows as JSON.

    A conversation is a list of chat messages under ``messages``, at the top or one level below, or a
    `verl_slca.trajectory.Trajectory`.
    """
    rest = dict(trajectory)
    for key, value in trajectory.items():
        if isinstance(value, Mapping) and "messages" in value:
            rest |= rest.pop(key)
    said: list[Block] = []
    if "question" in rest:
        said.append(("user", str(rest.pop("question"))))
    if "turns" in rest:
        for turn in Trajectory.from_dict(rest).turns:
            said.append(("assistant", turn.text))
            said += [
                (f"{result.name or 'tool'}{', error' * result.is_error}", result.content) for result in turn.results
            ]
        said.append(("ended by", str(rest["fault"] or rest["stop"])))
        for key in ("turns", "stop", "fault"):
            rest.pop(key)
    for message in rest.pop("messages", ()):
        said.append((str(message.get("role", "")), _message_text(message)))
    said += [(key, value if isinstance(value, str) else _json(value)) for key, value in rest.items()]
    return [(role, _cut(text)) for role, text in said]


def _message_text(message: Mapping[str, Any]) -> str:
    parts = [message.get("reasoning_content"), message.get("content")]
    parts += [_json(call.get("function", call)) for call in message.get("tool_calls") or ()]
    return "\n".join(part if isinstance(part, str) else _json(part) for part in parts if part)


def _cut(text: str) -> str:
    left = len(text) - MAX_CHARS
    return text if left <= 0 else f"{text[:MAX_CHARS]}\n... {left} characters more, in samples.jsonl"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def _task(name: str, result: Mapping[str, Any]) -> dict[str, Any]:
    headline = next(iter(result["metrics"]), "")
    bars = []
    if headline and result["metrics"][headline]["kind"] == "share" and len(result["kinds"]) > 1:
        for kind, group in result["kinds"].items():
            if metric := group["metrics"].get(headline):
                bars.append({"kind": kind, **metric, "text": f"{value_text(metric)} (n {metric['n']})"})
    columns = [("all", result), *result["kinds"].items()]
    cells = table_cells("", columns)
    return {"name": name, "headline": headline, "caveats": caveats(result), "cells": cells, "bars": bars}


def _data(results: Mapping[str, Any], records: Iterable[Record]) -> str:
    """Everything the page's script reads, as JSON that cannot end its script element."""
    shown = {
        name: [metric for metric, values in result["metrics"].items() if values["kind"] != "count"]
        for name, result in results["tasks"].items()
    }
    samples: Sequence[Mapping[str, Any]] = [
        {
            "id": record.id,
            "task": record.task,
            "kind": record.kind,
            "status": record.status,
            "reason": _cut(record.reason),
            "scores": {name: value for name, value in record.scores.items() if math.isfinite(value)},
            "blocks": blocks(record.trajectory),
        }
        for record in records
    ]
    return json.dumps({"metrics": shown, "samples": samples}, allow_nan=False).translate(_SCRIPT_SAFE)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
