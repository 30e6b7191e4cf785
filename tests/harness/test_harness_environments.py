import sys
from pathlib import Path

import pytest
from rich.console import Console

from harness import environments
from harness.environments import python_of, setup
from verl_slca.errors import ConfigError, InfrastructureFault

QUIET = Console(quiet=True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLCA_EVAL_HOME", str(tmp_path / "envs"))
    monkeypatch.delenv("SLCA_TAU2_PYTHON", raising=False)
    return tmp_path / "envs"


def pretend_made(name: str) -> Path:
    python = environments._python(name)
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (environments._folder(name) / "receipt.json").write_text("{}")
    return python


def test_an_environment_that_is_not_there_names_the_command_that_makes_it() -> None:
    with pytest.raises(ConfigError, match="slca-eval setup bfcl"):
        python_of("bfcl-v3")


def test_a_made_environment_is_found_and_not_made_again(home: Path) -> None:
    python = pretend_made("bfcl-v4")
    setup(["bfcl-v4"], QUIET)
    assert python_of("bfcl-v4") == python
    assert not list(home.glob("*.log"))


def test_a_half_made_environment_does_not_count() -> None:
    pretend_made("bfcl-v4")
    (environments._folder("bfcl-v4") / "receipt.json").unlink()
    with pytest.raises(ConfigError):
        python_of("bfcl-v4")


def test_an_environment_of_another_recipe_stands_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made, recipe = pretend_made("bfcl-v4"), environments.ENVIRONMENTS["bfcl-v4"]
    other = environments.Environment("bfcl-eval==1.0", (), "bfcl")
    monkeypatch.setitem(environments.ENVIRONMENTS, "bfcl-v4", other)
    with pytest.raises(ConfigError):
        python_of("bfcl-v4")
    pretend_made("bfcl-v4")
    monkeypatch.setitem(environments.ENVIRONMENTS, "bfcl-v4", recipe)
    assert python_of("bfcl-v4") == made


def test_a_failed_step_says_what_failed_and_where_the_log_is(home: Path) -> None:
    home.mkdir()
    environments._folder("bfcl-v4").write_text("in the way")
    with pytest.raises(InfrastructureFault, match=r"bfcl-v4: exit code 1 of .*venv[\s\S]*bfcl-v4-\w+\.log"):
        setup(["bfcl-v4"], QUIET)
    with pytest.raises(ConfigError):
        python_of("bfcl-v4")


@pytest.mark.parametrize("names", [[], ["bfcl", "bfc"]])
def test_setup_names_what_is_allowed(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="Allowed: bfcl, tau2, bfcl-v4"):
        setup(names, QUIET)


def test_a_users_own_interpreter_is_taken_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLCA_TAU2_PYTHON", sys.executable)
    assert python_of("tau2") == Path(sys.executable)
    monkeypatch.setenv("SLCA_TAU2_PYTHON", "/no/such/python")
    with pytest.raises(ConfigError, match="SLCA_TAU2_PYTHON: /no/such/python"):
        python_of("tau2")
