"""The jobs: official verdicts on official results, and tool calls played by the official executor."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from .entries import Entries, Entry, category_of
from .official import DOTS, UNDERSCORES, Official

LONGEST_ERROR = 4000


class Scorer:
    """Does one job at a time; what a model wrote is executed here."""

    def __init__(self, official: Official) -> None:
        self._official = official
        self.entries = Entries(official)

    @staticmethod
    def is_harmless(job: dict[str, Any]) -> bool:
        """True when a job executes nothing that a model wrote: JSON is read, and compared value by value."""
        category = category_of(job["id"])
        plain = job["op"] == "judge" and job["mode"] == "fc" and not category.endswith(("java", "javascript"))
        return job["op"] == "prepare" or (plain and not category.startswith("multi_turn"))

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        """The answer to a job."""
        jobs: dict[str, Callable[..., dict[str, Any]]] = {
            "prepare": self.entries.prepare,
            "execute": self._execute,
            "judge": self._judge,
        }
        return jobs[job["op"]](**{key: value for key, value in job.items() if key != "op"})

    def _judge(self, id: str, mode: str, result: Any) -> dict[str, Any]:
        category = category_of(id)
        if category.startswith("multi_turn"):
            return self._judge_multi_turn(self.entries.entry(id), mode, result)
        language = {"java": "JAVA", "javascript": "JAVASCRIPT"}.get(category.removeprefix("simple_"), "PYTHON")
        failure, decoded = "", None
        try:
            decoded = self._decoded(result, mode, getattr(self._official.formats, language))
        except Exception as error:
            failure = f"Failed to decode: {type(error).__name__}: {error}"
        # Of the wrong shape is empty as well, to the package.
        calls = not failure and not self._official.utils.is_empty_output(decoded)
        if "irrelevance" in category:
            return _verdict(not calls, calls, "irrelevance_error:decoder_success", "a call, where none can help")
        if "relevance" in category:
            return _verdict(calls, calls, "relevance_error:decoder_failed", failure or "no call, where one can help")
        if failure:
            return _verdict(False, False, "ast_decoder:decoder_failed", failure)
        if not self._official.utils.is_function_calling_format_output(decoded):
            return _verdict(False, False, "ast_decoder:decoder_wrong_output_format", "not in the specified format")
        functions, truth = self.entries.entry(id)["function"], self.entries.truth(id)
        names = UNDERSCORES if mode == "fc" else DOTS
        spoken = getattr(self._official.languages, language)
        try:
            checked = self._official.ast_checker(functions, decoded, truth, spoken, category, names)
        except Exception as error:
            return _raised(error, calls)
        return _verdict(checked["valid"], calls, checked.get("error_type", ""), *checked.get("error", ()))

    def _decoded(self, result: Any, mode: str, form: Any) -> Any:
        if mode == "prompt":
            return self._official.handlers.default_decode_ast_prompting(result, form)
        if not isinstance(result, list):
            raise ValueError("no call, but text")
        return [{name: json.loads(arguments)} for call in result for name, arguments in [next(iter(call.items()))]]

    def _judge_multi_turn(self, entry: Entry, mode: str, result: Any) -> dict[str, Any]:
        truth = self.entries.truth(entry["id"])
        if not isinstance(result, list):
            return _verdict(False, False, "multi_turn:inference_error", "not a list of turns")
        decoded = [[calls for step in turn if (calls := self._calls(step, mode)[0])] for turn in result]
        called = any(decoded)
        if len(result) != len(truth):
            message = f"stopped in turn {len(result)} of {len(truth)}, after too many steps"
            return _verdict(False, called, "multi_turn:force_terminated", message)
        with self._fresh_name() as name:
            try:
                checked = self._official.multi_turn_checker(decoded, truth, entry, category_of(entry["id"]), name)
            except Exception as error:
                return _raised(error, called)
        said = (checked.get("error_message", ""), checked.get("details", ""))
        return _verdict(checked["valid"], called, checked.get("error_type", ""), *filter(None, said))

    def _execute(self, id: str, mode: str, steps: list[Any]) -> dict[str, Any]:
        """What the last step's calls return, in a world where those of the steps before were played first."""
        last, why = self._calls(steps[-1], mode)
        if not last:
            return {"ended": why}
        entry = self.entries.entry(id)
        with self._fresh_name() as name:

            def play(calls: list[str]) -> list[str]:
                return self._official.executor.execute_multi_turn_func_call(
                    func_call_list=calls,
                    initial_config=entry["initial_config"],
                    involved_classes=entry["involved_classes"],
                    model_name=name,
                    test_entry_id=id,
                    long_context="long_context" in id,
                )[0]

            play([call for step in steps[:-1] for call in self._calls(step, mode)[0]])
            results = play(last)
        decoded = {"model_responses_decoded": last}
        message = self._official.handlers.format_execution_results_prompting({}, results, decoded)
        return {"results": results, "message": message}

    def _calls(self, step: Any, mode: str) -> tuple[list[str], str]:
        """A step's calls as the executor wants them; none, and why, where it has none or cannot be decoded."""
        handlers = self._official.handlers
        decode = handlers.default_decode_execute_prompting if mode == "prompt" else handlers.convert_to_function_call
        try:
            calls = decode(step)
        except Exception as error:
            return [], f"{type(error).__name__}: {error}"[:LONGEST_ERROR]
        return ([], "no call") if self._official.executor.is_empty_execute_response(calls) else (calls, "")

    @contextlib.contextmanager
    def _fresh_name(self) -> Iterator[str]:
        """A model name that is a Python identifier and was never used; its worlds are gone afterwards.

        The executor finds a world by the name of a variable in its module: where the name cannot be one, every
        call fails alike for the model and for the gold, and anything passes.
        """
        name = f"episode{uuid.uuid4().hex}"
        try:
            yield name
        finally:
            kept = vars(self._official.executor)
            for variable in [variable for variable in kept if name in variable]:
                del kept[variable]


def _verdict(valid: bool, calls: bool, error_type: str, *errors: object) -> dict[str, Any]:
    error = "" if valid else "; ".join(map(str, errors))[:LONGEST_ERROR]
    return {"valid": bool(valid), "calls": bool(calls), "error_type": "" if valid else error_type, "error": error}


def _raised(error: Exception, calls: bool) -> dict[str, Any]:
    # The checker passes every gold answer: what it cannot look at is the model's doing.
    return _verdict(False, calls, "checker_raised", f"{type(error).__name__}: {error}")
