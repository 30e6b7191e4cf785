"""The parts of tau2 that a simulation needs, of either generation of the package.

What differs: v1 filters the user's tools by task and evaluates assertions by a task's own basis; in v0 that has to be
asked for. v0 is what NVIDIA packs (tau2.run), v1 has tau2.runner.
"""

import importlib.util
from typing import Any

import tau2.evaluator.evaluator_nl_assertions as judging
from tau2.agent.llm_agent import LLMAgent
from tau2.data_model.message import UserMessage
from tau2.data_model.simulation import SimulationRun
from tau2.data_model.tasks import RewardType, Task
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
from tau2.orchestrator.orchestrator import Orchestrator
from tau2.registry import registry
from tau2.user.user_simulator import UserSimulator
from tau2.utils.utils import DATA_DIR

__all__ = ["DATA_DIR", "LLMAgent", "Orchestrator", "SimulationRun", "Task", "UserMessage", "UserSimulator"]

STOP = "###STOP###"


def environment(domain: str) -> Any:
    """A fresh environment of that domain."""
    return registry.get_env_constructor(domain)()


def user_tools(environment: Any, task: Task) -> list[Any] | None:
    """The tools that the task's user has; None where the domain gives users none."""
    if environment.user_tools is None:
        return None
    wanted = {"include": task.user_tools} if "user_tools" in type(task).model_fields else {}
    return environment.get_user_tools(**wanted) or None


def set_judge(llm: str, args: dict[str, Any]) -> None:
    """Let that model judge assertions; the package has its name fixed in this module."""
    if not hasattr(judging, "DEFAULT_LLM_NL_ASSERTIONS") or not hasattr(judging, "DEFAULT_LLM_NL_ASSERTIONS_ARGS"):
        raise RuntimeError("this version of tau2 keeps its judge elsewhere")
    judging.DEFAULT_LLM_NL_ASSERTIONS, judging.DEFAULT_LLM_NL_ASSERTIONS_ARGS = llm, args


def evaluate(simulation: SimulationRun, task: Task, domain: str) -> Any:
    """The official reward of a simulation."""
    criteria, kind = task.evaluation_criteria, EvaluationType.ALL
    if not _is_v1() and criteria is not None and RewardType.NL_ASSERTION in criteria.reward_basis:
        kind = EvaluationType.ALL_WITH_NL_ASSERTIONS
    return evaluate_simulation(simulation=simulation, task=task, evaluation_type=kind, solo_mode=False, domain=domain)


def _is_v1() -> bool:
    return importlib.util.find_spec("tau2.runner") is not None
