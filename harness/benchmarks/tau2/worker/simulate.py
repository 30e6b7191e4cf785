"""The jobs: one official simulation with its official reward, and the reward of one that was saved."""

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import api
from .people import Agent, Failed, ScriptedUser, User, opening_of

Job = Mapping[str, Any]


def simulate(job: Job, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The simulation of a task, evaluated.

    Args:
        job: see `worker`.
        entry: the task as its file holds it.
    """
    task = api.Task.model_validate(entry)
    environment = api.environment(job["domain"])
    agent = Agent(tools=environment.get_tools(), domain_policy=environment.get_policy(), **job["agent"])
    agent.speaks("agent", job["trace"], job["retries"])
    orchestrator = api.Orchestrator(
        domain=job["domain"],
        agent=agent,
        user=_user(job, task, environment),
        environment=environment,
        task=task,
        max_steps=job["max_steps"],
        max_errors=job["max_errors"],
        seed=job["seed"],
    )
    simulation, failed = None, None
    try:
        simulation = orchestrator.run()
        simulation.trial = job["trial"]
        simulation.reward_info = _reward(simulation, task, job)
    except Failed as failure:
        failed = failure.facts
    except Exception as error:
        failed = Failed.of("environment", error).facts
    messages = orchestrator.get_trajectory() if simulation is None else []
    return {
        "simulation": simulation and simulation.model_dump(mode="json"),
        "failed": failed,
        "messages": [message.model_dump(mode="json") for message in messages],
        "requests": agent.requests,
    }


def evaluate(job: Job, entry: Mapping[str, Any]) -> dict[str, Any]:
    """A saved simulation, evaluated again."""
    task = api.Task.model_validate(entry)
    simulation = api.SimulationRun.model_validate({**job["simulation"], "reward_info": None})
    failed = None
    try:
        simulation.reward_info = _reward(simulation, task, job)
    except Failed as failure:
        failed = failure.facts
    return {"simulation": simulation.model_dump(mode="json"), "failed": failed, "messages": [], "requests": 0}


def _user(job: Job, task: api.Task, environment: Any) -> Any:
    tools, instructions = api.user_tools(environment, task), str(task.user_scenario)
    if job["user"] is None:
        scripted = ScriptedUser(llm="none", instructions=instructions, tools=tools)
        scripted.speaks(opening_of(task))
        return scripted
    user = User(instructions=instructions, tools=tools, **job["user"])
    user.speaks("user", job["trace"], job["retries"])
    return user


def _reward(simulation: Any, task: api.Task, job: Job) -> Any:
    if job["judge"] is not None:
        api.set_judge(job["judge"]["llm"], job["judge"]["llm_args"])
    try:
        return api.evaluate(simulation, task, job["domain"])
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        if any(frame.name == "run_env_assertion" for frame in frames):
            raise Failed.of("assertion", error) from error
        judge = any(Path(frame.filename).name == "evaluator_nl_assertions.py" for frame in frames)
        raise Failed.of("judge" if judge else "evaluator", error) from error
