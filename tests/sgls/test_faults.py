"""Injected API errors: what the policy sees, that a group sees the same, that they are no real faults."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca import config
from verl_slca.errors import ConfigError
from verl_slca.sgls.backends import BackendResponse
from verl_slca.sgls.backends.infer import inferred_output
from verl_slca.sgls.faults import InjectionConfig
from verl_slca.sgls.schema import compile_tool
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall, ToolResult

WEATHER = {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}, "required": ["city"]}}
PRICE = {
    "name": "get_price",
    "parameters": {"properties": {"item": {"type": "string"}}},
    "outputSchema": {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]},
}
KINDS = ("timeout", "rate_limit", "server_error", "empty", "truncated", "wrong_schema")


def answers(simulator: Simulator, *calls: ToolCall, world: str = "w") -> tuple[ToolResult, ...]:
    return asyncio.run(simulator.episode([WEATHER, PRICE], world).respond(calls))


def simulator(**rates: float) -> Simulator:
    return Simulator(SglsConfig(inject=InjectionConfig(**rates)))


def weather(city: str = "Oslo") -> ToolCall:
    return ToolCall("get_weather", {"city": city})


@pytest.mark.parametrize(("kind", "said"), [("timeout", "504 "), ("rate_limit", "429 "), ("server_error", "Error: 50")])
def test_a_refusal_is_an_error_response_that_the_policy_sees(kind, said):
    (result,) = answers(simulator(**{kind: 1.0}), weather())
    assert result.is_error
    assert said in result.content


def test_an_empty_answer_is_empty():
    assert answers(simulator(empty=1.0), weather())[0].content == ""


def test_a_truncated_answer_is_the_beginning_of_the_true_one():
    (true,), (cut,) = answers(simulator(), weather()), answers(simulator(truncated=1.0), weather())
    assert true.content.startswith(cut.content)
    assert len(cut.content) < len(true.content)


@pytest.mark.parametrize("tool", [WEATHER, PRICE])
def test_an_answer_of_the_wrong_schema_is_json_that_the_schema_refuses(tool):
    calls = [ToolCall(tool["name"], {"city" if tool is WEATHER else "item": str(i)}) for i in range(20)]
    compiled = compile_tool(tool)
    for result in answers(simulator(wrong_schema=1.0), *calls):
        assert (compiled.output or inferred_output(compiled)).errors(json.loads(result.content))


def test_every_rollout_of_a_group_meets_the_same_errors_in_any_order_of_calls():
    rates = dict.fromkeys(KINDS, 0.15)
    cities = [str(i) for i in range(60)]
    first = answers(simulator(**rates), *map(weather, cities))
    other = answers(simulator(**rates), *map(weather, reversed(cities)))
    assert other == first[::-1]
    assert answers(simulator(**rates), *map(weather, cities), world="v") != first
    assert 0 < sum(result.is_error for result in first) < 60


def test_a_repeated_call_draws_again_so_that_a_retry_may_succeed():
    group = [answers(simulator(rate_limit=0.5), *[weather()] * 20) for _ in range(2)]
    assert group[0] == group[1]
    assert {result.is_error for result in group[0]} == {True, False}


def test_the_rates_are_met():
    counting = simulator(timeout=0.1, empty=0.2)
    for world in range(50):
        answers(counting, *[weather(str(i)) for i in range(20)], world=str(world))
    kinds = counting.figures.total().kinds
    assert kinds["injected/timeout"] == pytest.approx(100, abs=35)  # 3.7 standard deviations
    assert kinds["injected/empty"] == pytest.approx(200, abs=47)


def test_injected_errors_are_counted_apart_from_real_faults():
    counting = simulator(timeout=1.0)
    answers(counting, weather(), ToolCall("get_weather", {}), ToolCall("nope", {}))
    total = counting.figures.total()
    assert (total.calls, total.valid, total.invalid, total.unknown) == (3, 1, 1, 1)
    assert (total.injected, total.faults) == (1, 0)
    assert total.kinds == {"injected/timeout": 1}


def test_without_rates_nothing_stands_in_front_of_the_backend():
    assert type(Simulator(SglsConfig()).backend) is not type(simulator(empty=0.1).backend)


@pytest.mark.parametrize(
    ("rates", "named"),
    [({"timeout": 1.5}, "timeout"), ({"empty": -0.1}, "empty"), ({"empty": 0.6, "timeout": 0.6}, "add up")],
)
def test_impossible_rates_are_refused(rates, named):
    with pytest.raises(ConfigError, match=named):
        config.parse(SglsConfig, {"inject": rates}, "sgls")


@settings(max_examples=40, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
        max_leaves=8,
    )
)
def test_whatever_a_backend_says_can_be_spoiled(value):
    class Says:
        async def respond(self, request):
            return BackendResponse(json.dumps(value))

    for kind in KINDS:
        spoiling = Simulator(SglsConfig(inject=InjectionConfig(**{kind: 1.0})), Says())
        answers(spoiling, weather())
        assert spoiling.figures.total().kinds == {f"injected/{kind}": 1}
