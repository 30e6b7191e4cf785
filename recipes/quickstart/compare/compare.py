"""Methods compared on identical data, SFT checkpoint, simulator, rewards and budget, over several seeds.

    python recipes/quickstart/compare/compare.py run       # hours; stop it and start it again at will
    python recipes/quickstart/compare/compare.py report    # tables and picture from what is there

Two experiments share their runs: grpo, slca, slca_toolpo and slca_rltr as they are; and grpo and slca with
seeded noise of growing standard deviation on the summary reward alone (`noisy_summary.py`).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from scipy import stats

from verl_slca.quickstart import evaluation, rl_stage
from verl_slca.stages import run_stages
from verl_slca.training_curve import read_steps

HERE = Path(__file__).resolve().parent
METHODS = ("grpo", "slca", "slca_toolpo", "slca_rltr")
NOISY_METHODS = ("grpo", "slca")
NOISE = (0.0, 0.25, 0.5)
ONE_RANK = ("trainer.n_gpus_per_node=1", "ray_kwargs.ray_init.num_gpus=1")
"""Two trainings of one rank keep two cores busier than one training of two ranks."""

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
Quickstart = Annotated[Path, typer.Option(help="A finished quickstart: its world and SFT checkpoint are used.")]
Output = Annotated[Path, typer.Option(help="One folder per run goes here.")]
Seeds = Annotated[int, typer.Option(help="Seeds per method: 0, 1, ...")]


@dataclass(frozen=True, slots=True)
class Run:
    """One training: a method, a seed, and the standard deviation of the noise on the summary reward."""

    method: str
    seed: int
    noise: float = 0.0

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.method}-noise{self.noise:g}-seed{self.seed}"

    @property
    def overrides(self) -> list[str]:
        """What it changes in the quickstart recipe."""
        changes = [f"algorithm.adv_estimator={self.method}", *ONE_RANK]
        if self.noise:
            manager = "reward.reward_manager"
            changes += [
                f"{manager}.source=importlib",
                f"{manager}.name=NoisySummaryRewardManager",
                f"{manager}.module.path={HERE / 'noisy_summary.py'}",
                f"+reward.summary_noise.sd={self.noise}",
                f"+reward.summary_noise.seed={self.seed}",
            ]
        return changes


def planned(seeds: int) -> list[Run]:
    """Every run of both experiments, seed by seed, so that an interrupted comparison is balanced."""
    runs = []
    for seed in range(seeds):
        runs += [Run(method, seed) for method in METHODS]
        runs += [Run(method, seed, noise) for noise in NOISE[1:] for method in NOISY_METHODS]
    return runs


@app.command()
def run(
    quickstart: Quickstart = Path("outputs/quickstart"),
    output_dir: Output = Path("outputs/compare"),
    seeds: Seeds = 3,
    jobs: Annotated[int, typer.Option(help="Trainings at a time; each needs a core and 5 GB.")] = 2,
) -> None:
    """Train and evaluate every run that is not done yet."""
    console = Console(soft_wrap=True)
    world, model = quickstart.resolve() / "world", quickstart.resolve() / "sft" / "model"
    if not model.exists():
        raise SystemExit(f"{model} does not exist; run `slca quickstart --output-dir {quickstart}` first")

    def one(item: Run) -> None:
        directory = output_dir.resolve() / item.name
        stages = [
            rl_stage("rl", item.name, HERE.parent, world, model, directory / "rl", item.seed, item.overrides),
            evaluation(
                "eval", f"{item.name} on held-out rows", HERE.parent, directory / "rl" / "model", world, directory
            ),
        ]
        run_stages(stages, directory, console)

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(one, item) for item in planned(seeds)]:
            future.result()
    report(output_dir, seeds)


@app.command()
def report(output_dir: Output = Path("outputs/compare"), seeds: Seeds = 3) -> None:
    """Print the tables as Markdown and draw the picture, from the runs that are done."""
    done = {
        item: measured(output_dir / item.name) for item in planned(seeds) if (output_dir / item.name / "eval").is_dir()
    }
    done = {item: values for item, values in done.items() if values}
    if not done:
        raise SystemExit(f"no finished run in {output_dir}")
    print(methods_table(done), paired_table(done), noise_table(done), sep="\n\n")
    print(f"\npicture: {draw_noise(done, output_dir / 'noise.png')}")


COLUMNS: dict[str, Callable[[dict, list[dict]], float]] = {
    "Success@0.9": lambda result, steps: result["success@0.9"]["value"],
    "process": lambda result, steps: result["process"]["value"],
    "summary": lambda result, steps: result["summary"]["value"],
    "tool turns": lambda result, steps: result["tool_turns"]["value"],
    "gradient norm sd": lambda result, steps: statistics.stdev(step["actor/grad_norm"] for step in steps),
}
"""What is compared: from the evaluation's metrics and the training's steps. The last is the standard deviation
of the actor's gradient norm over the steps of a run."""


