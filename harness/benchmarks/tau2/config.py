"""The section ``tau2`` of the configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from verl_slca.endpoint import holds_secret

SCRIPTED_USER = "scripted user: not comparable with published numbers"


@dataclass(frozen=True, slots=True)
class Tau2Config:
    """How tau2-bench is played.

    Keys come from the environment alone: the model's from OPENAI_API_KEY, the user's from SLCA_TAU2_USER_KEY and the
    judge's from SLCA_TAU2_JUDGE_KEY; both fall back to OPENAI_API_KEY.

    Attributes:
        user: ``"llm"`` is the official user simulator; ``"scripted"`` needs no model, and its numbers do not compare.
        user_model: the simulator's model, as its server names it.
        user_url: base URL of an OpenAI-compatible server, ends in the version.
        judge_model: who judges assertions in natural language, where tasks have them (retail of v1.x).
        judge_url: its server.
        trials: simulations of each task; a published number takes four or more.
        max_steps: messages after which a simulation ends.
        max_errors: failed tool calls after which it ends.
        sample_seconds: longest that one simulation may take.
    """

    user: Literal["llm", "scripted"] = "llm"
    user_model: str = ""
    user_url: str = ""
    judge_model: str = ""
    judge_url: str = ""
    trials: int = 1
    max_steps: int = 200
    max_errors: int = 10
    sample_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("trials", "max_steps", "max_errors"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.sample_seconds > 0:
            raise ValueError(f"sample_seconds must be above 0, got {self.sample_seconds}")
        for name in ("user_url", "judge_url"):
            _check_url(name, getattr(self, name))
        if self.user == "scripted" and (self.user_model or self.user_url):
            raise ValueError("user_model and user_url have no use with user: scripted")


def key_of(role: Literal["user", "judge"]) -> str:
    """The key for that role's server."""
    return os.environ.get(f"SLCA_TAU2_{role.upper()}_KEY") or os.environ.get("OPENAI_API_KEY") or "none"


def _check_url(name: str, url: str) -> None:
    if url and urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{name} must start with http:// or https://, got {url!r}")
    if holds_secret(url):
        raise ValueError(f"{name} has a key or password in it; keys come from the environment")
