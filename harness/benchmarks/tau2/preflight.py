"""Before a run: the models that it takes are there, and the one under evaluation can make a tool call."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from harness.benchmarks.task import Model
from harness.benchmarks.tau2.config import Tau2Config, key_of
from harness.benchmarks.tau2.installation import Installation
from harness.policy import ContextOverflowError, complete
from verl_slca.endpoint import connect
from verl_slca.errors import ConfigError, PolicyServerFault

logger = logging.getLogger(__name__)

_PARSER_FLAGS = "vLLM: --enable-auto-tool-choice --tool-call-parser NAME (hermes for Qwen)"
_CALL_AS_TEXT = re.compile(
    r"<\|?tool_call|<function[=_]|<\|python_tag\|>|\[TOOL_CALLS\]|<\uff5ctool|functools\[|[\"']name[\"']\s*:\s*[\"']find_order"
)
_THOUGHT = re.compile(r"</?think(ing)?>")
_PROBE_TOKENS = 1024
_TOOL = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Look up an order by its id.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string", "description": "The order's id."}},
            "required": ["order_id"],
        },
    },
}


def check_endpoints(config: Tau2Config, installation: Installation) -> None:
    """Check that every model the tasks take besides the one under evaluation is named.

    Raises:
        ConfigError: the user's or the judge's is not.
    """
    if config.user == "llm" and not (config.user_model and config.user_url):
        raise ConfigError(
            "tau2 needs a model that plays the user: give tau2.user_model and tau2.user_url in --config, or "
            "tau2.user: scripted, which needs none and whose numbers do not compare"
        )
    if installation.needs_judge and not (config.judge_model and config.judge_url):
        count = sum(bool(t["assertions"]) for d in installation.domains.values() for t in d["tasks"])
        raise ConfigError(
            f"tau2 needs a judge: {count} of these tasks have assertions in natural language. Give tau2.judge_model "
            f"and tau2.judge_url in --config (v1.x's own is gpt-4.1-2025-04-14), or leave out the domain"
        )


async def check_servers(model: Model, config: Tau2Config, installation: Installation) -> None:
    """Ask each model once.

    Raises:
        ConfigError: a server refuses, or does not take tool calls or thoughts apart.
        PolicyServerFault: the server of the model under evaluation cannot be asked.
    """
    if config.user == "llm":
        await _reach("user", config.user_url, config.user_model, key_of("user"), model)
    if installation.needs_judge:
        await _reach("judge", config.judge_url, config.judge_model, key_of("judge"), model)
    await probe(model)


async def probe(model: Model) -> None:
    """Have the model make one tool call, and look at what arrives.

    Raises:
        ConfigError: the call or the thoughts before it arrive as text, or the server takes no tools.
        PolicyServerFault: the server cannot be asked.
    """
    body = {
        "model": model.name,
        "messages": [{"role": "user", "content": "Use the tool find_order to look up the order W42."}],
        "tools": [_TOOL],
        "tool_choice": "auto",
        "temperature": model.sampling.temperature,
        "max_tokens": _PROBE_TOKENS,
    }
    try:
        reply = await complete(model.client, body, {})
    except ContextOverflowError as error:
        raise ConfigError(f"tau2: not even one call fits the context of {model.name}: {error}") from error
    except PolicyServerFault as fault:
        if fault.kind == "policy_server_refused" and "tool" in fault.detail:
            raise ConfigError(
                f"tau2: the server takes no tools; start it with {_PARSER_FLAGS}: {fault.detail}"
            ) from fault
        raise
    message: Mapping[str, Any] = reply["choices"][0]["message"]
    text = message.get("content") or ""
    if _THOUGHT.search(text):
        raise ConfigError(
            "tau2: the model's thoughts arrive as text, and would be shown to the user and matched against what it "
            "has to say; start the server with a reasoning parser (vLLM: --reasoning-parser NAME, qwen3 for Qwen3)"
        )
    if message.get("tool_calls"):
        return
    if _CALL_AS_TEXT.search(text):
        raise ConfigError(
            f"tau2: tool calls arrive as text, so that none would ever be carried out; start the server with a tool "
            f"parser ({_PARSER_FLAGS}). The model wrote: {text[:200]!r}"
        )
    logger.warning("tau2: asked for a tool call, the model made none but wrote %r", text[:200])


async def _reach(role: str, url: str, name: str, key: str, model: Model) -> None:
    body = {"model": name, "messages": [{"role": "user", "content": "Say hello."}]}
    async with connect(url, float(model.client.timeout), model.client.max_retries) as client:  # type: ignore[arg-type]
        client.api_key = key
        try:
            await complete(client, body, {})
        except PolicyServerFault as fault:
            raise ConfigError(
                f"tau2: the {role}'s model {name!r} at {url} cannot be asked; its key comes from "
                f"SLCA_TAU2_{role.upper()}_KEY, else OPENAI_API_KEY: {fault}"
            ) from fault
