"""Settings: every key and type is checked, and the message says what is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from verl_slca.config import parse, read_yaml
from verl_slca.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    size: int = 3

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")


@dataclass(frozen=True)
class Settings:
    mode: Literal["a", "b"] = "a"
    weight: float = 1.0
    limit: int | None = None
    names: tuple[str, ...] = ()
    inner: Inner = field(default_factory=Inner)


def test_nothing_given_is_all_defaults():
    assert parse(Settings, None, "x") == Settings()


def test_values_nested_values_and_lists_arrive_typed():
    given = {"mode": "b", "weight": 2, "limit": 5, "names": ["p", "q"], "inner": {"size": 4}}
    assert parse(Settings, given, "x") == Settings("b", 2.0, 5, ("p", "q"), Inner(4))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"wieght": 1.0}, r"x\.wieght: unknown key.*Did you mean 'weight'"),
        ({"mode": "c"}, r"x\.mode: 'c' is not one of 'a', 'b'"),
        ({"weight": "1"}, r"x\.weight: expected float, got str '1'"),
        ({"weight": True}, r"x\.weight: expected float, got bool True"),
        ({"limit": 1.5}, r"x\.limit: expected int, got float 1.5"),
        ({"names": "p"}, r"x\.names: expected a list, got 'p'"),
        ({"inner": {"size": 0}}, r"x\.inner: size must be at least 1, got 0"),
        ({"inner": {"sise": 1}}, r"x\.inner\.sise: unknown key"),
        ([1], r"x: expected a mapping, got list"),
    ],
)
def test_a_bad_value_is_refused_by_key_value_and_what_is_allowed(given, message):
    with pytest.raises(ConfigError, match=message):
        parse(Settings, given, "x")


def test_a_file_of_settings_is_a_mapping(tmp_path: Path):
    file = tmp_path / "settings.yaml"
    file.write_text("a: {b: 1}\n")
    assert read_yaml(file) == {"a": {"b": 1}}
    file.write_text("# nothing yet\n")
    assert read_yaml(file) == {}


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"- a\n", "must hold a mapping, got list"), (b"a: [\n", "cannot be read"), (b"\xff\xfe\xfa", "cannot be read")],
)
def test_a_file_that_holds_no_settings_is_refused_by_name(tmp_path: Path, content: bytes, problem: str):
    file = tmp_path / "settings.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"settings\.yaml {problem}"):
        read_yaml(file)
