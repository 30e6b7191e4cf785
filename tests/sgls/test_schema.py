import contextlib
import faulthandler
import json
import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.errors import DataError
from verl_slca.sgls.generate import generate
from verl_slca.sgls.schema import CompiledTool, compile_tool
from verl_slca.sgls.validation import SchemaLimitError, canonical_json

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 7},
        "units": {"anyOf": [{"type": "string", "enum": ["metric", "imperial"]}, {"type": "null"}]},
        "stops": {
            "type": "array",
            "maxItems": 2,
            "items": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
        },
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def _guard():
    """A hang would otherwise stop the whole run; the tests themselves assert no time."""
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def tool(parameters, **extra) -> CompiledTool:
    return compile_tool({"type": "function", "function": {"name": "t", "parameters": parameters, **extra}})


def texts(parameters, arguments) -> list[str]:
    return [str(error) for error in tool(parameters).errors(arguments)]


def test_valid_arguments_have_no_errors():
    assert texts(WEATHER, {"city": "Oslo", "days": None, "units": "metric", "stops": [{"lat": 1}]}) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ["city: is required (string)"]),
        ({"city": 5}, ["city: must be string, got 5"]),
        ({"city": ""}, ['city: must have at least 1 character, got ""']),
        ({"city": "x", "days": "3"}, ['days: must be integer or null, got "3"']),
        ({"city": "x", "days": True}, ["days: must be integer or null, got true"]),
        ({"city": "x", "days": 9}, ["days: must be at most 7, got 9"]),
        ({"city": "x", "units": "kelvin"}, ['units: must be "metric" or "imperial" or null, got "kelvin"']),
        ({"city": "x", "stops": [{"lat": 1}, {}]}, ["stops[1].lat: is required (number)"]),
        ({"city": "x", "stops": [{"lat": "n"}]}, ['stops[0].lat: must be number, got "n"']),
        ({"city": "x", "citi": 1}, ["citi: is not a known parameter, did you mean city?, got 1"]),
        (
            {"city": "x", "zzz": 1},
            ["zzz: is not a known parameter, allowed: city, days, units, stops, got 1"],
        ),
        ([], ["arguments: must be object, got []"]),
    ],
)
def test_each_error_names_field_value_and_what_is_allowed(arguments, expected):
    assert texts(WEATHER, arguments) == expected


def test_every_error_is_reported_ordered_by_field():
    found = tool(WEATHER).errors({"days": 0, "units": 3, "extra": None})
    assert [error.path for error in found] == ["city", "days", "extra", "units"]


def test_long_values_are_cut():
    (error,) = tool(WEATHER).errors({"city": ["x" * 10_000]})
    assert len(error.value) < 100


def test_the_alternative_that_was_meant_is_explained():
    schema = {
        "properties": {
            "at": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"x": {"type": "integer"}}}]}
        }
    }
    assert texts(schema, {"at": {"x": "1"}}) == ['at.x: must be integer, got "1"']
    assert texts(schema, {"at": 4}) == ["at: must be string or object, got 4"]


def test_an_alternative_that_allows_nothing_is_not_offered():
    assert texts({"anyOf": [False, {"required": ["a"]}]}, {}) == ["a: is required"]
    assert texts({"properties": {"x": {"oneOf": [False, {"type": "string"}]}}}, {"x": 3}) == [
        "x: must be string, got 3"
    ]
    assert texts({"anyOf": [False, False]}, {}) == ["arguments: must be nothing, got {}"]


def test_numbers_that_json_lacks_and_monstrous_arguments_are_the_policys_error():
    anything = tool({})
    assert "finite" in str(anything.errors({"a": float("nan")})[0])
    assert "1e300" in str(anything.errors({"a": 10**400})[0])
    assert "10000 values" in str(anything.errors({"a": list(range(20_000))})[0])
    deep = current = {}
    for _ in range(5000):
        current["a"] = {}
        current = current["a"]
    assert "32 levels" in str(anything.errors(deep)[0])


def test_multiples_are_exact_and_whole_floats_are_integers():
    schema = {"properties": {"x": {"multipleOf": 0.1}, "n": {"type": "integer"}}}
    assert texts(schema, {"x": 0.3, "n": 2.0}) == []
    assert texts(schema, {"x": 0.35}) == ["x: must be a multiple of 0.1, got 0.35"]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("date", "2024-02-29", "2024-02-30"),
        ("date-time", "2024-05-01T10:00:00Z", "yesterday"),
        ("email", "a@b.org", "a.b.org"),
        ("ipv4", "192.0.2.1", "192.0.2.999"),
        ("uuid", "12345678-1234-5678-1234-567812345678", "1234"),
        ("uri", "https://example.com/x", "example"),
    ],
)
def test_formats_are_enforced(kind, good, bad):
    schema = {"properties": {"x": {"type": "string", "format": kind}}}
    assert texts(schema, {"x": good}) == []
    assert texts(schema, {"x": bad}) == [f'x: must be a valid {kind}, got "{bad}"']


