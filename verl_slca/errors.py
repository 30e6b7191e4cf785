"""Every error the project raises on purpose, by whose fault it is.

`DataError` and `ConfigError` are the user's to fix and stop a run before it starts.
`InfrastructureFault` is nobody's answer: the rollout it hits is marked, counted and kept out of its
group's statistics, and never becomes a score. All of them survive pickling, since Ray sends them
between processes.
"""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)
_reported: set[str] = set()


class SlcaError(Exception):
    """Base of every error raised on purpose by this project."""


class ConfigError(SlcaError, ValueError):
    """A setting is unknown, contradictory or out of range."""


class DataError(SlcaError, ValueError):
    """A dataset row, tool schema or gold call cannot be used; the message names where and how to fix it."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(problem, where)
        self.problem = problem
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem


class InfrastructureFault(SlcaError):
    """Something other than the policy failed; `kind` is the counter it goes under.

    Args:
        kind: short machine name, e.g. ``"simulator_timeout"``; one metric per kind.
        detail: what happened, for the log.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


class SimulatorFault(InfrastructureFault):
    """The simulator could not produce a response to a valid call."""


class JudgeFault(InfrastructureFault):
    """The judge could not give a verdict."""


class PolicyServerFault(InfrastructureFault):
    """The server that runs the policy could not be asked."""


def as_fault(error: Exception, where: str) -> InfrastructureFault:
    """`error` as the fault that a rollout is lost to; the first of each kind in this process is logged in full.

    Args:
        error: what was raised.
        where: what was being done, e.g. ``"rollout"``: a bug, which no `InfrastructureFault` foresaw, is counted
            as ``"rollout_KeyError"``.
    """
    if isinstance(error, InfrastructureFault):
        fault = error
    else:
        fault = InfrastructureFault(f"{where}_{type(error).__name__}", str(error))
    if fault.kind not in _reported:
        _reported.add(fault.kind)
        _log.error("a rollout is lost to %s; others lost to it are counted only", fault, exc_info=error)
    return fault
