"""A tokenizer trained on the quickstart world, and a Qwen2-architecture model of about a million parameters.

It is Qwen2's own byte-level BPE with Qwen2's splitting rule (digits singly), so any unicode text has tokens.
Two additions make it fit a model this small. The first syllable of every proper name is a token of its own, so
a name never merges with the space or quote before it: it has the same tokens in a sentence, a call and a
response, and an unseen name is a new order of known pieces. The fixed phrases of function schemas and calls are
one token each, which halves the length of a prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>"]
INTRODUCTION = "# Tools\n\nYou can call these functions:\n"
INSTRUCTION = "\n\nWrite each call as a JSON object in a block of its own:\n"
EXAMPLE = '{"name": <function-name>, "arguments": <args-json-object>}'
PHRASES = [
    INTRODUCTION,
    INSTRUCTION,
    EXAMPLE,
    '{"type": "function", "function": {"name": "',
    '", "description": "',
    '", "parameters": {"type": "object", "properties": {"',
    '": {"type": "string"}',
    '": {"type": "boolean"}',
    '": {"type": "string", "enum": ["',
    '": {"type": "integer", "minimum": ',
    '": {"type": "integer", "minimum": 1, "maximum": 9}',
    ', "maximum": ',
    '}, "required": ["',
    '"], "additionalProperties": false}}}',
    '{"name": "',
    '", "arguments": {"',
    '", "',
    ', "',
    '}, "',
    '": "',
    '": ',
]
CHAT_TEMPLATE = (
    """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- INTRODUCTION + '<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' + tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>' + INSTRUCTION + '<tool_call>\\n' + EXAMPLE + '\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif message.role != 'system' or not loop.first %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function or call %}
            {{- '\\n' if message.content or not loop.first else '' }}
            {{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
            {{- (function.arguments if function.arguments is string else function.arguments | tojson) }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}""".replace("INTRODUCTION", repr(INTRODUCTION))
    .replace("INSTRUCTION", repr(INSTRUCTION))
    .replace("EXAMPLE", repr(EXAMPLE))
)


def system_text(lines: Iterable[str]) -> str:
    """The system message that `CHAT_TEMPLATE` renders for tools whose JSON lines these are."""
    listed = "".join("\n" + line for line in lines)
    return f"{INTRODUCTION}<tools>{listed}\n</tools>{INSTRUCTION}<tool_call>\n{EXAMPLE}\n</tool_call>"


def train_tokenizer(texts: Iterable[str], syllables: Iterable[str], vocab_size: int = 1024) -> Qwen2Tokenizer:
    """A Qwen2 tokenizer of at most `vocab_size` tokens trained on `texts`, with `CHAT_TEMPLATE`.

    Args:
        texts: what BPE learns its merges from.
        syllables: capitalised beginnings of proper names, each one token wherever it stands.
        vocab_size: tokens, the added ones included.

    Example:
        >>> tokenizer = train_tokenizer(["some text"], ["Mar"])
        >>> tokenizer.decode(tokenizer("Żółć 42").input_ids)
        'Żółć 42'
    """
    added = [*TAGS, *PHRASES, *syllables]
    core = Tokenizer(models.BPE())
    blank = Qwen2Tokenizer().backend_tokenizer
    core.normalizer, core.pre_tokenizer = blank.normalizer, blank.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(added),
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(_between(texts, [PAD, START, END, *added]), trainer)
    bpe = json.loads(core.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=bpe["vocab"],
        merges=[tuple(merge) for merge in bpe["merges"]],
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in added])
    return tokenizer


def build_model(tokenizer: Qwen2Tokenizer, seed: int) -> Qwen2ForCausalLM:
    """A freshly initialised model whose vocabulary is exactly the tokenizer's, wired to copy.

    The weights are random except for one circuit, see `_wire_copying`: a model of this size would otherwise
    spend most of its few million training tokens on discovering it.
    """
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=400,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    _wire_copying(model)
    return model


@torch.no_grad()
def _wire_copying(model: Qwen2ForCausalLM) -> None:
    """Induction heads (arXiv:2209.11895) as the starting point: "what followed this token before?".

    The last `width` dimensions of the residual stream are kept for the token before. Head 0 of layer 0 attends
    one token back and writes a projection of what it sees there; head 1 attends two tokens back. The heads of
    layer 1 look for places whose token before is the present token, and copy the token they find: each its own
    slice of the embedding, which the tied output layer reads. All of it is trained on like any other weight.
    """
    hidden, heads = model.config.hidden_size, model.config.num_attention_heads
    width = hidden // heads
    kept = hidden - width
    pairs = torch.arange(width // 2)
    speed = model.config.rope_parameters["rope_theta"] ** (-2 * pairs / width)  # radians per token of each RoPE pair
    fast = pairs[speed > 0.01]
    slow = torch.cat([pairs[speed <= 0.01], pairs[speed <= 0.01] + width // 2])  # these tell tokens, not distances
    scale = 0.05

    embedding = model.model.embed_tokens.weight.normal_(std=scale)
    embedding[:, kept:] = 0
    projection = torch.linalg.qr(torch.randn(kept, width)).Q.T

    before = model.model.layers[0].self_attn
    for head, distance in ((0, 1), (1, 2)):
        first = head * width
        before.k_proj.bias[first + fast] = 5.0
        before.q_proj.bias[first + fast] = 5.0 * torch.cos(speed[fast] * distance)
        before.q_proj.bias[first + fast + width // 2] = -5.0 * torch.sin(speed[fast] * distance)
    _set(before.v_proj.weight[:width], slice(0, kept), projection)
    before.o_proj.weight[:, :width] = 0
    before.o_proj.weight[kept:, :width] = torch.eye(width) * scale * (kept / hidden) ** 0.5

    match = torch.zeros(width, width)
    match[slow, slow] = 2.0**0.5
    copy = model.model.layers[1].self_attn
    for head in range(heads - 1):
        rows = slice(head * width, (head + 1) * width)
        _set(copy.q_proj.weight[rows], slice(0, kept), match @ projection)
        _set(copy.k_proj.weight[rows], slice(kept, hidden), match)
        _set(copy.v_proj.weight[rows], rows, torch.eye(width))
        copy.o_proj.weight[:, rows] = 0
        copy.o_proj.weight[rows, rows] = torch.eye(width) * scale


def _set(weight: torch.Tensor, columns: slice, block: torch.Tensor) -> None:
    weight.zero_()
    weight[:, columns] = block


def save(output_dir: Path, tokenizer: Qwen2Tokenizer, model: Qwen2ForCausalLM) -> None:
    """Both, as one Hugging Face folder."""
    tokenizer.save_pretrained(output_dir)
    model.save_pretrained(output_dir)


def _between(texts: Iterable[str], fixed: Iterable[str]) -> Iterable[str]:
    """The parts of `texts` that BPE has to learn: what is left between the fixed tokens."""
    pattern = re.compile("|".join(re.escape(token) for token in sorted(fixed, key=len, reverse=True)))
    for text in texts:
        yield from filter(None, pattern.split(text))
