"""How a row becomes prompt tokens, and whether it fits: the same check for training and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verl_slca.errors import DataError
from verl_slca.rows import Row


def prompt_lengths(rows: Sequence[Row], tokenizer: Any) -> list[int]:
    """Prompt length of every row in tokens, its own tools and the generation prompt included.

    Args:
        rows: dataset rows.
        tokenizer: a Hugging Face tokenizer with a chat template.
    """
    return [
        len(tokenizer(_rendered(row, tokenizer, row.template_tools), add_special_tokens=False).input_ids)
        for row in rows
    ]


def check_prompts(rows: Sequence[Row], tokenizer: Any, limit: int | None, where: str) -> None:
    """Nothing, when every row can be rendered and fits.

    Args:
        rows: dataset rows.
        tokenizer: a Hugging Face tokenizer.
        limit: longest prompt allowed, in tokens; None for any length.
        where: file the rows come from, for messages.

    Raises:
        DataError: the tokenizer has no chat template, the template ignores tools that are not already in
            the prompt, or prompts are longer than `limit` (the first few are named).
    """
    if not getattr(tokenizer, "chat_template", None):
        raise DataError("the tokenizer has no chat template; use an instruct model's tokenizer", where)
    for number, row in enumerate(rows):
        if row.template_tools:
            if _rendered(row, tokenizer, row.template_tools) == _rendered(row, tokenizer, None):
                raise DataError(
                    f"row {number}: the chat template ignores tools; use a template that renders them, "
                    "or put the tools into the row's system message",
                    where,
                )
            break
    if limit is None:
        return
    too_long = [(i, n) for i, n in enumerate(prompt_lengths(rows, tokenizer)) if n > limit]
    if too_long:
        named = ", ".join(f"row {i} ({n} tokens)" for i, n in too_long[:5])
        raise DataError(
            f"{len(too_long)} of {len(rows)} prompts are longer than {limit} tokens with their tools: {named}; "
            "raise data.max_prompt_length, or set data.filter_overlong_prompts=true to drop them",
            where,
        )


def _rendered(row: Row, tokenizer: Any, tools: Any) -> str:
    return tokenizer.apply_chat_template(row.prompt, tools=tools, add_generation_prompt=True, tokenize=False)
