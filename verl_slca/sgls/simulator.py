"""The simulator: every call is checked against its tool's schema; valid ones go to a backend.

An `Episode` is the `World` of one rollout. All rollouts of a group open their episode with the same
`world` key and so see one world: the same call gets the same text in each of them.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_slca.disk_cache import Cache
from verl_slca.errors import ConfigError, DataError, InfrastructureFault, SimulatorFault
from verl_slca.sgls.backends import Backend, BackendRequest
from verl_slca.sgls.backends.chain import make_backend
from verl_slca.sgls.backends.coherence import CoherentBackend
from verl_slca.sgls.config import SglsConfig as SglsConfig
from verl_slca.sgls.explain import ArgumentError
from verl_slca.sgls.faults import FaultyBackend
from verl_slca.sgls.figures import UNKNOWN, Figures, ToolFigures
from verl_slca.sgls.schema import MAX_NAME_CHARS, CompiledTool, compile_tool
from verl_slca.sgls.state import State, seeded
from verl_slca.sgls.validation import SchemaLimitError
from verl_slca.trajectory import ToolCall, ToolResult

MAX_REPORTED_ERRORS = 20
MAX_LISTED_NAMES = 20


class Simulator:
    """Makes episodes and counts what happens in them.

    Args:
        config: the settings.
        backend: answers valid calls in place of those that `config.backends` names; its reads are made to agree
            with what was said before.
        cache: keeps a model's answers in place of the file that `config.cache` names.

    Attributes:
        start: the state that every episode starts from.
        figures: counts per tool over all episodes.

    Raises:
        ConfigError: a file that the settings name cannot be used.
        DataError: a recording cannot be read.
    """

    def __init__(self, config: SglsConfig, backend: Backend | None = None, cache: Cache | None = None) -> None:
        self.config = config
        self.backend: Backend = CoherentBackend(backend) if backend else make_backend(config, cache)
        if config.inject:
            self.backend = FaultyBackend(self.backend, config.inject)
        self.start = _start(config)
        self.figures = Figures()

    def episode(self, tools: Sequence[Mapping[str, Any]], world: str) -> Episode:
        """A fresh episode.

        Args:
            tools: the declarations offered in this rollout.
            world: key of the world, equal for all rollouts of a group.

        Raises:
            DataError: a tool does not compile, or two different ones share a name.
        """
        compiled: dict[str, CompiledTool] = {}
        for tool in map(compile_tool, tools):
            if compiled.setdefault(tool.name, tool).digest != tool.digest:
                raise DataError("two different tools have this name; rename or remove one", f"tool {tool.name!r}")
        return Episode(self, compiled, world)


class Episode:
    """The tools of one rollout, with the calls made so far: a `World` of `verl_slca.episode`.

    Attributes:
        tools: by name.
        world: its key.
        figures: counts of this episode.
    """

    def __init__(self, simulator: Simulator, tools: dict[str, CompiledTool], world: str) -> None:
        self.tools = tools
        self.world = world
        self.figures = Figures()
        self._simulator = simulator
        self._history: list[tuple[ToolCall, ToolResult]] = []
        self._state = simulator.start.of(tuple(tools.values()))

    async def respond(self, calls: Sequence[ToolCall]) -> tuple[ToolResult, ...]:
        """One result per call, in order; a later call of a turn sees what an earlier one did.

        Raises:
            SimulatorFault: the backend or the validator, not the policy, failed.
        """
        return tuple([await self._answered(call) for call in calls])

    async def _answered(self, call: ToolCall) -> ToolResult:
        known = call.name in self.tools or not self._simulator.config.validate
        figures = ToolFigures()
        started = time.perf_counter()
        try:
            result = await self._result(call, figures) if known else self._unknown(call, figures)
        except InfrastructureFault as fault:
            figures.failed(fault.kind)
            raise
        finally:
            figures.took(time.perf_counter() - started)
            for counts in (self.figures, self._simulator.figures):
                counts.add(call.name if call.name in self.tools else UNKNOWN, figures)
        self._history.append((call, result))
        return result

    def _unknown(self, call: ToolCall, figures: ToolFigures) -> ToolResult:
        figures.unknown += 1
        return ToolResult(call.name, _sound_text(unknown_tool_text(call.name, list(self.tools))), is_error=True)

    async def _result(self, call: ToolCall, figures: ToolFigures) -> ToolResult:
        tool = self.tools.get(call.name) or compile_tool({"name": call.name[:MAX_NAME_CHARS].strip() or "tool"})
        config = self._simulator.config
        if config.validate:
            try:
                errors = tool.errors(call.arguments)
            except SchemaLimitError as error:
                raise SimulatorFault("simulator_schema_limit", f"{call.name}: {error}") from error
            if errors:
                figures.invalid += 1
                return ToolResult(call.name, _sound_text(invalid_arguments_text(call.name, errors)), is_error=True)
        history = tuple(self._history)
        request = BackendRequest(tool, call.arguments, self.world, config.seed, history, self._state)
        try:
            response = await self._simulator.backend.respond(request)
        except InfrastructureFault:
            raise
        except Exception as error:  # a backend is foreign code: whatever it raises is not the policy's doing
            detail = f"{call.name}: {type(error).__name__}: {error}"
            raise SimulatorFault("simulator_backend", detail[:500]) from error
        figures.answered(response)
        if not response.is_error:
            self._state = self._state.after(tool, call.arguments, response.content)
        return ToolResult(call.name, _sound_text(response.content), response.is_error)


def _start(config: SglsConfig) -> State:
    if not config.initial_state:
        return seeded({}, config.effects)
    try:
        return seeded(json.loads(Path(config.initial_state).read_text(encoding="utf-8")), config.effects)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"initial_state {config.initial_state}: {error}") from error


def unknown_tool_text(name: str, known: Sequence[str]) -> str:
    """What a call of a tool that does not exist is answered with: the nearest names, or all of them.

    Example:
        >>> unknown_tool_text("get_wether", ["get_weather", "send_mail"])
        "Error: unknown tool 'get_wether'. Did you mean 'get_weather'?"
    """
    short = name if len(name) <= 100 else name[:100] + "..."
    near = difflib.get_close_matches(name[:100], known, n=3)
    # Servers' tools are offered as `server-slug-tool`; policies drop the prefix.
    near += [k for k in known if name and k.endswith(name[:100]) and k not in near][: 3 - len(near)]
    if near:
        return f"Error: unknown tool {short!r}. Did you mean {' or '.join(map(repr, near))}?"
    listed = ", ".join(known[:MAX_LISTED_NAMES]) + (", ..." if len(known) > MAX_LISTED_NAMES else "")
    return f"Error: unknown tool {short!r}. Available tools: {listed or 'none'}."


def invalid_arguments_text(name: str, errors: Sequence[ArgumentError]) -> str:
    """What a call with invalid arguments is answered with: every error of every field.

    Example:
        >>> invalid_arguments_text("add", [ArgumentError("a", '"x"', "must be number")])
        'Error: invalid arguments for add: a: must be number, got "x".'
    """
    listed = "; ".join(map(str, errors[:MAX_REPORTED_ERRORS]))
    more = len(errors) - MAX_REPORTED_ERRORS
    return f"Error: invalid arguments for {name}: {listed}" + (f"; and {more} more." if more > 0 else ".")


def _sound_text(text: str) -> str:
    """`text` without lone surrogates, which a policy can write as ``\\ud800`` and no tokenizer can read."""
    return text.encode("utf-8", "replace").decode("utf-8")
