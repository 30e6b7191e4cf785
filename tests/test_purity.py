"""The core needs neither verl nor ray nor vllm."""

import subprocess
import sys
from pathlib import Path

import verl_slca

ROOT = Path(verl_slca.__file__).parent

IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    found = {"verl", "ray", "vllm"} & set(sys.modules)
    if found:
        sys.exit(f"importing {name} imports {', '.join(sorted(found))}")
"""


def core_modules():
    paths = sorted(ROOT.rglob("*.py"))
    parts = [path.relative_to(ROOT.parent).with_suffix("").parts for path in paths]
    return [".".join(p for p in part if p != "__init__") for part in parts if "adapters" not in part]


def test_the_list_of_modules_is_not_empty():
    assert {"verl_slca", "verl_slca.advantages", "verl_slca.segments"} <= set(core_modules())


def test_modules_outside_adapters_import_neither_verl_nor_ray_nor_vllm():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *core_modules()], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_rewards_travel_on_tokens_without_verl():
    module = "verl_slca.adapters.token_rewards"
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, module], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
