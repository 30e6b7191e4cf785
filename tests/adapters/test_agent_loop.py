"""`slca_agent` token by token: a scripted policy behind verl's own loop, tokenizer and token builder."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")
sys.path.insert(0, str(Path(__file__).parent / "cpu"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import chat_templates
import tiny_model
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from verl_slca.adapters.agent_loop import SlcaAgentLoop, TimedWorld, TokenPolicy
from verl_slca.segments import turn_segments
from verl_slca.sgls.simulator import Simulator
from verl_slca.trajectory import Trajectory

pytestmark = pytest.mark.verl

PING = {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {"host": {"type": "string"}}}}
CALL = '<tool_call>\n{"name": "ping", "arguments": {"host": "h1"}}\n</tool_call>'
BAD_CALL = "<tool_call>\nping h1\n</tool_call>"
ANSWER = "h1 is up."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return AutoTokenizer.from_pretrained(tiny_model.build(tmp_path_factory.mktemp("tiny"), hidden=64, layers=1))


class ScriptedServer:
    """Says the given texts in turn and keeps what it was asked."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], end: str | None = None, context: int = 10**6) -> None:
        self.tokenizer, self.texts, self.end, self.context = tokenizer, list(texts), end, context
        self.asked: list[dict[str, Any]] = []

    async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.asked.append({"prompt": list(prompt_ids), **sampling_params})
        end = self.tokenizer.convert_tokens_to_ids(self.end or self.tokenizer.eos_token)
        ids = [*self.tokenizer.encode(self.texts[len(self.asked) - 1], add_special_tokens=False), end]
        ids = ids[: min(sampling_params["max_tokens"], max(self.context - len(prompt_ids), 0))]
        step = len(self.asked)
        fields = {"min_global_steps": step, "max_global_steps": step}
        log_probs = [-0.5 * step] * len(ids)  # verl's vLLM server says "completed" of stop and length alike
        return TokenOutput(token_ids=ids, log_probs=log_probs, stop_reason="completed", extra_fields=fields)


def play(
    tokenizer: Any,
    *texts: str,
    sgls: dict | None = None,
    tools: list = [PING],  # noqa: B006
    model_type: str = "qwen2",
    end: str | None = None,
    context: int = 10**6,
    **limits: Any,
) -> tuple:
    multi_turn = {
        "max_assistant_turns": limits.pop("turns", None),
        "max_parallel_calls": limits.pop("parallel", 20),
        "max_tool_response_length": limits.pop("chars", 512),
        "tool_response_truncate_side": "middle",
    }
    rollout = {"multi_turn": multi_turn, "prompt_length": 512, "response_length": 400, "seed": 0, **limits}
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": {**rollout, "custom": {"sgls": sgls} if sgls else None}},
            "algorithm": {"adv_estimator": "slca"},
            "data": {},
        }
    )

    async def run() -> tuple:
        server = ScriptedServer(tokenizer, texts, end, context)
        loop = SlcaAgentLoop(
            trainer_config=DictConfigWrap(config),
            server_manager=server,
            tokenizer=tokenizer,
            processor=None,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
            hf_model_type=model_type,
        )
        output = await loop.run(
            {"temperature": 1.0, "logprobs": True},
            raw_prompt=[{"role": "system", "content": json.dumps(tools)}, {"role": "user", "content": "Is h1 up?"}],
            tools=json.dumps(tools),
            data_source="demo",
            reward_model={"ground_truth": {"gold_tool_calls": "[]"}},
            session_id=0,
            global_steps=3,
        )
        return output, Trajectory.from_dict(output.extra_fields["trajectory"]), server

    return asyncio.run(run())


def trained(output: Any) -> list[int]:
    return [t for t, m in zip(output.response_ids, output.response_mask, strict=True) if m]


def test_each_policy_token_is_trained_once_and_no_observation_token_ever(tokenizer):
    output, trajectory, server = play(tokenizer, CALL, ANSWER)
    said = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in (CALL, ANSWER)]
    assert trained(output) == said[0] + said[1]
    assert trajectory.stop == "answer"
    observed = [t for t, m in zip(output.response_ids, output.response_mask, strict=True) if not m]
    assert "<|im_start|>tool\n" in tokenizer.decode(observed)
    assert trajectory.results[0].content in tokenizer.decode(observed)
    assert server.asked[1]["prompt"] == output.prompt_ids + output.response_ids[: -len(said[1])]


