"""BFCL's entries as the package's data files hold them, and what of an entry is sent to a model."""

import copy
import importlib
import json
import os
from typing import Any

from .official import Official

Entry = dict[str, Any]


class Entries:
    """Entries, answers and function documents, each file read when it is first asked for."""

    def __init__(self, official: Official) -> None:
        self._official = official
        self._files: dict[tuple[str, ...], Any] = {}

    def entry(self, id: str) -> Entry:
        """The entry of that id; not to be changed."""
        return self._lines("", category_of(id))[id]

    def truth(self, id: str) -> Any:
        """Its possible answers."""
        return self._lines("possible_answer", category_of(id))[id]["ground_truth"]

    def warm(self, ids: set[str]) -> None:
        """Read what these entries need now, so that a forked child does not have to."""
        for id in ids:
            if "relevance" not in category_of(id):
                self.truth(id)
            for name in self.entry(id).get("involved_classes", ()):
                self._doc(name)
                importlib.import_module(self._official.executor.CLASS_FILE_PATH_MAPPING[name])

    def prepare(self, id: str, mode: str) -> dict[str, Any]:
        """What to send to the model, turn by turn: new messages, and tools that join those of the turns before."""
        official, entry = self._official, copy.deepcopy(self.entry(id))
        functions, held_out = self._functions(entry)
        functions = official.hint(functions, category_of(id))
        if official.hints_held_out:
            held_out = {turn: official.hint(docs, category_of(id)) for turn, docs in held_out.items()}
        turns = [{"messages": messages, "tools": []} for messages in entry["question"]]
        for turn, docs in held_out.items():
            text = official.prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
            if mode == "prompt":
                text = official.prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.format(functions=docs)
            turns[turn]["messages"] = [{"role": "user", "content": text}]
        if mode == "prompt":
            official.system_prompt(turns[0]["messages"], functions, id)
        else:
            for turn, docs in {0: functions, **held_out}.items():
                turns[turn]["tools"] = official.handlers.convert_to_tool(docs, official.types, official.style)
        return {"turns": turns}

    def _functions(self, entry: Entry) -> tuple[list[Entry], dict[int, list[Entry]]]:
        """An entry's function documents, and by turn those that are held out until then."""
        if "function" in entry:
            return entry["function"], {}
        functions = [copy.deepcopy(doc) for name in entry["involved_classes"] for doc in self._doc(name)]
        held_out: dict[int, list[Entry]] = {}
        for turn, names in entry.get("missed_function", {}).items():
            held_out[int(turn)] = [next(doc for doc in functions if doc["name"] == name) for name in names]
            for doc in held_out[int(turn)]:
                functions.remove(doc)
        return functions, held_out

    def _doc(self, name: str) -> list[Entry]:
        path = ("multi_turn_func_doc", self._official.docs[name])
        if path not in self._files:
            self._files[path] = self._read(*path)
        return self._files[path]

    def _lines(self, folder: str, category: str) -> dict[str, Entry]:
        path = (folder, f"{self._official.prefix}_{category}.json")
        if path not in self._files:
            self._files[path] = {entry["id"]: entry for entry in self._read(*path)}
        return self._files[path]

    def _read(self, *path: str) -> list[Entry]:
        with open(os.path.join(self._official.data, *path), encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def category_of(id: str) -> str:
    """The category that an entry's id starts with, by the package's own name."""
    return id.rsplit("_", 1)[0]
