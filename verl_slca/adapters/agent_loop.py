"""`slca_agent`: verl's agent loop over `run_episode`, with the row's own tools played by SGLS.

Token bookkeeping is verl's own (its continuous-token builder): every policy token is in the response once
with mask 1, every environment token once with mask 0, and each turn knows its token span.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from omegaconf import DictConfig, OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.utils.profiler import simple_timer

from verl_slca.adapters.batch_row import row_of
from verl_slca.adapters.segmented_output import SegmentedOutput
from verl_slca.adapters.shared_cache import open_cache
from verl_slca.adapters.turns import builder_for
from verl_slca.chat_template import calls_per_turn, end_tokens
from verl_slca.config import parse
from verl_slca.episode import Action, Limits, World, run_episode
from verl_slca.errors import DataError, as_fault
from verl_slca.rows import Row
from verl_slca.seeds import derived_seed
from verl_slca.sgls.figures import to_dict
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall, ToolResult, Trajectory

SGLS_KEY = "actor_rollout_ref.rollout.custom.sgls"
"""Where the simulator's settings live in verl's config (`custom` is verl's free-form rollout field)."""
SGLS_FIGURES = "sgls_figures"
"""`extra_fields` key: the simulator's counts of the rollout (`sgls.figures.to_dict`)."""


@register("slca_agent")
class SlcaAgentLoop(AgentLoopBase):
    """One rollout of one row: the policy's turns through verl's rollout server, the tools through SGLS.

    Limits come from verl's own keys: `rollout.multi_turn.{max_assistant_turns, max_parallel_calls,
    max_tool_response_length, tool_response_truncate_side}` and `rollout.response_length`. Under a template that
    holds one call a turn a second one is answered with an error, in the one result that the turn may have.
    """

    def __init__(self, *args: Any, hf_model_type: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, hf_model_type=hf_model_type, **kwargs)
        self._model_type = hf_model_type
        multi_turn = self.rollout_config.multi_turn
        self.one_call = calls_per_turn(self.tokenizer) == 1
        self.limits = Limits(
            max_turns=multi_turn.max_assistant_turns or Limits().max_turns,
            max_parallel_calls=1 if self.one_call else multi_turn.max_parallel_calls,
            max_tool_response_chars=multi_turn.max_tool_response_length,
            truncate_side=multi_turn.tool_response_truncate_side,
        )
        self.ends = end_tokens(self.tokenizer, str(OmegaConf.select(self.config, "actor_rollout_ref.model.path") or ""))
        self.simulator = _simulator(json.dumps(sgls_settings(self.config), sort_keys=True))

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **kwargs: Any) -> SegmentedOutput:
        """The finished rollout; its trajectory travels in ``extra_fields["trajectory"]`` as a dict.

        Whatever is raised on the way loses this rollout alone: it comes back marked, without a learnable token, so
        that it is counted (`as_fault`) and not padded over. That goes for a row that cannot be used, too.

        Args:
            sampling_params: verl's sampling parameters.
            kwargs: the dataset row (RL schema of `verl_slca.rows`) and verl's own fields.
        """
        try:
            return await self._rollout(sampling_params, kwargs)
        except Exception as error:
            return self._lost(as_fault(error, "rollout").kind, sampling_params, kwargs)

    async def _rollout(self, sampling_params: dict[str, Any], kwargs: Mapping[str, Any]) -> SegmentedOutput:
        self.continuous_token_builder = builder_for(
            self.tokenizer,
            self._model_type,
            self.apply_chat_template_kwargs,
            self.processor,
            mm_processor_kwargs=self.mm_processor_kwargs,
        )
        row = row_of(kwargs)
        seed = derived_seed(
            self.rollout_config.seed, row.key, kwargs.get("session_id", 0), kwargs.get("global_steps", 0)
        )
        policy = await TokenPolicy.start(self, row, sampling_params, seed)
        episode = self.simulator.episode(row.tools, row.key)
        world = TimedWorld(episode)
        trajectory = policy.with_spans(await run_episode(policy, world, self.limits))
        output = AgentLoopOutput(
            prompt_ids=policy.token_ids[: policy.prompt_length],
            response_ids=policy.token_ids[policy.prompt_length :],
            response_mask=policy.mask,
            response_logprobs=policy.logprobs,
            num_turns=1 + len(trajectory.turns) + sum(1 for turn in trajectory.turns if turn.results),
            metrics=AgentLoopMetrics(
                generate_sequences=policy.timing["generate_sequences"], tool_calls=world.timing["tool_calls"]
            ),
            extra_fields={
                **policy.server_fields,
                "trajectory": trajectory.to_dict(),
                SGLS_FIGURES: to_dict(episode.figures.total()),
            },
        )
        return SegmentedOutput.of(output, self.config)

    def _lost(self, fault: str, sampling_params: Mapping[str, Any], kwargs: Mapping[str, Any]) -> SegmentedOutput:
        eos, step = self.tokenizer.eos_token_id, kwargs.get("global_steps", 0)
        output = AgentLoopOutput(
            prompt_ids=[eos],
            response_ids=[eos],
            response_mask=[0],
            response_logprobs=[0.0] if sampling_params.get("logprobs") else None,
            num_turns=0,
            metrics=AgentLoopMetrics(),
            extra_fields={
                "min_global_steps": step,
                "max_global_steps": step,
                "trajectory": Trajectory((), "fault", fault).to_dict(),
            },
        )
        return SegmentedOutput.of(output, self.config)


