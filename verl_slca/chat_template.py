"""What a chat template does with turns: which token ends one, what stands between two, how many calls one holds."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

ASKED: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is h1 up?"}]
SAID = "Let me look."
_CONTROL = re.compile(r"<\|[^|<>\s{}]+\|>")


def end_of_turn(tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None) -> tuple[int, list[int]] | None:
    """The token that ends an assistant's turn in the chat template, and those behind it up to the next turn.

    None where the template renders no such turn, or ends it without a special token.
    """
    messages = [*ASKED, {"role": "assistant", "content": SAID}]
    try:
        tokens = rendered(tokenizer, messages, template_kwargs)
    except Exception:  # a template is foreign code; whatever it raises, rendering the rows will raise again
        return None
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    special |= set(tokenizer.all_special_ids)
    spoken = tokenizer.encode(SAID, add_special_tokens=False)[-1]
    for position in range(len(tokens) - 1, -1, -1):
        if tokens[position] in special:
            return tokens[position], tokens[position + 1 :]
        if tokens[position] == spoken:
            return None
    return None


@functools.lru_cache(maxsize=4)
def end_tokens(tokenizer: Any, model_path: str) -> frozenset[int]:
    """Every token that ends a turn: the tokenizer's, the generation config's, the template's.

    A base model's own end of text is one thing and its template's end of turn another; either ends what it says.

    Args:
        tokenizer: with the chat template.
        model_path: folder or name of the checkpoint, for its generation config, if it has one.
    """
    template = end_of_turn(tokenizer)
    return frozenset(_ends(tokenizer, model_path) | ({template[0]} if template else set()))


@functools.lru_cache(maxsize=4)
def calls_per_turn(tokenizer: Any) -> int | None:
    """1 for a template that refuses an assistant's turn with two calls (Llama-3.1's), else None."""

    def holds(count: int) -> bool:
        function = {"name": "ping", "arguments": {}}
        calls = [{"id": f"call{i:05d}", "type": "function", "function": function} for i in range(count)]
        answers = [{"role": "tool", "name": "ping", "tool_call_id": c["id"], "content": "up"} for c in calls]
        try:
            rendered(tokenizer, [*ASKED, {"role": "assistant", "content": "", "tool_calls": calls}, *answers])
        except Exception:  # a template is foreign code
            return False
        return True

    return 1 if holds(1) and not holds(2) else None


def rendered(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    template_kwargs: Mapping[str, Any] | None = None,
    prompting: bool = False,
) -> list[int]:
    """Token ids of a conversation under the chat template; raises whatever the template raises."""
    text = tokenizer.apply_chat_template(
        list(messages), tokenize=False, add_generation_prompt=prompting, **(template_kwargs or {})
    )
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def problems(tokenizer: Any, model_path: str) -> list[str]:
    """What keeps a checkpoint's chat template and its tokenizer from meaning the same; [] for nothing.

    Some conversions (transformers' own of GGUF files, for one) lose special tokens: a control token of the template
    is then read as text, and generation never stops.

    Args:
        tokenizer: of the checkpoint; one without a chat template has no problem here.
        model_path: its folder or name.
    """
    template = tokenizer.chat_template
    if not template:
        return []
    sources = "\n".join(template.values()) if isinstance(template, dict) else str(template)
    found = []
    for control in sorted(set(_CONTROL.findall(sources))):
        tokens = tokenizer.encode(control, add_special_tokens=False)
        if len(tokens) != 1:
            found.append(
                f"its chat template uses {control}, which is {len(tokens)} tokens of its tokenizer in place of one; "
                "add it to the tokenizer as a special token (its original tokenizer.json has it)"
            )
    end = end_of_turn(tokenizer)
    if end is not None and end[0] not in _ends(tokenizer, model_path):
        found.append(
            f"its chat template ends a turn with {tokenizer.decode([end[0]])}, which is no eos, so that a server does "
            "not stop there; add its id to eos_token_id in generation_config.json"
        )
    return found


def _ends(tokenizer: Any, model_path: str) -> set[int]:
    from transformers import GenerationConfig

    try:
        configured = GenerationConfig.from_pretrained(model_path).eos_token_id
    except OSError:
        configured = None
    found = configured if isinstance(configured, list) else [configured]
    return {int(token) for token in [*found, tokenizer.eos_token_id] if token is not None}
