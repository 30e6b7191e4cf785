"""What a step of training has lost, and whether what is left of it teaches anything."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verl_slca.adapters.segmented_output import FAULT
from verl_slca.errors import ConfigError, InfrastructureFault

_log = logging.getLogger(__name__)

NEVER_RETURNED = "never_returned"
"""Kind of fault of a rollout that was asked for and of which verl has nothing; its worker's log says why."""


def never_returned(keys: Sequence[str], asked: int) -> list[dict[str, Any]]:
    """A `reward_extra_info` for each of the `asked` rollouts that has no row among `keys`.

    Args:
        keys: of a step's rows, ``{prompt}_{session}_{part}``: a rollout may have come back in several parts.
        asked: prompts times rollouts a prompt.

    Example:
        >>> never_returned(["a_0_0", "a_0_1", "a_1_0"], asked=3)
        [{'fault': 'never_returned'}]
    """
    returned = len({key.rsplit("_", 1)[0] for key in keys})
    return [{FAULT: NEVER_RETURNED} for _ in range(asked - returned)]


def require_enough_left(infos: Sequence[Mapping[str, Any]], max_lost_share: float, of: str = "step") -> None:
    """Nothing, unless more than `max_lost_share` of a step's rollouts were lost to infrastructure faults.

    Args:
        infos: one `reward_extra_info` per rollout that was asked for.
        max_lost_share: from ``algorithm.slca``, in (0, 1]; 1 stops only where nothing at all came back.
        of: whose rollouts they are, for the message.

    Raises:
        InfrastructureFault: naming the kinds of fault and how many rollouts each has hit.
    """
    counts = Counter(str(info[FAULT]) for info in infos if info.get(FAULT))
    lost = counts.total()
    if lost <= max_lost_share * len(infos) and not 0 < counts[NEVER_RETURNED] == len(infos):
        return
    kinds = ", ".join(f"{kind}: {count}" for kind, count in counts.most_common())
    raise InfrastructureFault(
        "rollouts_lost",
        f"{lost} of the {len(infos)} rollouts of this {of} were lost ({kinds}), more than "
        f"algorithm.slca.max_lost_share={max_lost_share:g} allows; the rest says little about the policy. The log "
        f"has the first traceback of each kind. Mend what failed and go on from the last checkpoint, or raise the "
        f"share (1.0: go on while anything comes back)",
    )


def fault_metrics(faults: Iterable[Any], prefix: str) -> dict[str, float]:
    """Number of lost rollouts, in total and by kind of fault."""
    counts = Counter(str(fault) for fault in faults if fault)
    total = {f"{prefix}/lost": float(sum(counts.values()))}
    return total | {f"{prefix}/{kind}": float(count) for kind, count in sorted(counts.items())}


class Silence:
    """Watches for steps that teach nothing: no call that can be read, or not one advantage.

    Mostly the model writes its calls in another form than the one that is read; its every rollout then earns the
    same, and training runs on without an error or an effect.

    Args:
        longest: steps in a row before it stops, from ``algorithm.slca.max_silent_steps``; 0: it only warns.
    """

    def __init__(self, longest: int) -> None:
        self._longest, self._steps = longest, 0

    def look(self, metrics: Mapping[str, float], trajectories: Iterable[Mapping[str, Any] | None]) -> None:
        """One more step.

        Args:
            metrics: of the step, verl's and ours.
            trajectories: of its rollouts, as dicts; of the first one that said anything the end is shown.

        Raises:
            ConfigError: the last of `longest` such steps.
        """
        found = _silence(metrics)
        self._steps = self._steps + 1 if found else 0
        if not found:
            return
        said = next((t["turns"][-1]["text"] for t in trajectories if t and t["turns"]), "")
        problem = (
            f"step teaches nothing ({self._steps} in a row): {found}. One rollout ended: {said[-400:]!r}\nCalls are "
            'read from <tool_call>{"name": ..., "arguments": {...}}</tool_call>. Use a model and chat template that '
            "write them so (`slca prepare --model` checks), or teach the form first (SFT), or raise the number of "
            "rollouts a prompt and the temperature, so that they differ"
        )
        if self._longest and self._steps >= self._longest:
            raise ConfigError(f"{problem}. To go on nevertheless set algorithm.slca.max_silent_steps=0")
        _log.warning("%s", problem)


def _silence(metrics: Mapping[str, float]) -> str:
    if metrics.get("rollout/gold_calls/mean") and metrics.get("rollout/calls/mean") == 0:
        return "no rollout holds a call that can be read, though calls are due"
    if metrics.get("critic/advantages/max") == metrics.get("critic/advantages/min") == 0:
        return "every advantage is 0, since the rollouts of each prompt have earned the same"
    return ""