def test_spans_are_the_turns_tokens_and_make_the_segments(tokenizer):
    output, trajectory, _ = play(tokenizer, CALL, BAD_CALL, ANSWER)
    for turn, text in zip(trajectory.turns, (CALL, BAD_CALL, ANSWER), strict=True):
        ids = output.response_ids[turn.span[0] : turn.span[1]]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    tool, summary = turn_segments(trajectory, len(output.response_ids))
    assert (tool | summary).int().tolist() == output.response_mask
    assert summary.sum() == len(tokenizer.encode(ANSWER)) + 1


def test_log_probs_stay_with_their_tokens(tokenizer):
    output, trajectory, _ = play(tokenizer, CALL, ANSWER)
    begin, end = trajectory.turns[1].span
    assert output.response_logprobs[begin:end] == [-1.0] * (end - begin)
    assert set(output.response_logprobs[trajectory.turns[0].span[1] : begin]) == {0.0}


def test_a_malformed_call_is_answered_with_an_error_and_is_a_tool_turn(tokenizer):
    _, trajectory, _ = play(tokenizer, BAD_CALL, ANSWER)
    assert trajectory.results[0].is_error
    assert len(trajectory.tool_turns) == 1


def test_parallel_calls_are_answered_together_up_to_the_limit(tokenizer):
    _, trajectory, _ = play(tokenizer, "\n".join([CALL] * 3), ANSWER, parallel=2)
    results = trajectory.turns[0].results
    assert [r.name for r in results] == ["ping", "ping", ""]
    assert "at most 2" in results[2].content


def test_the_turn_limit_ends_on_a_call_without_an_answer(tokenizer):
    output, trajectory, server = play(tokenizer, CALL, CALL, ANSWER, turns=2)
    assert trajectory.stop == "turn_limit"
    assert len(server.asked) == 2
    assert output.response_mask[-1] == 1


def test_a_turn_cut_by_the_length_limit_is_a_tool_turn_and_nothing_exceeds_the_limit(tokenizer):
    output, trajectory, server = play(tokenizer, CALL, ANSWER * 50, response_length=150)
    assert trajectory.stop == "length"
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs) == 150
    assert trajectory.turns[-1].span[1] == 150
    assert server.asked[1]["max_tokens"] == 150 - trajectory.turns[1].span[0]


def test_a_tool_response_that_leaves_no_room_is_not_appended(tokenizer):
    call = len(tokenizer.encode(CALL)) + 1
    output, trajectory, _ = play(tokenizer, CALL, ANSWER, response_length=call + 3)
    assert trajectory.stop == "length"
    assert output.response_mask == [1] * call


def test_a_long_tool_response_is_cut_as_configured(tokenizer):
    huge = json.dumps([{**PING, "response": {"type": "string", "const": "x" * 100_000}}])
    _, trajectory, _ = play(tokenizer, CALL, ANSWER, tools=json.loads(huge), chars=64, prompt_length=200_000)
    assert len(trajectory.results[0].content) < 64 + len("...(truncated)...") + 1


def test_sampling_seeds_depend_on_row_session_step_and_turn_alone(tokenizer):
    first, again = (play(tokenizer, CALL, ANSWER)[2].asked for _ in range(2))
    assert [a["seed"] for a in first] == [a["seed"] for a in again]
    assert first[0]["seed"] != first[1]["seed"]


def test_the_newest_weights_version_is_reported(tokenizer):
    output, _, _ = play(tokenizer, CALL, ANSWER)
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (1, 2)


def test_a_prompt_over_the_limit_is_a_lost_rollout_not_a_cut_one(tokenizer, caplog):
    output, trajectory, _ = play(tokenizer, ANSWER, prompt_length=20)
    assert (trajectory.stop, trajectory.fault) == ("fault", "rollout_DataError")
    assert output.response_mask == [0]
    assert len(output.response_logprobs) == len(output.response_ids) == 1
    said = [record.getMessage() for record in caplog.records if "rollout.prompt_length is 20" in record.getMessage()]
    assert len(said) == 1
    play(tokenizer, ANSWER, prompt_length=20)
    assert [r for r in caplog.records if "rollout_DataError" in r.getMessage()] == [
        r for r in caplog.records if r.getMessage() == said[0]
    ]


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (TokenPolicy, "start"),
        (TokenPolicy, "act"),
        (TokenPolicy, "observe"),
        (TokenPolicy, "with_spans"),
        (TimedWorld, "respond"),
        (SlcaAgentLoop, "_rollout"),
        (Simulator, "episode"),
    ],
)
def test_an_exception_anywhere_loses_the_rollout_and_says_so(tokenizer, monkeypatch, owner, method):
    def broken(*args: Any, **kwargs: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(owner, method, broken)
    output, trajectory, _ = play(tokenizer, CALL, ANSWER)
    assert trajectory.fault == "rollout_KeyError"
    assert sum(output.response_mask) == 0
    assert output.extra_fields["min_global_steps"] == output.extra_fields["max_global_steps"] == 3


def test_an_unknown_simulator_setting_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"rollout.custom.sgls.sede: unknown key"):
        play(tokenizer, ANSWER, sgls={"sede": 1})


