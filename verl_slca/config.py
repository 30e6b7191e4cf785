"""Typed settings: one frozen dataclass per subsystem, unknown keys refused, defaults the paper's.

A subsystem's dataclass lives beside its code; `parse` is how all of them are read, whether the mapping
comes from verl's hydra config or from a YAML file (`read_yaml`).
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from verl_slca.errors import ConfigError

T = TypeVar("T")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file of settings; {} where it is empty.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--config: {path} cannot be read: {error}") from error
    if values is not None and not isinstance(values, dict):
        raise ConfigError(f"--config: {path} must hold a mapping, got {type(values).__name__}")
    return values or {}


def parse(cls: type[T], values: Mapping[str, Any] | None, where: str) -> T:
    """`cls` built from `values`, every key and type checked, nested dataclasses included.

    Args:
        cls: a dataclass; its `__post_init__` checks ranges and raises `ValueError`.
        values: the user's mapping; None means all defaults.
        where: the config key the user wrote, for messages, e.g. ``"algorithm.slca"``.

    Raises:
        ConfigError: an unknown key (with the nearest known one), a wrong type, a value out of range.
    """
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: expected a mapping, got {type(values).__name__} {values!r}")
    hints = typing.get_type_hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"{where}.{key}: unknown key. Allowed: {', '.join(sorted(known))}.{hint}")
        checked[key] = _coerced(hints[key], value, f"{where}.{key}")
    try:
        return cls(**checked)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _coerced(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return parse(typing.cast(type, hint), value, where)
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        if value not in typing.get_args(hint):
            raise ConfigError(f"{where}: {value!r} is not one of {', '.join(map(repr, typing.get_args(hint)))}")
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in typing.get_args(hint):
            return None
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _coerced(inner[0], value, where) if len(inner) == 1 else value
    if origin is tuple:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise ConfigError(f"{where}: expected a list, got {value!r}")
        return tuple(_coerced(typing.get_args(hint)[0], item, where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float, str, bool) and type(value) is not hint:
        raise ConfigError(f"{where}: expected {hint.__name__}, got {type(value).__name__} {value!r}")
    return value
