import asyncio
import dataclasses
import json
import pickle

import pytest

from verl_slca import config
from verl_slca.errors import ConfigError, DataError, JudgeFault, SimulatorFault
from verl_slca.sgls.backends import BackendRequest, BackendResponse
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall, ToolResult

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather-server-get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
MAIL = {"name": "send_mail", "parameters": {"properties": {"to": {"type": "string"}}}}


def call(name="weather-server-get_weather", **arguments) -> ToolCall:
    return ToolCall(name, arguments)


def answers(simulator: Simulator, *calls: ToolCall, world="w", tools=(WEATHER, MAIL)) -> tuple[ToolResult, ...]:
    return asyncio.run(simulator.episode(tools, world).respond(calls))


def test_one_result_per_call_in_order():
    results = answers(Simulator(SglsConfig()), call(city="Oslo"), call("nope"), call(), call("send_mail", to="a"))
    assert [(r.name, r.is_error) for r in results] == [
        ("weather-server-get_weather", False),
        ("nope", True),
        ("weather-server-get_weather", True),
        ("send_mail", False),
    ]


def test_no_calls_no_results():
    assert answers(Simulator(SglsConfig())) == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("send_mai", "Error: unknown tool 'send_mai'. Did you mean 'send_mail'?"),
        ("get_weather", "Error: unknown tool 'get_weather'. Did you mean 'weather-server-get_weather'?"),
        ("zzz", "Error: unknown tool 'zzz'. Available tools: weather-server-get_weather, send_mail."),
        ("", "Error: unknown tool ''. Available tools: weather-server-get_weather, send_mail."),
    ],
)
def test_an_unknown_tool_is_answered_with_the_nearest_names(name, text):
    assert answers(Simulator(SglsConfig()), call(name)) == (ToolResult(name, text, is_error=True),)


def test_invalid_arguments_are_answered_with_every_error():
    (result,) = answers(Simulator(SglsConfig()), call(days="2", town="Oslo"))
    assert result.is_error
    assert result.content == (
        "Error: invalid arguments for weather-server-get_weather: city: is required (string); "
        'days: must be integer, got "2"; '
        'town: is not a known parameter, allowed: city, days, got "Oslo".'
    )


def test_a_very_wrong_call_gets_an_error_of_bounded_length():
    extras = {f"x{i}": "y" * 10_000 for i in range(500)}
    (result,) = answers(Simulator(SglsConfig()), ToolCall("weather-server-get_weather", extras))
    assert "more." in result.content
    assert len(result.content) < 5000


def test_every_rollout_of_a_group_sees_one_world():
    first = answers(Simulator(SglsConfig(seed=3)), call(city="Oslo", days=2))
    other = answers(Simulator(SglsConfig(seed=3)), call(city="Bergen"), call(days=2.0, city="Oslo"))
    assert other[1] == first[0]


@pytest.mark.parametrize("changed", [{"world": "v"}, {"seed": 4}])
def test_worlds_and_seeds_differ(changed):
    seed = changed.get("seed", 3)
    first = answers(Simulator(SglsConfig(seed=3)), call(city="Oslo"))
    other = answers(Simulator(SglsConfig(seed=seed)), call(city="Oslo"), world=changed.get("world", "w"))
    assert other != first


def test_without_validation_whatever_is_called_is_answered():
    simulator = Simulator(SglsConfig(validate=False))
    results = answers(simulator, call(days="x"), call("no_such_tool", a=1), call(""), call("\ud800", b="\udfff"))
    assert not any(result.is_error for result in results)
    for result in results:
        result.content.encode()


def test_texts_are_always_encodable():
    results = answers(Simulator(SglsConfig()), call("\ud800"), call(**{"\ud800": 1}), call(city="\ud800 Oslo"))
    for result in results:
        result.content.encode()


