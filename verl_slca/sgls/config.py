"""How tools are simulated: every setting of the simulator, under the one key that each entry point gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from verl_slca.disk_cache import CacheConfig
from verl_slca.sgls.backends.llm import LlmBackendConfig
from verl_slca.sgls.faults import InjectionConfig
from verl_slca.sgls.verbs import EFFECTS, Effect

BackendName = Literal["rules", "llm", "replay"]


@dataclass(frozen=True, slots=True)
class SglsConfig:
    """How tools are simulated.

    Attributes:
        validate: check every call against its schema. False is the "w/o SGLS" ablation: whatever is
            called is answered.
        backends: who answers valid calls, in this order: the next one is asked when one has no answer (a call that
            is not in the recording) or fails; both are counted. ``"rules"`` is deterministic, needs no network,
            and always answers.
        seed: varies every response of a run.
        inject: shares of API errors that valid calls are answered with on purpose.
        llm: the model behind the ``"llm"`` backend.
        cache: where the model's answers are kept, for all processes; None asks it anew in every process.
        replay: file of the recording behind the ``"replay"`` backend (`sgls.recording`).
        record: file that every answer of the backends is appended to, as a recording; "" records nothing.
        initial_state: JSON file of things that are there from the start: server -> kind -> list of objects.
        effects: what tools do to the world, by name, where annotations and names do not tell it right: ``"read"``,
            ``"list"``, ``"create"``, ``"update"``, ``"delete"`` or ``"write"``.
    """

    validate: bool = True
    backends: tuple[BackendName, ...] = ("rules",)
    seed: int = 0
    inject: InjectionConfig = field(default_factory=InjectionConfig)
    llm: LlmBackendConfig = field(default_factory=LlmBackendConfig)
    cache: CacheConfig | None = None
    replay: str = ""
    record: str = ""
    initial_state: str = ""
    effects: Mapping[str, Effect] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.backends or len(set(self.backends)) < len(self.backends):
            raise ValueError(f"backends must name each one at most once, and at least one, got {list(self.backends)}")
        if "rules" in self.backends[:-1]:
            raise ValueError(f"rules always answers, so nothing behind it is ever asked, got {list(self.backends)}")
        if ("replay" in self.backends) != bool(self.replay):
            raise ValueError("the replay backend and the path of its recording, replay, go together; give both or none")
        if self.cache is not None and "llm" not in self.backends:
            raise ValueError("the cache keeps answers of the llm backend, and that is not among the backends; drop it")
        if not isinstance(self.effects, Mapping) or not set(self.effects.values()) <= set(EFFECTS):
            raise ValueError(f"effects must map tool names to one of {', '.join(EFFECTS)}, got {self.effects}")
