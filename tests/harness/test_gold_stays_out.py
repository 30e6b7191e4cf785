"""Gold never reaches the simulator's model: canaries in gold, and every request that the model got."""

import json
from pathlib import Path

from misbehaving_server import MisbehavingServer
from scripted_server import ScriptedServer, call, hermes, write_rows

from harness.benchmarks.task import Model, TaskOptions
from harness.benchmarks.toucan import Toucan
from harness.benchmarks.toucan_gold import make_rows
from harness.policy import Sampling
from verl_slca.endpoint import connect
from verl_slca.episode import Limits

CANARY = "canary-7f3a"


def with_canary(row: dict) -> dict:
    """The row, its gold calls wanting an argument that nobody else knows of."""
    truth = row["reward_model"]["ground_truth"]
    gold = json.loads(truth["gold_tool_calls"])
    for step in gold:
        for one in step:
            one["arguments"]["city"] = CANARY
    truth["gold_tool_calls"] = json.dumps(gold)
    return row


async def test_no_request_to_the_simulators_model_holds_gold(server: ScriptedServer, tmp_path: Path):
    rows = [with_canary(row) for row in make_rows(4)]
    assert CANARY in json.dumps(rows)
    called = hermes([call("weather-now", "City1"), call("city-population", "City1")])
    server.script = lambda body: "Done." if any(m["role"] == "tool" for m in body["messages"]) else called
    with MisbehavingServer(['{"city": "City1", "name": "x", "status": "fine"}', '{"error": "no"}']) as simulator:
        sgls = {"backends": ["llm"], "llm": {"base_url": simulator.url, "attempts": 1}}
        data = write_rows(tmp_path / "rows.jsonl", rows)
        task = Toucan.load(TaskOptions(data, Limits(), 0, {"sgls": sgls}))
        async with connect(server.url, 10.0, 0) as client, task.session(Model(client, "scripted", Sampling())) as play:
            outcomes = [await play(sample) for sample in task.samples()]
    assert len(simulator.requests) >= 2 * len(rows)
    assert {outcome.status for outcome in outcomes} == {"ok"}
    for request in simulator.requests:
        assert "City1" in json.dumps(request.body)
        assert CANARY not in json.dumps([request.body, request.headers])
