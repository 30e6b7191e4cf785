import json
from typing import Any

import pytest

from harness.benchmarks.bfcl.decode import attempts_call, result_of
from harness.benchmarks.bfcl.names import originals

CALL = {"name": "area", "arguments": {"base": 10}}
HERMES = f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"


def said(content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def test_calls_of_the_server_are_taken_as_it_wrote_them() -> None:
    calls = [{"id": "1", "function": {"name": "area", "arguments": '{"base": 1'}}]
    assert result_of(said("text", tool_calls=calls), "fc", False) == [{"area": '{"base": 1'}]


@pytest.mark.parametrize("content", [HERMES, f"<think>area(</think>{HERMES}", f"Sure.\n{HERMES}"])
def test_hermes_blocks_are_read_where_the_server_did_not(content: str) -> None:
    assert result_of(said(content), "fc", False) == [{"area": '{"base": 10}'}]


def test_one_malformed_block_leaves_the_text() -> None:
    text = HERMES + "<tool_call>{</tool_call>"
    assert result_of(said(text), "fc", False) == text


@pytest.mark.parametrize(
    "content",
    [f"```json\n{json.dumps(CALL)}\n```", f"<think>so</think>{json.dumps([CALL])}<|im_end|>", json.dumps(CALL)],
)
def test_bare_json_is_a_call_when_lenient_only(content: str) -> None:
    assert result_of(said(content), "fc", False) == content
    assert result_of(said(content), "fc", True) == [{"area": '{"base": 10}'}]


@pytest.mark.parametrize(
    "content", ["<think>area(</think>[area(base=10)]", "```python\n[area(base=10)]\n```", "[area(base=10)]<|eot_id|>"]
)
def test_prompt_mode_forgives_what_stands_around_when_lenient_only(content: str) -> None:
    assert result_of(said(content), "prompt", False) == content
    assert result_of(said(content), "prompt", True) == "[area(base=10)]"


def test_nothing_said_is_an_empty_text() -> None:
    assert result_of(said(None), "fc", False) == ""
    assert result_of(said(None), "prompt", False) == ""


@pytest.mark.parametrize(
    ("content", "attempt"),
    [
        ("I cannot compute the area (no function does).", False),
        ("The function area needs a base.", False),
        ("<think>area(base=1) does not fit</think>None of them.", False),
        ("I would need area(base), without a base.", False),
        ("area(base=", True),
        ("[area(10)", True),
        ("Let me call area(base=1", True),
        ("math.area(base=1)", False),
        ("[TOOL_CALLS] x", True),
        ('{"name": "x"', True),
        ("", True),
        ("<think>hm</think>", True),
    ],
)
def test_what_looks_like_a_call_is_no_abstention(content: str, attempt: bool) -> None:
    assert attempts_call(said(content), ["area"]) is attempt


def test_two_names_that_would_be_sent_as_one_are_refused() -> None:
    with pytest.raises(ValueError, match="both sent as 'a_b'"):
        originals(["a.b", "a_b"], "fc")
    assert originals(["a.b", "a_b"], "prompt") == {"a.b": "a.b", "a_b": "a_b"}