@pytest.mark.parametrize(
    ("wild", "good", "bad"),
    [
        ({"type": "dict", "properties": {"x": {"type": "float"}}}, {"x": 1.5}, {"x": "1.5"}),
        ({"properties": {"x": {"type": "tuple", "items": {"type": "int"}}}}, {"x": [1]}, {"x": ["a"]}),
        ({"properties": {"x": {"type": "any"}}, "required": ["x"]}, {"x": [None]}, {}),
        ({"properties": {"x": {"type": "String"}}}, {"x": "a"}, {"x": 1}),
        ({"properties": {"x": {}}}, {"x": 1}, "no object"),
        ({"type": "object", "properties": {}}, {"y": 1}, []),
        (None, {}, []),
        ({"properties": {"x": {"type": "string", "default": None}}}, {}, {"x": 1}),
        ({"properties": {"x": {"type": "integer", "minimum": "3"}}}, {"x": 3}, {"x": 2}),
        ({"properties": {"x": {"type": "integer", "enum": ["1", "2"]}}}, {"x": 2}, {"x": 3}),
        ({"properties": {"x": {"minimum": 0, "exclusiveMinimum": True}}}, {"x": 0.1}, {"x": 0}),
        ({"properties": {"x": {"type": "string", "required": True}}}, {"x": ""}, {}),
        ({"properties": {"x": {"type": "string"}, "gone": None}, "required": None}, {}, {"x": 1}),
        ({"x": {"type": "string"}, "y": {"type": "integer"}}, {"x": "a"}, {"y": "a"}),
        ({"properties": {"x": {"type": "string", "nullable": True}}}, {"x": None}, {"x": 1}),
        ({"properties": {"x": {"items": [{"type": "string"}], "additionalItems": False}}}, {"x": ["a"]}, {"x": [1]}),
        ({"dependencies": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        ({"$defs": {"n": {"type": "int"}}, "properties": {"x": {"$ref": "#/$defs/n"}}}, {"x": 1}, {"x": "1"}),
        ({"properties": {"x": {"type": "int"}, "y": {"$ref": "#/properties/x"}}}, {"y": 1}, {"y": "1"}),
        ({"components": {"n": {"type": "int"}}, "properties": {"x": {"$ref": "#/components/n"}}}, {"x": 1}, {"x": ""}),
        (
            {"$id": "http://a.b/c", "$defs": {"n": {"$anchor": "k", "type": "int"}},
             "properties": {"x": {"$ref": "http://a.b/c#k"}}},
            {"x": 1}, {"x": ""},
        ),
        ({"properties": {"next": {"$ref": "#"}}, "additionalProperties": False}, {"next": {}}, {"next": {"a": 1}}),
        ({"properties": {"x": {"type": "object", "$schema": "http://json-schema.org/draft-04/schema#",
                               "properties": {"y": {"type": "string"}}}}}, {"x": {"y": ""}}, {"x": {"y": 1}}),
        ({"properties": {"$ref": {"type": "string"}, "type": {"type": "integer"}}}, {"type": 1}, {"$ref": 1}),
        ({"properties": {"x": {"pattern": "^\\p{L}+$"}}}, {"x": "é"}, {"x": "1"}),
        ({"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}, {"a": 1}, {"b": 1}),
        ({"properties": {"a": {}}, "required": ["a", "b"], "additionalProperties": False}, {"a": 1}, {"b": 1}),
        ({"properties": {"a": {}}, "required": ["b"]}, {"b": 1}, {"a": 1}),
    ],
)  # fmt: skip
def test_what_is_seen_in_the_wild_means_what_its_author_meant(wild, good, bad):
    compiled = tool(wild)
    assert compiled.errors(good) == []
    assert compiled.errors(bad) != []


def test_draft_7_ignores_what_stands_beside_a_ref_and_2020_12_does_not():
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/n", "minimum": 5}}}
    assert texts(schema, {"x": 1}) != []
    assert texts({"$schema": "http://json-schema.org/draft-07/schema#", **schema}, {"x": 1}) == []


@pytest.mark.parametrize(
    ("broken", "path", "told"),
    [
        ({"properties": {"x": {"type": "strng"}}}, "properties.x.type", "did you mean 'string'?"),
        ({"properties": {"x": {"type": 5}}}, "properties.x.type", "5"),
        ({"properties": {"x": "string"}}, "properties.x", "'string'"),
        ({"properties": ["x"]}, "properties", "object of schemas"),
        ({"type": "string"}, "parameters", "use object"),
        ({"properties": {"x": {"pattern": "(["}}}, "properties.x.pattern", "not a regular expression"),
        ({"properties": {"x": {"pattern": "^(a|a)*$"}}}, "properties.x.pattern", "exponential time"),
        ({"properties": {"x": {"pattern": "a{2000000000}"}}}, "properties.x.pattern", "repeat counts"),
        ({"properties": {"x": {"pattern": "((a{999}){999}){999}"}}}, "properties.x.pattern", "repeat counts"),
        ({"properties": {"x": {"minimum": "low"}}}, "properties.x.minimum", "'low'"),
        ({"properties": {"x": {"enum": "abc"}}}, "properties.x.enum", "list of values"),
        ({"properties": {"x": {"anyOf": []}}}, "properties.x.anyOf", "not empty"),
        ({"required": [1]}, "required", "property names"),
        (
            {"allOf": [{"patternProperties": {"(a|b)*": {}}}], "unevaluatedProperties": False},
            "parameters",
            "use additionalProperties",
        ),
        ({"dependencies": {"a": ["b"]}, "dependentRequired": "b"}, "dependentRequired", "lists of property names"),
        ({"dependencies": {"a": {}}, "dependentSchemas": []}, "dependentSchemas", "object of schemas"),
        ({"properties": {"x": {"$ref": "#/$defs/gone"}}}, "properties.x.$ref", "inline it"),
        ({"properties": {"x": {"$ref": "http://example.com/a.json"}}}, "properties.x.$ref", "nothing outside"),
        ({"properties": {"x": {"$ref": "file:///etc/passwd"}}}, "properties.x.$ref", "nothing outside"),
        ({"allOf": [{"$ref": "#"}]}, "parameters", "loop"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "not": {"$ref": "#/$defs/a"}}, "parameters", "loop"),
        ([], "parameters", "JSON object"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_compiled_is_a_data_error_with_tool_path_and_fix(broken, path, told):
    with pytest.raises(DataError) as caught:
        tool(broken)
    message = str(caught.value)
    assert message.startswith("tool 't'")
    assert path in message
    assert told in message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


@pytest.mark.parametrize("bad", [None, 3, {}, {"name": ""}, {"name": 3}, {"name": "x" * 999}, {"function": []}])
def test_a_tool_without_a_usable_name_is_a_data_error(bad):
    with pytest.raises(DataError, match=r"^tool"):
        compile_tool(bad)


def nested(depth: int, key: str = "properties") -> dict:
    schema: dict = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}} if key == "properties" else {key: [schema]}
    return schema


def doubling(levels: int) -> dict:
    defs = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**defs, f"d{levels}": {"type": "object"}}, "allOf": [{"$ref": "#/$defs/d0"}]}


@pytest.mark.parametrize("schema", [nested(100), nested(5000), nested(60, "allOf"), doubling(40)])
def test_deep_schemas_end_in_a_data_error(schema):
    with pytest.raises(DataError, match="tool 't'"):
        tool(schema)


def test_cyclic_python_objects_end_in_a_data_error():
    loop: dict = {"properties": {}}
    loop["properties"]["a"] = loop
    with pytest.raises(DataError, match="not plain JSON"):
        tool(loop)


def test_references_that_multiply_the_work_end_in_a_verdict_or_a_limit():
    assert tool(doubling(12)).errors({}) == []
    node = {"allOf": [{"properties": {"a": {"$ref": "#/$defs/n"}}}] * 8}
    with pytest.raises(SchemaLimitError, match="validation steps"):
        tool({"$defs": {"n": node}, "$ref": "#/$defs/n"}).errors(json.loads('{"a":' * 20 + "{}" + "}" * 20))


def test_huge_enums_end_in_a_verdict():
    schema = {"properties": {"x": {"type": "array", "items": {"enum": [f"v{i}" for i in range(15_000)]}}}}
    compiled = tool(schema)
    assert compiled.errors({"x": ["v7"]}) == []
    assert "14988 more" in str(compiled.errors({"x": ["w"]})[0])
    with pytest.raises(SchemaLimitError):
        compiled.errors({"x": [f"v{i}" for i in range(9_000)]})
    with pytest.raises(DataError, match="20000 JSON values"):
        tool({"enum": list(range(30_000))})


def test_a_pattern_that_turns_slow_on_an_argument_is_a_limit_not_a_verdict():
    compiled = tool({"properties": {"x": {"pattern": "^(?:q|z|qz)*(?:zq|q|z)*$(?<=!)"}}})
    with pytest.raises(SchemaLimitError, match="too long"):
        compiled.errors({"x": "qz" * 3000 + "!q"})


def test_many_searches_share_one_time_limit():
    compiled = tool({"properties": {"x": {"items": {"pattern": "\\s+$"}}}})
    with pytest.raises(SchemaLimitError, match="too long"):
        compiled.errors({"x": [" " * 5000 + "x"] * 200})


def test_compilation_is_cached_by_content_and_untouched_by_later_changes():
    raw = {"name": "t", "parameters": {"properties": {"x": {"type": "string"}}}}
    first = compile_tool(raw)
    assert compile_tool(json.loads(json.dumps(raw))) is first
    raw["parameters"]["properties"]["x"]["type"] = "integer"
    assert first.errors({"x": "a"}) == []
    assert compile_tool(raw).errors({"x": "a"}) != []


def test_the_digest_ignores_key_order():
    one = compile_tool({"name": "t", "description": "d"})
    assert compile_tool({"description": "d", "name": "t"}).digest == one.digest
    assert compile_tool({"description": "e", "name": "t"}).digest != one.digest


def test_an_mcp_tool_and_an_openai_tool_are_read_alike():
    schema = {"properties": {"x": {"type": "string"}}, "required": ["x"]}
    for key in ("parameters", "inputSchema", "input_schema"):
        assert compile_tool({"name": "t", key: schema}).errors({}) != []


def test_output_schemas_are_compiled_and_prose_under_returns_is_not_one():
    assert tool({}, outputSchema={"type": "dict"}).output.schema == {"type": "object"}
    assert tool({}, returns="the sum").output is None
    with pytest.raises(DataError, match=r"tool 't': response\.type"):
        tool({}, response={"type": "nope"})


def test_canonical_json_is_one_text_per_value():
    assert canonical_json({"b": 2.0, "a": [True, 1.5]}) == '{"a":[true,1.5],"b":2}'


_SCHEMA_WORDS = """
    type properties required items anyOf allOf oneOf not if then else enum const $ref $defs definitions pattern format
    minimum maximum exclusiveMinimum multipleOf minLength maxLength minItems uniqueItems additionalProperties default
    patternProperties propertyNames dependencies nullable $schema $id $anchor prefixItems contains title x
"""
KEYWORDS = st.sampled_from(_SCHEMA_WORDS.split())
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.floats(allow_nan=False),
    st.sampled_from(["string", "dict", "any", "null", "object", "^a+$", "(", "x", "3"]),
    st.sampled_from(["#", "#/properties/x", "#/$defs/x"]),
    st.text(max_size=5),
)  # fmt: skip
WILD = st.recursive(
    SCALARS,
    lambda children: st.one_of(st.lists(children, max_size=3), st.dictionaries(KEYWORDS, children, max_size=5)),
    max_leaves=30,
)


@settings(max_examples=100, deadline=None)
@given(parameters=st.dictionaries(KEYWORDS, WILD, max_size=6), arguments=WILD)
def test_any_json_compiles_and_judges_or_is_a_named_error(parameters, arguments):
    try:
        compiled = tool(parameters)
    except DataError as error:
        if "tool 't'" not in str(error):
            raise
        return
    try:
        first = compiled.errors(arguments)
    except SchemaLimitError:
        return
    assert first == compiled.errors(arguments)
    assert all(str(error) for error in first)


@settings(max_examples=60, deadline=None)
@given(output=st.dictionaries(KEYWORDS, WILD, max_size=6), answer=WILD)
def test_any_json_is_an_output_schema_that_judges_and_draws_or_a_named_error(output, answer):
    try:
        schema = tool({}, outputSchema=output).output
    except DataError as error:
        if "tool 't': " not in str(error):
            raise
        return
    with contextlib.suppress(SchemaLimitError):
        schema.errors(answer)
    try:
        drawn = generate(schema, random.Random(0))
    except DataError as error:
        if "no valid value found" not in str(error):
            raise
        return
    assert schema.errors(drawn) == []


@pytest.mark.parametrize(
    "output",
    [
        {"$ref": "http://example.com/a.json"},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"items": {"$ref": "#/$defs/gone"}},
        {"properties": {"a": {"pattern": "^(a|a)*$"}}},
        {"allOf": [{"$ref": "#"}]},
    ],
)
def test_a_hostile_output_schema_is_a_data_error(output):
    with pytest.raises(DataError, match="tool 't': outputSchema"):
        tool({}, outputSchema=output)
