"""Hostile input: no crash, no hang, nothing evaluated. (Schemas and regexes: test_schema, test_patterns.)"""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.errors import DataError
from verl_slca.parsing import parse_turn, trajectory_from_text
from verl_slca.sgls.schema import compile_tool
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.sgls.validation import SchemaLimitError
from verl_slca.trajectory import ToolCall

PIECES = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>", '{"name": "t"',
          ', "arguments": ', "{", "}", "[", "]", '"', "\\", "\\u", "\ud800", "\x00", "1e999", "NaN", "null", "\n",
          "a" * 50)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYWORDS = (
    "type", "properties", "required", "items", "enum", "const", "anyOf", "allOf", "oneOf", "not", "$ref", "$defs", "if",
    "pattern", "format", "minimum", "maxLength", "additionalProperties", "patternProperties", "then", "contains",
    "dependentRequired", "$schema", "$id", "$anchor", "$dynamicRef", "default", "prefixItems",
)  # fmt: skip
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null", "any", "dict", "float"])
REFS = st.sampled_from(["#", "#/$defs/a", "#/properties/a", "http://10.0.0.1/x", "file:///etc/passwd", "a", "#a"])
PATTERNS = st.sampled_from(["(a+)+$", "(", "^\\p{L}+$", "(?=x)", "a{99999}", "[[:alpha:]]", "\\"])
SCHEMAS = st.recursive(
    JSON | TYPES | REFS | PATTERNS,
    lambda inner: (
        st.dictionaries(st.sampled_from(KEYWORDS) | st.text(max_size=3), inner, max_size=5)
        | st.lists(inner, max_size=4)
    ),
    max_leaves=25,
)


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_the_call_parser_reads_whatever_a_policy_writes(text):
    turn = parse_turn(text)
    assert all(isinstance(call.arguments, dict) and call.name for call in turn.calls)
    json.dumps([call.arguments for call in turn.calls]).encode()
    trajectory_from_text(text)


@settings(deadline=None, max_examples=150)
@given(SCHEMAS, JSON)
def test_any_schema_compiles_or_is_a_data_error_and_then_judges_anything(schema, value):
    try:
        tool = compile_tool({"name": "t", "parameters": schema})
    except DataError:
        return
    for instance in (value, {"a": value}):
        try:
            tool.errors(instance)
        except SchemaLimitError:
            continue


@pytest.mark.parametrize("key", ["$ref", "$dynamicRef", "$recursiveRef"])
def test_a_reference_that_is_no_text_is_found_when_the_tool_is_compiled(key):
    with pytest.raises(DataError, match="must be a string"):
        compile_tool({"name": "t", "parameters": {key: []}})


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4), st.text(max_size=20))
def test_a_call_is_answered_with_text_that_can_be_written_whatever_its_arguments(arguments, name):
    tools = [{"name": "t", "parameters": {"type": "object"}}]
    for validate in (True, False):
        episode = Simulator(SglsConfig(validate=validate)).episode(tools, "w")
        for result in asyncio.run(episode.respond([ToolCall("t", arguments), ToolCall(name, arguments)])):
            result.content.encode()
            assert len(result.content) < 20_000


@pytest.mark.parametrize(
    "payload",
    ["__import__('os').abort()", "{{7*7}}", "${7*7}", "%s%n", "'; DROP TABLE notes; --", "<script>x</script>"],
)
def test_a_payload_is_repeated_as_it_is_or_not_at_all(payload):
    tools = [{"name": "create_note", "parameters": {"properties": {"text": {"type": "string"}}}}]
    episode = Simulator(SglsConfig()).episode(tools, "w")
    (result,) = asyncio.run(episode.respond([ToolCall("create_note", {"text": payload})]))
    assert json.loads(result.content)["text"] == payload
