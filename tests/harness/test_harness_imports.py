"""What a command does not need is not imported before it starts."""

import subprocess
import sys

import pytest

HEAVY = {"openai", "scipy", "torch", "transformers", "pandas", "pyarrow"}


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("harness.cli", HEAVY),
        ("harness.benchmarks.bfcl.__main__", HEAVY | {"numpy", "jsonschema", "harness.benchmarks.toucan"}),
    ],
)
def test_a_command_starts_without_what_only_some_of_its_work_needs(module: str, unneeded: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert module in loaded
    assert not unneeded & set(loaded)