@pytest.mark.parametrize("kind", chat_templates.KINDS)
def test_turn_by_turn_is_what_the_template_renders_at_once(kind):
    made, (_, model_type, _, end) = chat_templates.tokenizer(kind), chat_templates.KINDS[kind]
    output, trajectory, _ = play(made, CALL, ANSWER, model_type=model_type)
    assert trajectory.stop == "answer"
    asked = [{"role": "system", "content": json.dumps([PING])}, {"role": "user", "content": "Is h1 up?"}]
    answer = {"role": "tool", "name": "ping", "content": trajectory.results[0].content}
    said = {"role": "assistant", "content": CALL}
    at_once = made.apply_chat_template([*asked, said, answer], tokenize=False, add_generation_prompt=True)
    if kind != "llama31":  # which shows a call in a form of its own
        assert made.decode(output.prompt_ids + output.response_ids) == f"{at_once}{ANSWER}{end}"
    assert sum(output.response_mask) == len(made.encode(CALL)) + len(made.encode(ANSWER)) + 2


def test_a_template_whose_turns_cannot_be_joined_loses_the_rollout_and_says_what_differs(caplog):
    made = chat_templates.tokenizer("smollm")
    by_the_first = "{% if messages[0].content == 'Be brief.' and message.role == 'tool' %}once{% endif %}"
    loop = "{% for message in messages %}"
    made.chat_template = made.chat_template.replace(loop, loop + by_the_first)
    _, trajectory, _ = play(made, CALL, ANSWER, model_type="smollm3")
    assert trajectory.fault == "rollout_ConfigError"
    assert "turn by turn the tokens behind a call are" in caplog.text


def test_under_a_template_of_one_call_a_turn_the_second_is_answered_with_an_error():
    made = chat_templates.tokenizer("llama31")
    output, trajectory, _ = play(made, f"{CALL}\n{CALL}", ANSWER, model_type="llama")
    assert trajectory.stop == "answer"
    results = trajectory.turns[0].results
    assert [result.is_error for result in results] == [False, True]
    shown = made.decode(output.response_ids)
    assert f"{results[0].content}\nError: 1 calls not executed, at most 1 per turn." in shown
    assert shown.count("ipython") == 1


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|im_end|>"])
def test_either_end_of_a_base_model_ends_its_turn(end):
    made = chat_templates.tokenizer("qwen3", eos="<|endoftext|>")
    output, trajectory, server = play(made, ANSWER, model_type="qwen3", end=end)
    assert (trajectory.stop, trajectory.turns[-1].text) == ("answer", ANSWER)
    assert set(server.asked[0]["stop_token_ids"]) == {
        made.convert_tokens_to_ids(e) for e in ("<|endoftext|>", "<|im_end|>")
    }
    assert sum(output.response_mask) == len(made.encode(ANSWER)) + 1


def test_a_turn_that_the_server_cut_is_no_answer(tokenizer):
    prompt = len(play(tokenizer, ANSWER)[0].prompt_ids)
    _, trajectory, _ = play(tokenizer, ANSWER, context=prompt + 2)
    assert trajectory.stop == "length"
    _, trajectory, _ = play(tokenizer, ANSWER, context=0)
    assert trajectory.stop == "length"


def test_an_answer_that_exactly_fills_the_room_is_complete(tokenizer):
    room = len(tokenizer.encode(ANSWER)) + 1
    assert play(tokenizer, ANSWER, response_length=room)[1].stop == "answer"
    assert play(tokenizer, ANSWER, response_length=room - 1)[1].stop == "length"