def test_figures_count_per_tool_and_invented_names_under_one_key():
    simulator = Simulator(SglsConfig())
    answers(simulator, call(city="Oslo"), call(), call("a"), call("b"))
    snapshot = simulator.figures.snapshot()
    assert set(snapshot) == {"weather-server-get_weather", "(unknown)"}
    counts = {n: {k: v for k, v in row.items() if k not in ("seconds", "latency")} for n, row in snapshot.items()}
    assert counts["weather-server-get_weather"] == {"calls": 2, "valid": 1, "invalid": 1, "kinds": {"source/rules": 1}}
    assert counts["(unknown)"] == {"calls": 2, "unknown": 2}
    assert simulator.figures.total().calls == 4
    assert simulator.figures.total().seconds > 0
    answers(simulator, call(city="Oslo"))
    assert snapshot["weather-server-get_weather"]["calls"] == 2


class Scripted:
    """A backend that records its requests and answers, or fails, as told."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests: list[BackendRequest] = []

    async def respond(self, request: BackendRequest) -> BackendResponse:
        self.requests.append(request)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return BackendResponse(*step)


def test_a_backend_failure_is_a_fault_never_a_result():
    simulator = Simulator(SglsConfig(), Scripted(OSError("boom")))
    with pytest.raises(SimulatorFault, match=r"simulator_backend.*OSError: boom") as caught:
        answers(simulator, call(city="Oslo"))
    assert pickle.loads(pickle.dumps(caught.value)).kind == "simulator_backend"
    assert simulator.figures.total().faults == 1
    assert simulator.figures.total().valid == 0


def test_a_fault_that_is_typed_already_passes_unchanged():
    with pytest.raises(JudgeFault):
        answers(Simulator(SglsConfig(), Scripted(JudgeFault("k"))), call(city="Oslo"))


def test_an_api_error_of_the_backend_reaches_the_policy():
    results = answers(Simulator(SglsConfig(), Scripted(("HTTP 429", True))), call(city="Oslo"))
    assert results == (ToolResult("weather-server-get_weather", "HTTP 429", is_error=True),)


def test_the_backend_sees_the_world_and_what_happened_before():
    backend = Scripted(("one",), ("two",))
    answers(Simulator(SglsConfig(seed=5), backend), call(city="Oslo"), call("bad"), call(city="Bergen"), world="row 7")
    first, second = backend.requests
    assert (first.world, first.seed, first.history) == ("row 7", 5, ())
    assert [past.content[:8] for _, past in second.history] == ["one", "Error: u"]
    assert second.arguments == {"city": "Bergen"}


def test_tools_that_cannot_be_used_are_named_when_the_episode_opens():
    simulator = Simulator(SglsConfig())
    with pytest.raises(DataError, match=r"'t'.*type"):
        simulator.episode([{"name": "t", "parameters": {"type": "nope"}}], "w")
    with pytest.raises(DataError, match="two different tools"):
        simulator.episode([MAIL, {"name": "send_mail"}], "w")
    assert set(simulator.episode([MAIL, json.loads(json.dumps(MAIL))], "w").tools) == {"send_mail"}


def test_config_is_parsed_with_unknown_keys_and_backends_refused():
    assert config.parse(SglsConfig, {"validate": False, "seed": 2}, "sgls") == SglsConfig(validate=False, seed=2)
    with pytest.raises(ConfigError, match=r"sgls\.sed"):
        config.parse(SglsConfig, {"sed": 1}, "sgls")
    with pytest.raises(ConfigError, match="'magic'"):
        config.parse(SglsConfig, {"backends": ["magic"]}, "sgls")


def test_an_argument_that_exhausts_the_validator_is_a_fault():
    enum = {"properties": {"x": {"type": "array", "items": {"enum": [f"v{i}" for i in range(15_000)]}}}}
    tool = {"name": "t", "parameters": enum}
    with pytest.raises(SimulatorFault, match="simulator_schema_limit"):
        answers(Simulator(SglsConfig()), call("t", x=["v1"] * 1000), tools=[tool])


def test_the_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SglsConfig().seed = 1  # type: ignore[misc]
