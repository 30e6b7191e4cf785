"""The quickstart world: tools, questions with gold calls, a tokenizer and a tiny model, from one seed.

Out, under ``--output-dir``: ``sft.parquet`` (verl's multi-turn SFT format), ``rl.parquet`` and ``heldout.parquet``
(the Toucan RL-row schema, so a real Toucan file drops in), ``model/`` (tokenizer and fresh weights).

The SFT demonstrations are noisy on purpose, as scraped ones are: `dialogues.FLAWS` says how often parallel calls
are made one by one, an optional argument is left out, a sibling tool is called, a chain stops early, a needless
call is made, an answer is sloppy. Gold is clean: SFT learns the mixture, RL has to pick the good behaviour from it.
Chained gold calls hold the values the simulator will answer with, since its world key depends on prompt and tools
only. Held-out rows use proper names that training never saw, and some need a tool that training never saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from catalog import ONSETS, Tool, dumps, load_tools, split_names
from dialogues import FLAWS, KINDS, Played, Respond, UnfitError, ask, demonstrate, offer, solve
from tiny import build_model, save, system_text, train_tokenizer

from verl_slca.errors import ConfigError
from verl_slca.rows import row_from_record
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall

SHARE_UNSEEN_TOOL = 0.15


@dataclass(frozen=True)
class Sizes:
    """How much of everything; the defaults are what fifteen minutes on two cores have room for."""

    dialogues: int = 2800
    rl: int = 768
    held_out: int = 240


class Builder:
    """Makes rows of the world: what is offered, what is asked, and what the simulator answers.

    Args:
        tools: the tools to draw from.
        names: the proper names to draw from.
        seed: of every choice made here.
        runner: runs the simulator's coroutines.
    """

    def __init__(self, tools: Sequence[Tool], names: Sequence[str], seed: str, runner: asyncio.Runner) -> None:
        self.tools, self.names = list(tools), list(names)
        self.rng = random.Random(seed)
        self.simulator = Simulator(SglsConfig())
        self.runner = runner

    def demonstration(self, exchanges: int = 4) -> list[dict[str, str]]:
        """One SFT conversation over one list of tools, flaws included."""
        offered = offer(self.tools, self.rng)
        messages = [_system(offered)]
        past: Played | None = None
        while exchanges > 0:
            try:
                question = ask(self.rng.choices(list(KINDS), KINDS.values())[0], offered, self.names, self.rng, past)
                respond = self._responses([tool.schema for tool in offered], f"demonstration {self.rng.random()}")
                past = demonstrate(question, offered, self.names, respond, self.rng, FLAWS)
            except UnfitError:
                continue
            messages += [{"role": "user", "content": question.text}, *past.messages]
            exchanges -= 1
        return messages

    def row(self, kind: str, needs: Tool | None = None) -> dict[str, Any]:
        """One RL row of that kind; with `needs`, one whose gold calls that tool."""
        while True:
            with contextlib.suppress(UnfitError):
                return self._row(kind, needs)

    def _row(self, kind: str, needs: Tool | None) -> dict[str, Any]:
        """The next row that comes to mind. Raises UnfitError when it cannot be asked, or is not what is needed."""
        offered = offer(self.tools, self.rng)
        messages = [_system(offered)]
        past: Played | None = None
        if kind == "follow" or (kind == "none" and self.rng.random() < 0.5):
            opening = ask(self.rng.choice(["one", "chain"]), offered, self.names, self.rng, None)
            messages.append({"role": "user", "content": opening.text})
            past = solve(opening, self._episode(messages, offered))
            messages += past.messages
        question = ask(kind, offered, self.names, self.rng, past)
        if needs and needs not in [wish.tool for step in question.steps for wish in step]:
            raise UnfitError(f"{needs.name} is not asked for")
        messages.append({"role": "user", "content": question.text})
        gold = solve(question, self._episode(messages, offered)).steps
        return _record(messages, offered, kind, gold)

    def _episode(self, messages: Sequence[dict[str, str]], offered: Sequence[Tool]) -> Respond:
        """The simulator as a rollout of this prompt will meet it: the same world key, nothing called yet."""
        row = row_from_record(_record(messages, offered, "", []), where="quickstart world")
        return self._responses(row.tools, row.key)

    def _responses(self, schemas: Sequence[dict[str, Any]], world: str) -> Respond:
        episode = self.simulator.episode(schemas, world)
        return lambda calls: [result.content for result in self.runner.run(episode.respond(calls))]


def _system(offered: Sequence[Tool]) -> dict[str, str]:
    return {"role": "system", "content": system_text(dumps(tool.shown) for tool in offered)}


def _record(
    messages: Sequence[dict[str, str]], offered: Sequence[Tool], kind: str, gold: Sequence[Sequence[ToolCall]]
) -> dict[str, Any]:
    """One row in the Toucan RL schema."""
    schemas = dumps([tool.schema for tool in offered])
    asked = sum(m["role"] == "user" and not m["content"].startswith("<tool_response>") for m in messages)
    calls = [[{"name": call.name, "arguments": call.arguments} for call in step] for step in gold]
    return {
        "prompt": list(messages),
        "data_source": "toucan_toolcall",
        "tools": schemas,
        "extra_info": {"need_tools_kwargs": False, "original_turn_index": asked - 1},
        "reward_model": {
            "style": "rule",
            "ground_truth": {
                "question_content": messages[-1]["content"],
                "allowed_tools": [tool.name for tool in offered],
                "tool_schemas": schemas,
                "gold_tool_calls": dumps(calls),
                "subset_name": kind,
            },
        },
    }


def build(output_dir: Path, seed: int, sizes: Sizes) -> None:
    """Every file of the world; the same seed gives the same bytes."""
    output_dir.mkdir(parents=True, exist_ok=True)
    tools = load_tools()
    seen = [tool for tool in tools if not tool.unseen]
    unseen = [tool for tool in tools if tool.unseen]
    names, fresh_names = split_names(random.Random(f"{seed}/names"))

    kinds = random.Random(f"{seed}/kinds")

    def kind() -> str:
        return kinds.choices(list(KINDS), KINDS.values())[0]

    with asyncio.Runner() as runner:
        sft = Builder(seen, names, f"{seed}/sft", runner)
        conversations = [sft.demonstration() for _ in range(sizes.dialogues)]
        rl = Builder(seen, names, f"{seed}/rl", runner)
        rl_rows = [rl.row(kind()) for _ in range(sizes.rl)]
        new_tools = Builder(tools, fresh_names, f"{seed}/new tools", runner)
        needed = [kinds.choice(unseen) for _ in range(round(sizes.held_out * SHARE_UNSEEN_TOOL))]
        held_rows = [new_tools.row("one", needs=tool) for tool in needed]
        held = Builder(seen, fresh_names, f"{seed}/heldout", runner)
        held_rows += [held.row(kind()) for _ in range(sizes.held_out - len(held_rows))]
    for name, rows in (("sft", [{"messages": m} for m in conversations]), ("rl", rl_rows), ("heldout", held_rows)):
        pq.write_table(pa.Table.from_pylist(rows), output_dir / f"{name}.parquet")

    texts = [text for messages in conversations for message in messages for text in message.values()]
    tokenizer = train_tokenizer(texts + names + [dumps(tool.shown) for tool in tools], ONSETS)
    save(output_dir / "model", tokenizer, build_model(tokenizer, seed))


def ensure(output_dir: Path, seed: int, sizes: Sizes) -> None:
    """The world in `output_dir`, built unless it is there already.

    Raises:
        ConfigError: the folder holds another world.
    """
    stamp = output_dir / "world.json"
    wanted = {"seed": seed, **asdict(sizes)}
    if stamp.exists():
        found = json.loads(stamp.read_text(encoding="utf-8"))
        if found != wanted:
            raise ConfigError(f"{output_dir} holds the world {found}, not {wanted}; use another folder or remove it")
        print(f"world: {output_dir} is complete")
        return
    build(output_dir, seed, sizes)
    stamp.write_text(json.dumps(wanted), encoding="utf-8")
    print(f"world: {sizes.dialogues} demonstrations, {sizes.rl} RL and {sizes.held_out} held-out rows in {output_dir}")


def main(
    output_dir: Annotated[Path, typer.Option(help="Folder to write to.")],
    seed: Annotated[int, typer.Option(help="Of every choice made here.")] = 0,
) -> None:
    """Build the quickstart world; a folder that is complete is left alone."""
    try:
        ensure(output_dir, seed, Sizes())
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    typer.run(main)
