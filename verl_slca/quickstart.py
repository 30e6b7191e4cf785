"""`slca quickstart`: world, SFT, RL and evaluation of the quickstart recipe, end to end on a CPU.

The work is done by verl's own trainers and by `slca-eval`, each in a process of its own; here they are put in
order (`stages.run_stages`) and their results are shown.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from verl_slca.errors import ConfigError
from verl_slca.stages import Stage, python_command, run_stages
from verl_slca.training_curve import draw_curve, read_steps

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
SHOWN = ("success@0.9", "name_f1", "arg_match", "process", "summary", "tool_turns")
BENCHMARKS = {"bfcl-v4": "bfcl:simple_python", "tau2": "tau2:mock"}
"""Environment to the part of its benchmark that needs no network once it is set up."""
CPU = {
    "PYTHON": sys.executable,
    "VERL_PLATFORM": "cpu",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def run_quickstart(directory: Path, seed: int, console: Console | None = None) -> None:
    """The recipe run to its end in `directory`, its table and its paths printed.

    Args:
        directory: created if missing; a second run goes on where the first stopped.
        seed: of the world, the model, SFT and RL.
        console: where to print.

    Raises:
        ConfigError: the recipe's files are not there (the package runs outside a checkout).
        StageError: a stage failed; the message names its log.
    """
    console = console or Console(soft_wrap=True)
    recipe = RECIPES / "quickstart"
    if not recipe.is_dir():
        raise ConfigError(f"{recipe} does not exist; `slca quickstart` runs from a checkout of the repository")
    directory = directory.resolve()
    run_stages(quickstart_stages(recipe, directory, seed), directory, console)
    picture = draw_curve(directory / "rl" / "metrics", directory / "training_curve.png")
    console.print(results_table([("SFT", directory / "eval_sft"), ("SFT + SLCA", directory / "eval_rl")]))
    for line in benchmark_lines(directory):
        console.print(line, markup=False, highlight=False)
    console.print(f"checkpoint   {directory / 'rl' / 'model'}")
    console.print(f"rollouts     {directory / 'rl' / 'rollouts'}")
    console.print(f"evaluation   {directory / 'eval_rl' / 'samples.jsonl'}")
    console.print(f"curve        {picture}")


def quickstart_stages(recipe: Path, directory: Path, seed: int) -> list[Stage]:
    """The stages, each with the command a user could type; those of other benchmarks need a package index."""
    world, sft, rl = directory / "world", directory / "sft", directory / "rl"
    return [
        Stage(
            "world",
            "Build the world, its tokenizer and a fresh tiny model",
            python_command(recipe / "world.py", "--output-dir", world, "--seed", seed),
            CPU,
        ),
        Stage(
            "sft",
            "SFT on noisy demonstrations with verl's SFT trainer",
            ["bash", str(recipe / "run_sft.sh"), f"trainer.seed={seed}"],
            {**CPU, "WORLD": str(world), "OUTPUT": str(sft)},
            lambda: _sft_state(directory / "logs" / "sft.log"),
        ),
        evaluation("eval_sft", "Evaluate the SFT checkpoint on held-out rows", recipe, sft / "model", world, directory),
        rl_stage("rl", "RL with SLCA on verl's PPO trainer", recipe, world, sft / "model", rl, seed),
        evaluation("eval_rl", "Evaluate the RL checkpoint on the same rows", recipe, rl / "model", world, directory),
        *benchmarks(rl / "model", recipe / "benchmarks.yaml", directory),
    ]


def rl_stage(
    name: str,
    title: str,
    recipe: Path,
    world: Path,
    model: Path,
    output: Path,
    seed: int,
    overrides: Sequence[str] = (),
) -> Stage:
    """One RL training of the quickstart recipe, resumed from its last checkpoint when started again."""
    seeds = [f"data.seed={seed}", f"actor_rollout_ref.rollout.seed={seed}"]
    return Stage(
        name,
        title,
        ["bash", str(recipe / "run_rl.sh"), *seeds, *overrides],
        {**CPU, "WORLD": str(world), "MODEL": str(model), "OUTPUT": str(output)},
        lambda: _training_state(output / "metrics"),
    )


def evaluation(name: str, title: str, recipe: Path, model: Path, world: Path, directory: Path) -> Stage:
    """One `slca-eval run` over the held-out rows, greedy."""
    command = python_command("-m", "harness", "run", "--model", model, "--tasks", "toucan")
    command += ["--output-dir", str(directory / name), "--data", str(world / "heldout.parquet")]
    return Stage(name, title, [*command, "--max-tokens", "192", "--config", str(recipe / "eval.yaml")], CPU)


def benchmarks(model: Path, config: Path, directory: Path) -> list[Stage]:
    """Parts of BFCL and tau2-bench that need no network once set up, played by `model`; left out where they cannot be.

    Any recipe can end with these: ``[*stages, *benchmarks(model, config, directory)]``.

    Args:
        model: Hugging Face folder.
        config: settings of the benchmarks.
        directory: of the pipeline; each benchmark gets a run folder in it, named like its stage.
    """
    patience = {**CPU, "PIP_DEFAULT_TIMEOUT": "15", "PIP_RETRIES": "1"}
    setup = python_command("-m", "harness", "setup", *BENCHMARKS)
    stages = [
        Stage("setup", "Set up BFCL and tau2-bench in environments of their own", setup, patience, optional=120.0)
    ]
    for environment, tasks in BENCHMARKS.items():
        name = f"eval_{environment}"
        command = python_command("-m", "harness", "run", "--model", model, "--tasks", tasks, "--config", config)
        command += ["--output-dir", str(directory / name), "--limit", "12", "--max-tokens", "128"]
        stages.append(Stage(name, f"Evaluate the checkpoint on 12 samples of {tasks}", command, CPU, optional=60.0))
    return stages


def benchmark_lines(directory: Path) -> list[str]:
    """The headline number of every benchmark that `benchmarks` got through, a line each."""
    lines = []
    for environment, tasks in BENCHMARKS.items():
        path = directory / f"eval_{environment}" / "results.json"
        if path.exists():
            (result,) = json.loads(path.read_text())["tasks"].values()
            for metric, value in list(result["metrics"].items())[:1]:
                lines.append(f"{tasks}: {metric} {_value(value)}, n {value['n']} ({path.parent})")
    return lines


def results_table(runs: Sequence[tuple[str, Path]]) -> Table:
    """The quickstart's metrics of several evaluation folders side by side, value ± standard error."""
    results = {title: json.loads((folder / "results.json").read_text())["tasks"]["toucan"] for title, folder in runs}
    table = Table(title="Held-out rows, greedy decoding", title_justify="left")
    table.add_column("metric", no_wrap=True)
    for title in results:
        table.add_column(title, justify="right")
    for name in SHOWN:
        table.add_row(name, *(_value(result["metrics"][name]) for result in results.values()))
    table.add_row("n", *(str(result["samples"]["expected"]) for result in results.values()))
    return table


def _value(metric: dict[str, Any]) -> str:
    return f"{metric['value']:.3f} ± {metric['stderr']:.3f}"


def _training_state(metrics: Path) -> str:
    steps = read_steps(metrics)
    if not steps:
        return ""
    step, last = max(steps.items())
    shown = {key.split("/")[1]: last[key] for key in ("rollout/process/mean", "rollout/summary/mean") if key in last}
    return f"step {step}: " + ", ".join(f"{key} {value:.3f}" for key, value in shown.items())


def _sft_state(log: Path) -> str:
    if not log.exists():
        return ""
    found = re.findall(r"train/loss:([\d.]+).*?(\d+)/(\d+) \[", log.read_text(errors="replace")[-8000:], re.DOTALL)
    return "step {1} of {2}: loss {0:.5}".format(*found[-1]) if found else ""
