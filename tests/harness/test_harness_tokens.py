"""The harness's conversation, rendered by a server's chat template, holds the very tokens that training trained on."""

from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, call, hermes

from harness.benchmarks.toucan_gold import make_rows
from harness.policy import ChatPolicy, Sampling
from verl_slca.endpoint import connect
from verl_slca.episode import Limits, run_episode
from verl_slca.rows import row_from_record
from verl_slca.sgls.simulator import SglsConfig, Simulator

RECIPE = Path(__file__).parents[2] / "recipes/quickstart"
REPLIES = [
    hermes([call("weather-now", "City1"), call("no-such-tool", "x")]),
    "Let me see.\n" + hermes([call("weather-now", "A")]),
]


@pytest.mark.verl
@pytest.mark.parametrize("tools_in_prompt", [True, False])
async def test_the_harness_sends_what_training_shows_the_policy(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tools_in_prompt: bool
) -> None:
    pytest.importorskip("verl")
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    monkeypatch.syspath_prepend(str(RECIPE))
    from tiny import train_tokenizer

    tokenizer = train_tokenizer([str(make_rows(4))], ["City"])
    record = make_rows(2)[1]
    if not tools_in_prompt:
        del record["prompt"][0]
    row = row_from_record(record, "row 1")
    assert (row.template_tools is None) == tools_in_prompt
    server.script = lambda body: [*REPLIES, "Done."][sum(m["role"] == "assistant" for m in body["messages"])]
    async with connect(server.url, 10.0, 0) as client:
        policy = ChatPolicy(client, "scripted", row.prompt, row.template_tools, Sampling())
        world = Simulator(SglsConfig()).episode(row.tools, row.key)
        trajectory = await run_episode(policy, world, Limits())

    builder = create_continuous_token_builder(tokenizer, hf_model_type="qwen2")
    messages: list[dict[str, Any]] = list(row.prompt)
    trained = builder.build_initial_tokens(messages, tools=row.template_tools)
    for turn, body in zip(trajectory.turns, server.bodies, strict=True):
        sent = tokenizer.apply_chat_template(
            body["messages"], tools=body.get("tools"), add_generation_prompt=True, tokenize=False
        )
        assert tokenizer(sent, add_special_tokens=False).input_ids == trained
        written = tokenizer(turn.text + tokenizer.eos_token, add_special_tokens=False).input_ids
        trained = builder.merge_assistant_tokens(trained, written).token_ids
        calls = [{"type": "function", "function": {"name": r.name, "arguments": {}}} for r in turn.results]
        before = [*messages, {"role": "assistant", "content": "", "tool_calls": calls}]
        messages = [*before, *({"role": "tool", "name": r.name, "content": r.content} for r in turn.results)]
        if turn.results:
            trained = builder.merge_context_tokens(before, messages, trained, tools=row.template_tools).token_ids
