"""The tools of the quickstart world as function schemas, and values for their arguments.

In: `tools.yaml`. Out: `Tool` objects for `dialogues.py`, which asks for them and answers with them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ONSETS = [
    "Bar",
    "Cor",
    "Dan",
    "Fel",
    "Gor",
    "Hal",
    "Jen",
    "Kal",
    "Lor",
    "Mar",
    "Nor",
    "Pel",
    "Ros",
    "Sel",
    "Tor",
    "Var",
    "Wen",
    "Zan",
    "Bel",
    "Cas",
    "Dor",
    "Fyr",
    "Gal",
    "Hol",
]
_ENDINGS = [
    "bin",
    "dek",
    "fan",
    "gos",
    "hum",
    "jor",
    "kez",
    "lin",
    "mok",
    "nus",
    "pra",
    "ril",
    "sta",
    "tuv",
    "vik",
    "wen",
    "yol",
    "zet",
    "bur",
    "dax",
    "fim",
    "gar",
    "hep",
    "lod",
]


@dataclass(frozen=True)
class Tool:
    """One tool, and how people ask for it and report it.

    Attributes:
        name: ``server-tool``.
        args: JSON Schema of each required argument.
        optional: JSON Schema of each optional argument.
        say: words that ask for each optional argument.
        returns: JSON Schema of each response field.
        description: one line for the model.
        do: ways to ask for it, as `str.format` templates over the required arguments.
        then: how to ask for it when `link` is known from an earlier response; None when it never is.
        tell: the answer that states every fact of a response.
        unseen: True when only held-out rows may use it.
    """

    name: str
    description: str
    args: dict[str, Any]
    optional: dict[str, Any]
    say: dict[str, str]
    returns: dict[str, Any]
    do: tuple[str, ...]
    then: str | None
    tell: str
    unseen: bool

    @property
    def server(self) -> str:
        """The part of the name before the hyphen."""
        return self.name.split("-")[0]

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The function schema, response included: what the simulator gets."""
        shown = self.shown
        response = {"type": "object", "properties": self.returns, "required": list(self.returns)}
        return {**shown, "function": {**shown["function"], "response": response}}

    @cached_property
    def shown(self) -> dict[str, Any]:
        """The function schema without the response: what the prompt shows."""
        parameters = {
            "type": "object",
            "properties": {**self.args, **self.optional},
            "required": list(self.args),
            "additionalProperties": False,
        }
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def link(self, producer: Tool) -> str | None:
        """The argument of this tool that a response of `producer` holds, None when they do not chain."""
        if producer.server != self.server or self.then is None:
            return None
        return next((name for name in self.args if name in producer.returns), None)

    def sample(self, rng: random.Random, names: Sequence[str], share_optional: float) -> dict[str, Any]:
        """Arguments that satisfy the schema, distinct names, each optional one with that probability."""
        fresh = iter(rng.sample(list(names), len(self.args)))
        values = {key: _value(schema, rng, fresh) for key, schema in self.args.items()}
        for key, schema in self.optional.items():
            if rng.random() < share_optional:
                values[key] = _value(schema, rng, fresh)
        return values

    def clause(self, args: dict[str, Any], rng: random.Random, linked: bool = False) -> str:
        """Words that ask for exactly `args`; `linked` leaves one argument to what was said before."""
        template = self.then if linked and self.then else rng.choice(self.do)
        return template.format(**args) + "".join(self.say[key].format(**args) for key in self.optional if key in args)


def load_tools() -> list[Tool]:
    """Every tool of the world, in the order of `tools.yaml`."""
    text = Path(__file__).with_name("tools.yaml").read_text(encoding="utf-8")
    return [_tool(name, entry) for name, entry in yaml.safe_load(text).items()]


def split_names(rng: random.Random, share_held_out: float = 0.2) -> tuple[list[str], list[str]]:
    """Proper names to train on and names held out; both are made of the same syllables.

    A name the model never saw is then still a new order of pieces that it can copy.
    """
    names = [onset + ending for onset in ONSETS for ending in _ENDINGS if onset.lower() != ending]
    rng.shuffle(names)
    cut = int(len(names) * share_held_out)
    return names[cut:], names[:cut]


def dumps(value: Any) -> str:
    """`value` as the one JSON text used everywhere in the world."""
    return json.dumps(value, ensure_ascii=False)


def _tool(name: str, entry: dict[str, Any]) -> Tool:
    optional = entry.get("optional", {})
    return Tool(
        name=name,
        description=entry["description"],
        args={key: _typed(schema) for key, schema in entry["args"].items()},
        optional={key: _typed({k: v for k, v in schema.items() if k != "say"}) for key, schema in optional.items()},
        say={key: schema["say"] for key, schema in optional.items()},
        returns={key: _typed(schema) for key, schema in entry["returns"].items()},
        do=tuple(entry["do"]),
        then=entry.get("then"),
        tell=entry["tell"],
        unseen=entry.get("unseen", False),
    )


def _typed(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "string", **schema} if "enum" in schema else schema


def _value(schema: dict[str, Any], rng: random.Random, fresh: Any) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "integer":
        return rng.randint(schema["minimum"], schema["maximum"])
    if schema["type"] == "boolean":
        return True
    return next(fresh)
