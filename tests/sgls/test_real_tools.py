"""Every real tool compiles, accepts what is generated from it, and refuses what is broken."""

import asyncio
import json
import os
from pathlib import Path

import jsonschema
import pytest

from verl_slca.errors import DataError
from verl_slca.sgls.generate import generate_arguments
from verl_slca.sgls.schema import CompiledTool, compile_tool
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall

_SHARED = Path(os.environ.get("SLCA_SHARED", Path(__file__).parents[3] / "shared"))
_CORPUS = _SHARED / "data" / "mcp_tools.jsonl"
pytestmark = pytest.mark.skipif(not _CORPUS.exists(), reason=f"{_CORPUS} is absent; set SLCA_SHARED")
WRONG = {
    "string": 7, "integer": "x", "number": "x", "boolean": "x", "array": "x", "object": "x",
}  # fmt: skip


@pytest.fixture(scope="module")
def tools() -> list[tuple[dict, CompiledTool]]:
    raw = [json.loads(line) for line in _CORPUS.read_text().splitlines()]
    compiled, refused = [], []
    for tool in raw:
        try:
            compiled.append((tool, compile_tool(tool)))
        except DataError as error:
            refused.append((tool["name"], str(error)))
    assert all(repr(name) in message for name, message in refused)
    assert len(compiled) >= 0.99 * len(raw)
    return compiled


def test_generated_arguments_are_accepted(tools):
    for seed, (raw, tool) in enumerate(tools):
        arguments = generate_arguments(raw["input_schema"], seed)
        assert tool.errors(arguments) == [], raw["name"]


def test_a_missing_required_argument_is_refused_by_name(tools):
    checked = 0
    for raw, tool in tools:
        arguments = generate_arguments(raw["input_schema"], 0)
        for name in tool.parameters.schema.get("required", []):
            rest = {key: value for key, value in arguments.items() if key != name}
            assert (name, "") in [(error.path, error.value) for error in tool.errors(rest)], raw["name"]
            checked += 1
    assert checked > 2000


def test_an_argument_of_the_wrong_type_is_refused_by_name(tools):
    checked = 0
    for raw, tool in tools:
        arguments = generate_arguments(raw["input_schema"], 0)
        for name, schema in tool.parameters.schema.get("properties", {}).items():
            kind = schema.get("type")
            if isinstance(kind, str) and kind in WRONG:
                errors = tool.errors({**arguments, name: WRONG[kind]})
                assert name in [error.path for error in errors], (raw["name"], name)
                checked += 1
    assert checked > 5000


def test_an_extra_argument_is_refused_exactly_where_none_is_allowed(tools):
    for raw, tool in tools:
        arguments = {**generate_arguments(raw["input_schema"], 0), "not_a_parameter_": 1}
        closed = tool.parameters.schema.get("additionalProperties") is False
        assert bool([e for e in tool.errors(arguments) if e.path == "not_a_parameter_"]) == closed, raw["name"]


def test_verdicts_agree_with_jsonschema_wherever_the_schema_is_plain(tools):
    """The stock validator, formats off, is the oracle; only formats may make ours stricter."""
    disputed = 0
    for raw, tool in tools[::6]:
        schema = raw["input_schema"]
        stock = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
        arguments = generate_arguments(schema, 1)
        cases = [arguments, {}, *({**arguments, name: value} for name in arguments for value in (None, "x", 3, [], {}))]
        for case in cases:
            try:
                expected = stock.is_valid(case)
            except (jsonschema.exceptions.UnknownType, TypeError):
                disputed += 1
                break
            errors = [error for error in tool.errors(case) if "must be a valid" not in error.message]
            assert (not errors) == expected, (raw["name"], case, errors)
    assert disputed < 5


def test_responses_are_json_of_modest_size_and_the_same_in_every_rollout(tools):
    one, other = Simulator(SglsConfig()), Simulator(SglsConfig())
    for raw, _ in tools[::6]:
        call = ToolCall(raw["name"], generate_arguments(raw["input_schema"], 0))
        (first,) = asyncio.run(one.episode([raw], "w").respond([call]))
        assert first == asyncio.run(other.episode([raw], "w").respond([call]))[0]
        assert len(first.content) <= 400
        assert first.is_error or isinstance(json.loads(first.content), dict)
