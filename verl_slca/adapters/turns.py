"""verl's continuous-token builder, checked against the chat template.

verl's continuous-token builder joins what the policy sampled and what the environment answers. It knows what stands
between two turns by the model's type; under a type it does not know it leaves that out, with a line in the log, and
the policy is trained on prompts that no other server renders. Here a template is asked instead of the type, and
joining turn by turn is checked against rendering at once.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder, MergeResult
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from verl_slca.chat_template import ASKED, SAID, end_of_turn, rendered
from verl_slca.errors import ConfigError


class SeparatingBuilder(ContinuousTokenBuilder):
    """verl's default builder that also puts between two turns what the template puts there.

    Args:
        tokenizer: with the chat template.
        end: the template's end-of-turn token.
        separator: tokens behind it, before the next turn.
        kwargs: verl's.
    """

    def __init__(self, tokenizer: Any, *, end: int, separator: Sequence[int], **kwargs: Any) -> None:
        super().__init__(tokenizer, **kwargs)
        self._end, self._separator = end, list(separator)

    def _merge_context_token_ids(
        self, runtime_token_ids: list[int], appended_token_ids: list[int], **kwargs: Any
    ) -> MergeResult:
        inserted = self._separator if runtime_token_ids[-1:] == [self._end] else []
        return MergeResult(
            token_ids=[*runtime_token_ids, *inserted, *appended_token_ids],
            appended_token_count=len(appended_token_ids),
            kind="context",
            inserted_token_ids=list(inserted),
        )


def builder_for(
    tokenizer: Any,
    hf_model_type: str | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
    processor: Any = None,
    **kwargs: Any,
) -> Any:
    """verl's builder for a model type that it knows; for any other text model one that its template agrees with.

    Args:
        tokenizer: with the chat template.
        hf_model_type: ``model_type`` of the model's config.
        template_kwargs: ``data.apply_chat_template_kwargs``.
        processor: a multimodal model's; such a model is left to verl.
        kwargs: verl's further arguments.

    Raises:
        ConfigError: the template has no tool results, or turns cannot be joined the way it renders them.
    """
    known = create_continuous_token_builder(
        tokenizer,
        hf_model_type=hf_model_type,
        chat_template_kwargs=dict(template_kwargs or {}),
        processor=processor,
        **kwargs,
    )
    if type(known) is not ContinuousTokenBuilder:
        return known
    return _agreeing(tokenizer, json.dumps(template_kwargs or {}, sort_keys=True, default=str)) or known


@functools.lru_cache(maxsize=4)
def _agreeing(tokenizer: Any, template_kwargs: str) -> SeparatingBuilder | None:
    kwargs = json.loads(template_kwargs)
    found = end_of_turn(tokenizer, kwargs)
    if found is None:
        return None
    builder = SeparatingBuilder(tokenizer, end=found[0], separator=found[1], chat_template_kwargs=kwargs)
    if problem := _difference(builder, tokenizer, *found):
        raise ConfigError(f"the chat template cannot be used turn by turn: {problem}")
    return builder


def _difference(builder: ContinuousTokenBuilder, tokenizer: Any, end: int, separator: Sequence[int]) -> str:
    """How joining a tool's answer to a sampled turn differs from rendering at once; "" where it does not."""
    call: dict[str, Any] = {"id": "call00000", "type": "function", "function": {"name": "ping", "arguments": {}}}
    before: list[dict[str, Any]] = [*ASKED, {"role": "assistant", "content": "", "tool_calls": [call]}]
    answer: dict[str, Any] = {"role": "tool", "name": "ping", "tool_call_id": "call00000", "content": "h1 is up."}
    try:
        sampled = [*builder.build_initial_tokens(ASKED), *tokenizer.encode(SAID, add_special_tokens=False), end]
        joined = builder.merge_context_tokens(before, [*before, answer], sampled).token_ids[len(sampled) :]
        at_once = rendered(tokenizer, [*before, answer], builder.chat_template_kwargs, prompting=True)
        asking = rendered(tokenizer, before, builder.chat_template_kwargs)
    except Exception as error:  # a template is foreign code
        return f"it cannot render a call and its result ({type(error).__name__}: {error})"
    prefix = asking[: len(asking) - len(separator)]
    if at_once[: len(prefix)] != prefix or prefix[-1:] != [end]:
        return ""  # what is behind the turn changes how the turn itself is shown, so there is nothing to compare
    if joined == at_once[len(prefix) :]:
        return ""
    return (
        f"turn by turn the tokens behind a call are {tokenizer.decode(joined)!r}, rendered at once "
        f"{tokenizer.decode(at_once[len(prefix) :])!r}; use a template that appends what is new"
    )
