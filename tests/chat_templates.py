"""Small chat templates of the kinds that models have, and a tokenizer for each: our own wording, their structure."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

_TOOLS = (
    "{%- if tools %}{{ '<|im_start|>system' }}"
    "{%- if messages[0].role == 'system' %}{{ '\n' + messages[0].content }}{%- endif %}\nTools:\n<tools>"
    "{%- for tool in tools %}{{ '\n' + (tool | tojson) }}{%- endfor %}\n</tools><|im_end|>\n"
    "{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}"
    "{%- endif %}"
)
_CALLS = (
    "{%- for call in message.tool_calls %}{%- set f = call.function or call %}"
    '{{ \'\n<tool_call>\n{"name": "\' + f.name + \'", "arguments": \' }}'
    "{{ f.arguments if f.arguments is string else f.arguments | tojson }}{{ '}\n</tool_call>' }}{%- endfor %}"
)
_GROUPED = (
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{%- endif %}"
    "{{ '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{%- endif %}"
)
_PROMPT = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"

QWEN25 = (
    _TOOLS
    + "{%- for message in messages %}{%- if message.role == 'tool' %}"
    + _GROUPED
    + "{%- elif not (loop.first and "
    "message.role == 'system') %}{{ '<|im_start|>' + message.role + '\n' + (message.content or '') }}"
    "{%- if message.tool_calls %}" + _CALLS + "{%- endif %}{{ '<|im_end|>\n' }}{%- endif %}{%- endfor %}" + _PROMPT
)
"""Results of parallel calls grouped in one user turn."""

_THOUGHT = (
    "{%- set content = message.content or '' %}{%- set thought = message.reasoning_content or '' %}"
    "{%- if '</think>' in content %}{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
)


def _qwen3(kept: bool) -> str:
    shown = "true" if kept else "loop.index0 > ns.last"
    return (
        _TOOLS + "{%- set ns = namespace(last=-1) %}{%- for message in messages %}{%- if message.role == 'user' %}"
        "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
        "{%- for message in messages %}{%- if message.role == 'tool' %}" + _GROUPED + "{%- elif message.role == "
        "'assistant' %}" + _THOUGHT + "{{ '<|im_start|>assistant\n' }}{%- if " + shown + " and thought %}"
        "{{ '<think>\n' + thought + '\n</think>\n\n' }}{%- endif %}{{ content }}{%- if message.tool_calls %}"
        + _CALLS
        + "{%- endif %}{{ '<|im_end|>\n' }}{%- elif not (loop.first and message.role == 'system') %}"
        "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
        + _PROMPT
    )


QWEN3 = _qwen3(kept=False)
"""Thoughts of turns before the last question are left out."""
QWEN3_KEPT = _qwen3(kept=True)

HERMES = (
    _TOOLS + "{%- for message in messages %}{%- if message.role == 'tool' %}"
    "{{ '<|im_start|>tool\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}"
    "{%- elif not (loop.first and message.role == 'system') %}"
    "{{ '<|im_start|>' + message.role + '\n' + (message.content or '') }}{%- if message.tool_calls %}"
    + _CALLS
    + "{%- endif %}{{ '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    + _PROMPT
)
"""One tool turn per result."""

SMOLLM = (
    "{% for message in messages %}{% if loop.first and messages[0].role != 'system' %}"
    "{{ '<|im_start|>system\nA helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML that knows neither tools nor calls."""

LLAMA31 = (
    "{{ '<|begin_of_text|>' }}{%- for message in messages %}{%- if message.role == 'tool' %}"
    "{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' + message.content + '<|eot_id|>' }}"
    "{%- elif message.tool_calls %}{%- if message.tool_calls | length != 1 %}"
    "{{ raise_exception('one call a turn') }}{%- endif %}{%- set f = message.tool_calls[0].function %}"
    '{{ \'<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "\' + f.name + \'", "parameters": \' }}'
    "{{ (f.arguments | tojson) + '}<|eot_id|>' }}{%- else %}"
    "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content }}"
    "{%- if loop.first and tools %}{%- for tool in tools %}{{ '\n' + (tool | tojson) }}{%- endfor %}{%- endif %}"
    "{{ '<|eot_id|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
"""One call a turn: two raise."""

CHATML_CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA_CONTROLS = ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
KINDS = {
    "qwen25": (QWEN25, "qwen2", CHATML_CONTROLS, "<|im_end|>"),
    "qwen3": (QWEN3, "qwen3", CHATML_CONTROLS, "<|im_end|>"),
    "qwen3_kept": (QWEN3_KEPT, "qwen3", CHATML_CONTROLS, "<|im_end|>"),
    "hermes": (HERMES, "llama", CHATML_CONTROLS, "<|im_end|>"),
    "smollm": (SMOLLM, "llama", CHATML_CONTROLS, "<|im_end|>"),
    "llama31": (LLAMA31, "llama", LLAMA_CONTROLS, "<|eot_id|>"),
}
"""By name: template, the model type it comes with, control tokens, end of turn."""


def tokenizer(kind: str, eos: str | None = None, words: tuple[str, ...] = ("<tool_call>", "</tool_call>")) -> Any:
    """A byte-level tokenizer with the control tokens of a kind; `words` are single tokens, but no special ones.

    Args:
        kind: of `KINDS`.
        eos: its end of sequence; None takes the end of turn.
        words: added to the vocabulary as ordinary tokens.
    """
    template, _, controls, end = KINDS[kind]
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=controls, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    raw.train_from_iterator([f"the answer to question {i} is {i * 7 % 101}\n" for i in range(200)], trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token=eos or end, pad_token=controls[0], chat_template=template
    )
    made.add_tokens(list(words))
    return made
