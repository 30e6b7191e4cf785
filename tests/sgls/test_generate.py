import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.errors import DataError
from verl_slca.sgls.generate import generate_arguments
from verl_slca.sgls.schema import compile_parameters

SCHEMAS = [
    {},
    {"properties": {"n": {"type": "integer", "minimum": -20, "maximum": 40}}, "required": ["n"]},
    {"properties": {"n": {"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 6}}, "required": ["n"]},
    {"properties": {"n": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.001}}, "required": ["n"]},
    {"properties": {"n": {"type": "number", "multipleOf": 0.25, "minimum": 1e6}}, "required": ["n"]},
    {"properties": {"s": {"type": "string", "minLength": 40, "maxLength": 41}}, "required": ["s"]},
    {"properties": {"s": {"type": "string", "pattern": r"^[A-Z]{2}-\d{4}(x|yz)?$"}}, "required": ["s"]},
    {"properties": {"s": {"type": "string", "pattern": r"^\d+$", "minLength": 8, "maxLength": 8}}, "required": ["s"]},
    {
        "properties": {
            f: {"type": "string", "format": f} for f in ("date", "time", "date-time", "email", "uri", "uuid", "ipv6")
        }
    },
    {"properties": {"a": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": True}}},
    {"properties": {"a": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "items": False}}},
    {"properties": {"a": {"type": "array", "contains": {"const": 7}}}, "required": ["a"]},
    {"allOf": [{"properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"properties": {"x": {"minimum": 9}}}]},
    {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
    {"properties": {"k": {"enum": [1, 2]}}, "if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["z"]}},
    {"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
    {"patternProperties": {"^id_[0-9]$": {"type": "integer"}}, "additionalProperties": False, "minProperties": 1},
    {"additionalProperties": {"type": "integer"}, "minProperties": 3},
    {"$defs": {"t": {"properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}}, "$ref": "#/$defs/t"},
    {"required": ["undeclared"]},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
def test_generated_arguments_are_valid_and_repeatable(schema):
    compiled = compile_parameters(schema)
    for seed in range(20):
        arguments = generate_arguments(schema, seed)
        assert compiled.errors(arguments) == []
        assert arguments == generate_arguments(schema, seed)


def test_seeds_vary_the_arguments():
    schema = {"properties": {"city": {"type": "string"}, "n": {"type": "integer"}}, "required": ["city", "n"]}
    assert len({str(generate_arguments(schema, seed)) for seed in range(20)}) > 10


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": False}, "required": ["a"]},
        {"properties": {"child": {"$ref": "#"}}, "required": ["child"]},
        {"properties": {"a": {"type": "integer", "minimum": 5, "maximum": 4}}, "required": ["a"]},
        {"properties": {"a": {"type": "string", "minLength": 10**9}}, "required": ["a"]},
        {"properties": {"a": {"type": "array", "minItems": 10**9}}, "required": ["a"]},
        {"properties": {"a": {"allOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["a"]},
        {"properties": {"x": {"items": False, "minItems": 2}}, "required": ["x"]},
    ],
)  # fmt: skip
def test_a_schema_that_nothing_satisfies_is_a_data_error(schema):
    with pytest.raises(DataError, match="simplify the schema"):
        generate_arguments(schema, 0)


@settings(max_examples=100, deadline=None)
@given(
    low=st.integers(-(10**6), 10**6),
    width=st.integers(0, 10**4),
    kind=st.sampled_from(["integer", "number"]),
    seed=st.integers(0, 99),
)
def test_numbers_stay_within_their_bounds(low, width, kind, seed):
    schema = {"properties": {"price": {"type": kind, "minimum": low, "maximum": low + width}}, "required": ["price"]}
    assert low <= generate_arguments(schema, seed)["price"] <= low + width
