import pytest

from harness.benchmarks.tau2.config import Tau2Config, key_of
from verl_slca.config import parse
from verl_slca.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"trial": 2}, "Did you mean 'trials'"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"max_errors": 0}, "max_errors must be at least 1"),
        ({"sample_seconds": 0}, "sample_seconds must be above 0"),
        ({"user": "human"}, "is not one of"),
        ({"user_url": "localhost:8000"}, "http://"),
        ({"user_url": "http://me:secret@host/v1"}, "keys come from the environment"),
        ({"judge_url": "http://host/v1?key=secret"}, "keys come from the environment"),
        ({"user": "scripted", "user_model": "gpt"}, "have no use"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(values: dict, said: str):
    with pytest.raises(ConfigError, match=said):
        parse(Tau2Config, values, "tau2")


def test_each_role_has_its_own_key_and_falls_back_to_the_models(monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_API_KEY", "SLCA_TAU2_USER_KEY", "SLCA_TAU2_JUDGE_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert key_of("user") == "none"
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    monkeypatch.setenv("SLCA_TAU2_JUDGE_KEY", "judge's")
    assert (key_of("user"), key_of("judge")) == ("general", "judge's")
