"""The quickstart world: rows that load, gold that the simulator confirms, tokens that SFT and RL share."""

import asyncio
import json
import random
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from verl_slca.errors import ConfigError
from verl_slca.hierr.process import ProcessWeights, attempts, process_score, success_at
from verl_slca.parsing import parse_turn, render_call
from verl_slca.rows import load_rows
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall, Trajectory, Turn

RECIPE = Path(__file__).parents[2] / "recipes" / "quickstart"
sys.path.insert(0, str(RECIPE))

import catalog  # noqa: E402
import dialogues  # noqa: E402
import tiny  # noqa: E402
import world  # noqa: E402

SIZES = world.Sizes(dialogues=60, rl=40, held_out=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("world")
    world.build(path, seed=0, sizes=SIZES)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder / "model")


def _asked_of(simulator, row):
    episode = simulator.episode(row.tools, row.key)
    for step in row.gold.steps:
        yield asyncio.run(episode.respond([ToolCall(call.name, call.arguments) for call in step]))


def test_every_row_loads_in_the_rl_schema(folder):
    assert len(load_rows(folder / "rl.parquet")) == SIZES.rl
    assert len(load_rows(folder / "heldout.parquet")) == SIZES.held_out


def test_gold_calls_are_valid_and_chain_through_the_simulated_responses(folder):
    simulator = Simulator(SglsConfig())
    chains = 0
    for row in load_rows(folder / "rl.parquet"):
        results = list(_asked_of(simulator, row))
        assert not any(result.is_error for step in results for result in step)
        if row.gold.subset == "chain":
            chains += 1
            produced = json.loads(results[0][0].content)
            consumed = row.gold.steps[1][0].arguments
            assert any(consumed.get(field) == value for field, value in produced.items())
    assert chains > 0


def test_playing_the_gold_calls_is_a_success(folder):
    for row in load_rows(folder / "heldout.parquet"):
        turns = tuple(
            Turn("\n".join(render_call(ToolCall(c.name, c.arguments)) for c in step)) for step in row.gold.steps
        )
        played = Trajectory((*turns, Turn("done")), "answer")
        assert success_at(process_score(attempts(played, row.gold.allowed_tools), row.gold).total(ProcessWeights()))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(folder, tmp_path):
    world.build(tmp_path / "again", seed=0, sizes=SIZES)
    world.build(tmp_path / "other", seed=1, sizes=SIZES)
    for name in ("sft.parquet", "rl.parquet", "heldout.parquet", "model/tokenizer.json", "model/model.safetensors"):
        first = (folder / name).read_bytes()
        assert (tmp_path / "again" / name).read_bytes() == first
        assert (tmp_path / "other" / name).read_bytes() != first


def test_held_out_rows_use_new_names_and_some_new_tools(folder):
    def text(name):
        return json.dumps(pq.read_table(folder / name).to_pylist())

    training = text("sft.parquet") + text("rl.parquet")
    unseen = [tool.name for tool in catalog.load_tools() if tool.unseen]
    assert not any(name in training for name in unseen)
    calls = [call for row in load_rows(folder / "heldout.parquet") for call in row.gold.calls]
    assert any(call.name in unseen for call in calls)
    _, fresh = catalog.split_names(random.Random("0/names"))
    spoken = {value for call in calls for value in call.arguments.values() if value in fresh}
    assert spoken
    assert not any(name in training for name in spoken)


def test_a_conversation_is_a_token_prefix_of_a_longer_one(folder, tokenizer):
    def ids(messages, **kwargs):
        return tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, **kwargs)["input_ids"]

    for record in pq.read_table(folder / "sft.parquet").to_pylist()[:20]:
        messages = record["messages"]
        for length in range(1, len(messages)):
            shorter, longer = ids(messages[:length]), ids(messages[: length + 1])
            assert longer[: len(shorter)] == shorter
            if messages[length]["role"] == "assistant":
                prompt = ids(messages[:length], add_generation_prompt=True)
                assert longer[: len(prompt)] == prompt


