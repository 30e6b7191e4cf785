import json

import pytest

from verl_slca.errors import SimulatorFault
from verl_slca.sgls.backends import BackendRequest, BackendResponse
from verl_slca.sgls.backends.arithmetic import UndefinedResultError, arithmetic_result
from verl_slca.sgls.backends.rules import MAX_RESPONSE_CHARS, rules_response
from verl_slca.sgls.schema import compile_tool

CITY = {"city": {"type": "string"}}


def respond(name, arguments, parameters=None, world="w", **extra) -> BackendResponse:
    tool = compile_tool({"name": name, "parameters": {"properties": parameters or {}}, **extra})
    return rules_response(BackendRequest(tool, arguments, world, 0))


def test_a_declared_output_is_filled_within_its_bounds_and_echoes_arguments():
    output = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "temperature": {"type": "integer", "minimum": -20, "maximum": 40},
            "sky": {"enum": ["clear", "rain"]},
        },
        "required": ["city", "temperature", "sky"],
    }
    seen = set()
    for world in range(30):
        answer = json.loads(respond("get_weather", {"city": "Oslo"}, CITY, str(world), outputSchema=output).content)
        assert list(answer) == ["city", "temperature", "sky"]
        assert answer["city"] == "Oslo"
        assert -20 <= answer["temperature"] <= 40
        seen.add((answer["temperature"], answer["sky"]))
    assert len(seen) > 10


def test_the_declared_form_is_compact():
    output = {"properties": {"temperature": {"type": "integer", "minimum": 7, "maximum": 7}}}
    assert respond("get_weather", {"city": "Oslo"}, CITY, response=output).content == '{"temperature": 7}'


def test_an_echo_that_the_output_forbids_is_not_made():
    output = {"properties": {"city": {"type": "integer", "minimum": 1, "maximum": 1}}, "required": ["city"]}
    assert respond("get_weather", {"city": "Oslo"}, CITY, response=output).content == '{"city": 1}'


def test_a_declared_text_is_returned_bare():
    assert respond("t", {}, response={"const": "done"}).content == "done"


def test_a_long_response_is_drawn_again_with_required_fields_only():
    output = {"properties": {f"field_{i}": {"type": "string"} for i in range(60)}, "required": ["field_0"]}
    assert list(json.loads(respond("t", {}, response=output).content)) == ["field_0"]


def test_an_output_that_nothing_satisfies_is_a_fault():
    with pytest.raises(SimulatorFault, match="simulator_output_schema"):
        respond("t", {}, response={"allOf": [{"type": "string"}, {"type": "null"}]})


@pytest.mark.parametrize(
    ("name", "parameters", "arguments", "keys"),
    [
        ("get_weather", CITY, {"city": "Oslo"}, {"city", "temperature", "condition", "humidity"}),
        ("list_orders", {}, {}, {"orders"}),
        ("searchPapers", {"query": {}}, {"query": "llm"}, {"query", "papers"}),
        ("create_event", {"title": {}}, {"title": "Standup"}, {"success", "event_id", "title", "created_at"}),
        ("update-user", {"id": {}, "name": {}}, {"id": 4}, {"success", "id", "updated_at"}),
        ("delete_file", {"path": {}}, {"path": "a.txt"}, {"success", "path", "status"}),
        ("add_note", {"text": {}}, {"text": "milk"}, {"success", "note_id", "text", "created_at"}),
        ("add_user", {"age": {"type": "integer"}}, {"age": 3}, {"success", "user_id", "age", "created_at"}),
        ("add_num", {"nums": {"type": "array", "items": {"type": "number"}}}, {"nums": [1]}, {"nums", "result"}),
        ("convert_weight", {"kg": {}}, {"kg": 2}, {"kg", "result"}),
        ("is_holiday", {"date": {}}, {"date": "2024-01-01"}, {"date", "valid"}),
    ],
)
def test_an_inferred_response_has_the_shape_of_its_verb_and_repeats_arguments(name, parameters, arguments, keys):
    answer = json.loads(respond(name, arguments, parameters).content)
    assert set(answer) == keys
    assert arguments.items() <= answer.items()


def test_lists_hold_items_with_ids():
    answer = json.loads(respond("list_orders", {}).content)
    assert all({"id", "status", "amount"} <= set(order) for order in answer["orders"])


def test_long_arguments_are_not_repeated():
    answer = respond("create_note", {"text": "x" * 5000}, {"text": {"type": "string"}})
    assert len(answer.content) < MAX_RESPONSE_CHARS


def test_the_order_of_arguments_and_whole_floats_make_no_difference():
    parameters = {"a": {"type": "number"}, "b": {"type": "number"}}
    for name in ("subtract", "compare_values", "get_user"):
        one = respond(name, {"a": 7, "b": 2}, parameters)
        assert respond(name, {"b": 2.0, "a": 7.0}, parameters) == one


@pytest.mark.parametrize(
    ("name", "operands", "result"),
    [
        ("add", [2, 3], 5),
        ("add_a_and_b", [2, 3], 5),
        ("calculator-server-subtract", [2, 3], -1),
        ("multiply_numbers", [0.1, 3], 0.3),
        ("divide", [1, 4], 0.25),
        ("divide", [8, 4], 2),
        ("power", [2, 10], 1024),
        ("mod", [7, 4], 3),
        ("sqrt", [9], 3),
        ("sum", [[1, 2, 3.5]], 6.5),
        ("mean", [[1, 2]], 1.5),
        ("max", [[4, 9]], 9),
        ("add_user", [2, 3], None),
        ("add", ["2", 3], None),
        ("add", [True, 3], None),
        ("get_weather", ["Oslo"], None),
        ("sum", [[]], None),
    ],
)
def test_arithmetic_is_true(name, operands, result):
    assert arithmetic_result(name, operands) == result


@pytest.mark.parametrize(
    ("name", "operands"),
    [("divide", [1, 0]), ("sqrt", [-1]), ("power", [-8, 0.5]), ("power", [10, 999999]), ("mod", [1, 0])],
)
def test_undefined_arithmetic_is_an_api_error(name, operands):
    with pytest.raises(UndefinedResultError):
        arithmetic_result(name, operands)
    assert respond(name, {f"x{i}": value for i, value in enumerate(operands)}).is_error


def test_the_true_result_fills_the_one_numeric_output():
    numbers = {"a": {"type": "number"}, "b": {"type": "number"}}
    output = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
    assert respond("add", {"a": 2, "b": 3}, numbers, response=output).content == '{"sum": 5}'
    assert respond("add", {"a": 2, "b": 3}, numbers).content == '{"a": 2, "b": 3, "result": 5}'