class TokenPolicy:
    """`episode.Policy` over verl's rollout server: token ids in, token ids out.

    Attributes:
        token_ids: prompt and response so far.
        mask: 1 for policy tokens, 0 for environment tokens; one entry per response token.
        logprobs: log-probability of each response token under the rollout policy (0.0 on environment
            tokens), or None when the server gives none.
    """

    def __init__(
        self, loop: SlcaAgentLoop, row: Row, sampling_params: dict[str, Any], seed: int, prompt_ids: list[int]
    ) -> None:
        self._loop, self._seed, self._sampling_params = loop, seed, sampling_params
        self._tools, self._messages = row.template_tools, list(row.prompt)
        self._request_id = uuid4().hex
        self.prompt_length = len(prompt_ids)
        self.token_ids, self.mask = prompt_ids, list[int]()
        self.logprobs: list[float] | None = [] if sampling_params.get("logprobs") else None
        self.spans: list[tuple[int, int]] = []
        self.timing = {"generate_sequences": 0.0}
        self.server_fields: dict[str, Any] = {}

    @classmethod
    async def start(cls, loop: SlcaAgentLoop, row: Row, sampling_params: dict[str, Any], seed: int) -> TokenPolicy:
        """A policy that has read the row's prompt."""
        render = functools.partial(
            loop.continuous_token_builder.build_initial_tokens, list(row.prompt), tools=row.template_tools
        )
        prompt_ids = await loop.loop.run_in_executor(None, render)
        limit = loop.rollout_config.prompt_length
        if len(prompt_ids) > limit:
            raise DataError(
                f"prompt has {len(prompt_ids)} tokens with its tools, rollout.prompt_length is {limit}; "
                "raise data.max_prompt_length or drop the row",
                where=f"row {row.key}",
            )
        return cls(loop, row, sampling_params, seed, list(prompt_ids))

    async def act(self) -> Action:
        """The next turn, at most as long as `rollout.response_length` has room for."""
        room = self._loop.rollout_config.response_length - len(self.mask)
        params = {
            **self._sampling_params,
            "max_tokens": room,
            "seed": derived_seed(self._seed, len(self.spans)),
            "stop_token_ids": sorted(self._loop.ends),
        }
        with simple_timer("generate_sequences", self.timing):
            output = await self._loop.server_manager.generate(
                request_id=self._request_id, prompt_ids=self.token_ids, sampling_params=params
            )
        self._keep_server_fields(output.extra_fields)
        begin = len(self.mask)
        merged, self.mask, self.logprobs = await self._loop.ct_merge_assistant_token(
            self.token_ids, output.token_ids, self.mask, self.logprobs, assistant_logprobs=self._logprobs_of(output)
        )
        self.token_ids = merged.token_ids
        self.spans.append((begin + len(merged.inserted_token_ids), len(self.mask)))
        # What the server cut, for whatever limit of its own, has no end token: it is no answer. (verl's vLLM server
        # gives one stop reason for both; one that keeps the end token to itself says "stop".)
        ended = bool(output.token_ids) and output.token_ids[-1] in self._loop.ends
        said = output.token_ids[:-1] if ended else output.token_ids
        text = self._loop.tokenizer.decode(said, skip_special_tokens=True)
        return Action(text.strip("\n"), finished=ended or output.stop_reason == "stop", span=self.spans[-1])

    async def observe(self, results: Sequence[ToolResult]) -> bool:
        """Append the results as tool messages; False, and nothing appended, when they leave no room."""
        if self._loop.one_call:
            results = [ToolResult(results[0].name, "\n".join(result.content for result in results))]
        calls = [ToolCall(result.name, {}) for result in results]
        before = [*self._messages, _assistant_message(calls)]
        after = [*before, *({"role": "tool", "name": r.name, "content": r.content} for r in results)]
        merged, mask, logprobs = await self._loop.ct_merge_context_msg(
            before, after, self.token_ids, self.mask, self.logprobs, tools=self._tools
        )
        if len(mask) >= self._loop.rollout_config.response_length:
            return False
        kept = len(mask) - merged.appended_token_count - len(merged.inserted_token_ids)
        self.spans[-1] = (self.spans[-1][0], min(self.spans[-1][1], kept))
        self.token_ids, self.mask, self.logprobs, self._messages = merged.token_ids, mask, logprobs, after
        return True

    def with_spans(self, trajectory: Trajectory) -> Trajectory:
        """`trajectory` with each turn's final token span."""
        turns = (dataclasses.replace(turn, span=span) for turn, span in zip(trajectory.turns, self.spans, strict=False))
        return dataclasses.replace(trajectory, turns=tuple(turns))

    def _logprobs_of(self, output: Any) -> list[float] | None:
        return output.log_probs if self.logprobs is not None else None

    def _keep_server_fields(self, fields: dict[str, Any]) -> None:
        """First turn's fields stay, except the newest weights' version, which verl's staleness control reads."""
        self.server_fields = {**fields, **self.server_fields}
        if fields.get("max_global_steps") is not None:
            self.server_fields["max_global_steps"] = fields["max_global_steps"]


class TimedWorld:
    """A `World` that adds up the seconds its answers took."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.timing = {"tool_calls": 0.0}

    async def respond(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult]:
        """The wrapped world's answers."""
        with simple_timer("tool_calls", self.timing):
            return await self._world.respond(calls)


def sgls_settings(config: DictConfig) -> dict[str, Any]:
    """The simulator's settings as written in verl's config, {} when there are none."""
    settings = OmegaConf.select(config, SGLS_KEY)
    return OmegaConf.to_container(settings, resolve=True) if settings is not None else {}  # type: ignore[return-value]


@functools.lru_cache(maxsize=4)
def _simulator(settings: str) -> Simulator:
    """One simulator a process: verl builds an agent loop object per rollout."""
    config = parse(SglsConfig, json.loads(settings), SGLS_KEY)
    return Simulator(config, cache=open_cache(config.cache))


def _assistant_message(calls: Sequence[ToolCall]) -> dict[str, Any]:
    functions = [{"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
    return {"role": "assistant", "content": "", "tool_calls": functions}
