"""The report as one HTML file, whatever a model wrote."""

import base64
import hashlib
import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, hermes, write_rows
from slca_eval import slca_eval

from harness.benchmarks.toucan_gold import make_rows
from harness.html import MAX_CHARS, blocks, render, write_html
from harness.journal import Samples
from harness.records import Record, read_json

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!--<script> \ud800 \u2028 {{ 7 * 7 }}"


class Page(HTMLParser):
    """Elements, attributes and scripts as a parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in self.CDATA_CONTENT_ELEMENTS:
            self.inside.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            self.inside[-1] += data

    def every(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def folder(server: ScriptedServer, run: Any, data: Path, tmp_path: Path) -> Path:
    """A run whose model, and whose data, write markup."""
    rows = make_rows(4)
    rows[0]["reward_model"]["ground_truth"]["subset_name"] = "<b onclick=alert(3)>kind</b>"
    write_rows(data, rows)
    calls = hermes([{"name": "weather-now", "arguments": {"city": "<script>alert(4)</script>"}}])
    server.script = lambda body: HOSTILE if body["messages"][-1]["role"] == "tool" else calls
    assert run() == 0
    return tmp_path / "run"


def test_nothing_that_a_model_wrote_becomes_markup(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert slca_eval("report", folder, "--html") == 0
    path = Path(capsys.readouterr().out.strip())
    page = Page(path.read_text(encoding="utf-8"))
    assert [attributes.get("type") for attributes in page.every("script")] == ["application/json", None]
    assert page.every("img") == page.every("b") == []
    names = {name for _, attributes in page.elements for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "href", "style")}
    style, written, code = page.inside
    assert "<" not in written
    samples = json.loads(written)["samples"]
    assert any(HOSTILE.strip() in text for sample in samples for _, text in sample["blocks"])
    assert "<b onclick=alert(3)>kind</b>" in {sample["kind"] for sample in samples}
    policy = page.every("meta")[1]["content"] or ""
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for text in (style, code):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy


def test_the_page_says_what_was_asked_called_answered_and_scored(folder: Path) -> None:
    _, written, _ = Page(write_html(folder).read_text(encoding="utf-8")).inside
    data = json.loads(written)
    assert data["metrics"]["toucan"][0] == "success@0.9"
    assert "calls" not in data["metrics"]["toucan"]
    first = data["samples"][0]
    assert [role for role, _ in first["blocks"]] == [
        "user",
        "assistant",
        "weather-now",
        "assistant",
        "ended by",
        "gold",
    ]
    assert first["blocks"][0][1] == "What is the weather in City0?"
    assert '"City0"' in first["blocks"][-1][1]
    assert first["scores"]["success@0.9"] == 0.0


def test_chat_messages_and_whatever_else_a_task_saved_are_shown() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "user", "content": [{"type": "text", "text": "there"}]},
    ]
    said = blocks({"messages": messages, "verdict": {"error": "x" * 2 * MAX_CHARS}})
    assert [role for role, _ in said] == ["user", "assistant", "user", "verdict"]
    assert said[1][1].startswith("hm\n{")
    assert "there" in said[2][1]
    assert said[3][1].endswith("characters more, in samples.jsonl")
    assert blocks({"simulation": {"messages": messages[:1], "seed": 7}}) == [("user", "hi"), ("seed", "7")]


def test_five_thousand_samples_are_one_page_with_no_row_drawn_yet(folder: Path) -> None:
    path = folder / "many.jsonl"
    said = {"messages": [{"role": "assistant", "content": "answer"}]}
    lines = (Record(f"{i:05d}", "toucan", "k", "ok", scores={"process": 0.0}, trajectory=said) for i in range(5000))
    path.write_bytes(b"".join(line.to_line() for line in lines))
    text = render("many", read_json(folder / "results.json"), Samples(path))
    page = Page(text)
    assert len(page.elements) < 500
    assert len(json.loads(page.inside[1])["samples"]) == 5000


def test_the_script_is_valid_javascript() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    script = Path(__file__).parents[2] / "harness/assets/report.js"
    assert subprocess.run([node, "--check", script], capture_output=True).returncode == 0
