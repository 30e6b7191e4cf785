import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.sgls.cleaning import MAX_CHARS, UncleanError, cleaned, value_in, without_leaks

OBJECT = '{"degrees": 3}'


@pytest.mark.parametrize(
    "reply",
    [
        OBJECT,
        f"  {OBJECT}\n",
        f"```json\n{OBJECT}\n```",
        f"```\n{OBJECT}\n```",
        f"Here is the response:\n```json\n{OBJECT}\n```\nAnything else?",
        f"<think>I wonder {{}}</think>{OBJECT}",
        f"the thought was opened in the prompt</think>\n{OBJECT}",
        f"<think>one</think>\n<thinking>two</thinking>```json\n{OBJECT}\n```",
        f"<response>{OBJECT}</response>",
        f"<tool_response>\n```json\n{OBJECT}\n```\n</tool_response>",
        f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>{OBJECT}",
        f"<|im_start|>{OBJECT}",
        f"Sure! {OBJECT}",
        f"{OBJECT}\nLet me know if you need more.",
    ],
)
def test_wrappers_are_taken_off(reply):
    assert value_in(cleaned(reply)) == {"degrees": 3}


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "empty"),
        ("<think>and so on", "empty"),
        ("I'm sorry, as an AI language model I cannot do that.", "apology"),
        ("I\u2019m sorry, but I can't.", "apology"),
        ("```\nSorry, no data.\n```", "apology"),
        ("As an AI, I have no access.", "apology"),
        ('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', "tool call"),
        ("Let me look.\n<function=f>", "tool call"),
        ('[TOOL_CALLS] [{"name": "f"}]', "tool call"),
        ("x" * (MAX_CHARS + 1), "longer"),
    ],
)
def test_what_is_no_response_is_refused(reply, why):
    with pytest.raises(UncleanError, match=why):
        cleaned(reply)


@pytest.mark.parametrize(
    "said", ["<think>", "</think> x", "<tool_call>", "```", "I'm sorry", "<|im_end|>", "</response>", "[TOOL_CALLS]"]
)
def test_what_stands_inside_of_json_is_data(said):
    reply = json.dumps({"body": f"a {said} b"})
    assert value_in(cleaned(reply)) == {"body": f"a {said} b"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("warm", "not JSON"),
        ("{'a': 1}", "not JSON"),
        ('{"a": ', "not JSON"),
        ('{"a": 1} {"b": 2}', "more than one"),
        ('{"a": NaN}', "NaN"),
        ("[Infinity]", "Infinity"),
        ('{"a": 1e999}', "number that JSON lacks"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
        ("[" * 40_000, "too deeply"),
        ("[" * 100 + "]" * 100, "too deeply"),
    ],
)
def test_what_is_not_one_json_value_is_refused(text, why):
    with pytest.raises(UncleanError, match=why):
        value_in(text)


def test_markup_inside_of_texts_is_removed():
    value = {"a": ["x<think>y</think>", {"<|im_end|>k": "<tool_call>z"}], "n": 1}
    assert without_leaks(value) == {"a": ["xy", {"k": "z"}], "n": 1}


def test_a_model_that_speaks_of_itself_is_a_leak_unless_the_call_said_so():
    value = {"body": "As an AI language model, I think so."}
    with pytest.raises(UncleanError, match="not what an API says"):
        without_leaks(value)
    assert without_leaks(value, given='{"body": "as an AI language model, hm"}') == value


PIECES = st.sampled_from(
    ["<think>", "</think>", "```", "```json\n", "<response>", "</response>", "<tool_call>", "<|im_end|>", "{", "}", "[",
     '"', "\\", "\n", " " * 50, "I'm sorry", "<|channel|>final", "\ud800", "NaN", "1e999", ":", ",", "a"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join)))
def test_any_text_is_cleaned_or_refused(text):
    try:
        value = without_leaks(value_in(cleaned(text)))
    except UncleanError as error:
        if not 0 < len(str(error)) < 300:
            raise
        return
    json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "piece",
    ["<think>", "</think>", "```", "<response>", "</response>", " ", "\n", "<|", "<|a", "{", "[", "\\", "sorry ",
     "<|im_end|>", "<think></think>", "as an ", "<|channel|>final", "\t`"],
)  # fmt: skip
@pytest.mark.parametrize("around", ["{}", "<response>{}x", "```\n{}x\n```", "x{}y", '{{"a": "{}"}}'])
def test_long_repetitive_replies_take_no_time(piece, around):
    """None takes a tenth of a second; a scan that is quadratic in 40,000 characters would take minutes."""
    text = around.format(piece * (40_000 // len(piece)))
    with contextlib.suppress(UncleanError):
        without_leaks(value_in(cleaned(text)))
