"""Training metrics as verl's file logger writes them, and a picture of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CURVES = {
    "rollout/process/mean": "process reward (tools)",
    "rollout/summary/mean": "summary reward (answer)",
    "rollout/success_at_0.9/mean": "Success@0.9",
}


def read_steps(directory: Path) -> dict[int, dict[str, Any]]:
    """Metrics by training step, from every ``*.jsonl`` of a run; a later file wins, a torn last line is skipped.

    A run that was stopped and resumed leaves one file per start, since verl's file logger empties its file
    when it opens it.
    """
    steps: dict[int, dict[str, Any]] = {}
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            entry = json.loads(line)
            steps.setdefault(entry["step"], {}).update(entry["data"])
    return steps


def draw_curve(directory: Path, picture: Path) -> Path:
    """`picture`, written: rewards over steps on the left, the actor's gradient norm on the right."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    steps = read_steps(directory)
    figure, (rewards, gradients) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for key, label in CURVES.items():
        points = [(step, data[key]) for step, data in sorted(steps.items()) if key in data]
        if points:
            rewards.plot(*zip(*points, strict=True), label=label)
    rewards.set(xlabel="step", ylabel="mean over rollouts", ylim=(0, 1.02), title="What the rollouts earned")
    rewards.legend(loc="lower right")
    points = [(step, data["actor/grad_norm"]) for step, data in sorted(steps.items()) if "actor/grad_norm" in data]
    if points:
        gradients.plot(*zip(*points, strict=True), color="tab:gray")
    gradients.set(xlabel="step", title="Gradient norm", ylim=(0, None))
    for axes in (rewards, gradients):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(picture, dpi=120)
    plt.close(figure)
    return picture
