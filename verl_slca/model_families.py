"""Which family of models a name belongs to: a judge or simulator of the policy's own family favours its style."""

from __future__ import annotations

import json
import re
from pathlib import Path

_NAMES = {
    "qwen": ("qwen", "qwq", "qvq"),
    "llama": ("llama", "codellama", "tinyllama", "openllama", "vicuna", "alpaca"),
    "mistral": ("mistral", "mixtral", "ministral", "codestral", "devstral", "magistral", "pixtral", "zephyr"),
    "gpt": ("gpt", "chatgpt", "o1", "o3", "o4"),
    "gemma": ("gemma", "codegemma", "gemini"),
    "deepseek": ("deepseek",),
    "glm": ("glm", "chatglm"),
    "phi": ("phi",),
    "claude": ("claude",),
    "kimi": ("kimi", "moonlight", "moonshot"),
    "minimax": ("minimax",),
    "granite": ("granite",),
    "command": ("command", "aya"),
    "yi": ("yi",),
    "internlm": ("internlm",),
    "olmo": ("olmo", "tulu"),
    "falcon": ("falcon",),
    "nemotron": ("nemotron",),
    "smollm": ("smollm",),
    "exaone": ("exaone",),
    "hunyuan": ("hunyuan",),
    "ernie": ("ernie",),
}


def families_of(name: str) -> frozenset[str]:
    """The families that a model's name or path speaks of; empty when it says nothing.

    A distilled model has two. A local folder is also asked for its ``config.json``.

    Example:
        >>> sorted(families_of("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")), sorted(families_of("runs/dolphin-3"))
        (['deepseek', 'qwen'], [])
    """
    text = f"{name} {_declared(name)}".lower()
    return frozenset(
        family
        for family, names in _NAMES.items()
        if any(re.search(rf"(?<![a-z0-9]){re.escape(one)}(?![a-z])", text) for one in names)
    )


def family_warning(policy: str, judge: str | None, simulator: str | None) -> str | None:
    """What to warn of before training, None when the models named are of different families.

    Args:
        policy: name or path of the model under training or evaluation.
        judge: name of the judge's model, None when no model judges.
        simulator: name of the model that plays the tools, None when none does.
    """
    models = {"policy": policy, "judge": judge, "simulator": simulator}
    known = {role: families_of(name) for role, name in models.items() if name}
    pairs = [("policy", "judge"), ("policy", "simulator"), ("judge", "simulator")]
    shared = [
        f"{one} ({models[one]}) and {other} ({models[other]}): {', '.join(sorted(known[one] & known[other]))}"
        for one, other in pairs
        if one in known and other in known and known[one] & known[other]
    ]
    if not shared:
        return None
    return (
        f"models of one family: {'; '.join(shared)}. A model tends to favour the style of its own family, which "
        f"raises the reward without raising quality; take a judge and a simulator of other families than the policy's"
    )


def _declared(name: str) -> str:
    """``model_type`` of a local checkpoint; "" where there is none."""
    try:
        declared = json.loads((Path(name) / "config.json").read_text(encoding="utf-8"))
        return str(declared.get("model_type", ""))
    except (OSError, ValueError, AttributeError):
        return ""
