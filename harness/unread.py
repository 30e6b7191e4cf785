"""Ends a run early in which nothing that the model says can be read as a call.

Most often the server's parser or template does not fit the model, and hours later every score would be a 0 that
says nothing about it. Whether to end (`stop_unread`, a setting of each task) changes no score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_slca.errors import ConfigError

ENOUGH_UNREAD = 20
SETTING = "stop_unread"


class Unread:
    """Counts the answers of one task until one holds a call.

    Args:
        task: its name, which is its section of the configuration, too.
        reads: where calls are read from.
        advice: what else may help, behind the server's parser.
        stop: `stop_unread`; False counts nothing.
    """

    def __init__(self, task: str, reads: str, advice: str = "", stop: bool = True) -> None:
        self._task, self._reads, self._advice = task, reads, advice
        self._count: int | None = 0 if stop else None

    def look(self, called: bool, last: str) -> None:
        """Count the answer to one more sample that calls for a call.

        Args:
            called: it holds a call that can be read.
            last: the end of what the model said, for the message.

        Raises:
            ConfigError: it is the last of `ENOUGH_UNREAD` without one, and none before had one.
        """
        if self._count is None:
            return
        self._count = None if called else self._count + 1
        if self._count is not None and self._count >= ENOUGH_UNREAD:
            raise ConfigError(
                f"{self._task}: none of the first {self._count} answers holds a call that can be read. Calls are read "
                f"from {self._reads}. The last answer: {last[:400]}\n"
                "Start the server with the tool parser and chat template of its model (vLLM: "
                f"--enable-auto-tool-choice --tool-call-parser NAME){self._advice}. If the model just makes no calls, "
                f"set {self._task}.{SETTING} to false in --config, and go on in the same folder."
            )


def without_stopping(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` by section without `stop_unread`: what has to be the same when a run goes on."""
    kept = {}
    for name, section in settings.items():
        if isinstance(section, Mapping) and SETTING in section:
            section = {key: value for key, value in section.items() if key != SETTING}
        if section:
            kept[name] = section
    return kept