def test_the_chat_template_renders_tools_and_tool_messages_as_the_rows_have_them(folder, tokenizer):
    offered = catalog.load_tools()[:3]
    schemas = [tool.shown for tool in offered]
    user = {"role": "user", "content": "Hello there."}
    rendered = tokenizer.apply_chat_template([user], tools=schemas, tokenize=False)
    system = {"role": "system", "content": tiny.system_text(map(catalog.dumps, schemas))}
    assert rendered == tokenizer.apply_chat_template([system, user], tokenize=False)

    call = ToolCall("weather-air", {"city": "Żółć"})
    function = {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    structured = [
        {"role": "assistant", "content": "", "tool_calls": [function, function]},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
    ]
    flat = [
        {"role": "assistant", "content": "\n".join([render_call(call)] * 2)},
        {"role": "user", "content": dialogues.render_responses(["1", "2"])},
    ]
    assert tokenizer.apply_chat_template([user, *structured], tokenize=False) == tokenizer.apply_chat_template(
        [user, *flat], tokenize=False
    )


def test_any_text_comes_back_and_numbers_and_new_names_are_made_of_shared_pieces(tokenizer):
    for text in ("Żółć 東京 🙂\n\ttab", '{"a": [1, 2.5, null]}', "Marvik's Zanlin"):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    inside = tokenizer.tokenize('{"city": "Marvik", "days": 47}')
    assert {"Mar", "vik"} <= set(tokenizer.tokenize("go to Marvik.")) & set(inside)
    assert {"4", "7"} <= set(inside)


def test_the_model_has_the_tokenizers_vocabulary_and_ends_turns_with_im_end(folder, tokenizer):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    assert model.config.model_type == "qwen2"
    assert model.config.vocab_size == len(tokenizer)
    assert 0.5e6 < model.num_parameters() < 5e6
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")


@pytest.mark.verl
def test_verls_sft_dataset_trains_on_exactly_the_assistant_turns(folder, tokenizer):
    pytest.importorskip("verl")
    from omegaconf import OmegaConf
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    config = OmegaConf.create({"pad_mode": "no_padding", "max_length": 1024, "truncation": "error"})
    dataset = MultiTurnSFTDataset(str(folder / "sft.parquet"), tokenizer, config)
    for index, record in enumerate(pq.read_table(folder / "sft.parquet").to_pylist()[:10]):
        item = dataset[index]
        trained = tokenizer.decode(item["input_ids"][item["loss_mask"].bool()])
        said = [m["content"] + "<|im_end|>\n" for m in record["messages"] if m["role"] == "assistant"]
        assert trained == "".join(said)
        assert all(block.error is None for text in said for block in parse_turn(text).blocks)


def test_a_finished_folder_is_left_alone_and_another_world_is_refused(tmp_path, capsys):
    sizes = world.Sizes(dialogues=2, rl=1, held_out=1)
    world.ensure(tmp_path, seed=0, sizes=sizes)
    written = (tmp_path / "sft.parquet").stat().st_mtime_ns
    world.ensure(tmp_path, seed=0, sizes=sizes)
    assert (tmp_path / "sft.parquet").stat().st_mtime_ns == written
    assert "complete" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="use another folder"):
        world.ensure(tmp_path, seed=1, sizes=sizes)


def test_what_the_simulator_refuses_is_no_demonstration():
    cancel = next(tool for tool in catalog.load_tools() if tool.name == "flight-cancel")
    twice = (dialogues.Wish(cancel, {"booking": 1}), dialogues.Wish(cancel, {"booking": 1}))
    question = dialogues.Question("parallel", "Cancel booking 1 twice.", (twice,))
    episode = Simulator(SglsConfig()).episode([cancel.schema], "w")

    def respond(calls):
        return [result.content for result in asyncio.run(episode.respond(calls))]

    with pytest.raises(dialogues.UnfitError, match=r"flight-cancel: Error: .*already cancelled"):
        dialogues.solve(question, respond)
