"""What is read off a chat template, over the kinds that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from chat_templates import KINDS, tokenizer

from verl_slca.chat_template import calls_per_turn, end_of_turn, end_tokens, problems


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_turn_and_what_is_behind_it_are_the_templates(kind: str) -> None:
    made = tokenizer(kind)
    found = end_of_turn(made)
    assert found is not None
    end, separator = found
    assert made.decode([end]) == KINDS[kind][3]
    assert made.decode(separator) == ("" if kind == "llama31" else "\n")


def test_a_template_that_ends_turns_with_text_has_no_end_token() -> None:
    made = tokenizer("smollm")
    made.chat_template = "{% for message in messages %}{{ message.role + ': ' + message.content + '\\n' }}{% endfor %}"
    assert end_of_turn(made) is None
    assert problems(made, "nowhere") == []


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_llama_kind_holds_one_call_a_turn(kind: str) -> None:
    assert calls_per_turn(tokenizer(kind)) == (1 if kind == "llama31" else None)


def test_every_end_counts(tmp_path: Path) -> None:
    made = tokenizer("qwen3", eos="<|endoftext|>")
    by_name = made.convert_tokens_to_ids
    assert end_tokens(made, str(tmp_path)) == {by_name("<|endoftext|>"), by_name("<|im_end|>")}
    other = tokenizer("qwen25")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8]}))
    assert end_tokens(other, str(tmp_path)) == {7, 8, other.eos_token_id}


def test_an_end_of_turn_that_no_server_stops_at_is_named_until_the_generation_config_has_it(tmp_path: Path) -> None:
    made = tokenizer("qwen3", eos="<|endoftext|>")
    (found,) = problems(made, str(tmp_path))
    assert "<|im_end|>, which is no eos" in found
    ends = {"eos_token_id": [made.eos_token_id, made.convert_tokens_to_ids("<|im_end|>")]}
    (tmp_path / "generation_config.json").write_text(json.dumps(ends))
    assert problems(made, str(tmp_path)) == []


def test_a_control_token_that_a_conversion_lost_is_named(tmp_path: Path) -> None:
    made: Any = tokenizer("qwen25")
    made.chat_template = made.chat_template.replace("<|im_start|>", "<|turn|>")
    (found,) = problems(made, str(tmp_path))
    assert "<|turn|>, which is" in found


@pytest.mark.parametrize("kind", KINDS)
def test_sound_checkpoints_have_no_problem(kind: str, tmp_path: Path) -> None:
    assert problems(tokenizer(kind), str(tmp_path)) == []
