"""The README's Python runs as written, and its commands exist."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from typer.testing import CliRunner

from harness.cli import app as slca_eval
from verl_slca.cli import app as slca

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_library_example_runs_and_prefers_the_right_call():
    example = next(block for block in BLOCKS if "mask_rule" in block)
    shown = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(shown):
        exec(compile(example, "README.md", "exec"), names)
    advantages = names["advantages"]
    assert advantages[0, 0] > 0 > advantages[1, 0]
    assert (advantages[:, 2:4] == 0).all()


def test_every_command_the_readme_names_exists():
    commands = set(re.findall(r"^(slca|slca-eval) (\w+)", README, flags=re.MULTILINE))
    assert commands
    for program, command in commands:
        app = {"slca": slca, "slca-eval": slca_eval}[program]
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, f"{program} {command}"