def measured(directory: Path) -> dict[str, float]:
    """The columns of one run, {} while it is not finished."""
    path = directory / "eval" / "results.json"
    if not path.exists():
        return {}
    result = json.loads(path.read_text())["tasks"]["toucan"]
    if not result["complete"]:
        return {}
    steps = list(read_steps(directory / "rl" / "metrics").values())
    return {name: column(result["metrics"], steps) for name, column in COLUMNS.items()}


def methods_table(done: dict[Run, dict[str, float]]) -> str:
    """Mean ± standard deviation over seeds, a row per method, without noise."""
    rows = []
    for method in METHODS:
        values = [found for item, found in done.items() if item.method == method and not item.noise]
        if values:
            rows.append([method, *(mean_sd([v[name] for v in values]) for name in COLUMNS), str(len(values))])
    return markdown(["method", *COLUMNS, "seeds"], rows)


def paired_table(done: dict[Run, dict[str, float]]) -> str:
    """slca - grpo, paired by seed, with the t interval at 95 %, a row per noise level."""
    rows = []
    for noise in NOISE:
        pairs = [
            (done[Run("slca", item.seed, noise)], values)
            for item, values in done.items()
            if item.method == "grpo" and item.noise == noise and Run("slca", item.seed, noise) in done
        ]
        if len(pairs) > 1:
            cells = [difference([s[name] for s, _ in pairs], [g[name] for _, g in pairs]) for name in COLUMNS]
            rows.append([f"{noise:g}", *cells, str(len(pairs))])
    return markdown(["slca - grpo, noise sd", *COLUMNS, "pairs"], rows)


def noise_table(done: dict[Run, dict[str, float]]) -> str:
    """Success@0.9 by method and noise, mean ± standard deviation over seeds."""
    rows = []
    for method in NOISY_METHODS:
        cells = [mean_sd(successes(done, method, noise)) for noise in NOISE]
        rows.append([method, *cells])
    return markdown(["Success@0.9, noise sd", *(f"{noise:g}" for noise in NOISE)], rows)


def successes(done: dict[Run, dict[str, float]], method: str, noise: float) -> list[float]:
    """Success@0.9 of every finished seed of a method at a noise level."""
    return [v["Success@0.9"] for item, v in done.items() if (item.method, item.noise) == (method, noise)]


def draw_noise(done: dict[Run, dict[str, float]], picture: Path) -> Path:
    """`picture`, written: tool success against the noise on the summary reward."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), constrained_layout=True)
    for method, colour in zip(NOISY_METHODS, ("tab:orange", "tab:blue"), strict=True):
        found = [(noise, successes(done, method, noise)) for noise in NOISE]
        found = [(noise, values) for noise, values in found if values]
        centres = [statistics.mean(values) for _, values in found]
        spreads = [statistics.stdev(values) if len(values) > 1 else 0.0 for _, values in found]
        axes.errorbar([n for n, _ in found], centres, spreads, marker="o", capsize=4, color=colour, label=method)
        for noise, values in found:
            axes.plot([noise] * len(values), values, ".", color=colour, alpha=0.4)
    axes.set(xlabel="sd of the noise on the summary reward", ylabel="Success@0.9 on held-out rows", xticks=NOISE)
    axes.set_title("Tool success under a noisy judge (mean ± sd over seeds)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(picture, dpi=120)
    plt.close(figure)
    return picture


def mean_sd(values: Sequence[float]) -> str:
    """Mean ± standard deviation over seeds."""
    if not values:
        return "not run"
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def difference(first: Sequence[float], second: Sequence[float]) -> str:
    """Mean paired difference and its 95 % t interval."""
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    half = stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps)
    centre = statistics.mean(gaps)
    return f"{centre:+.3f} [{centre - half:+.3f}, {centre + half:+.3f}]"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    app()
