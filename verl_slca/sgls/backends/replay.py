"""Answers out of a recording: real responses, or those of a model that was asked once."""

from __future__ import annotations

from verl_slca.errors import SimulatorFault
from verl_slca.sgls.backends import BackendRequest, BackendResponse
from verl_slca.sgls.explain import cut_json
from verl_slca.sgls.recording import Recording


class ReplayBackend:
    """A `Backend` that knows what it was told.

    Args:
        recording: the answers.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    async def respond(self, request: BackendRequest) -> BackendResponse:
        """The recorded answer. Raises `SimulatorFault` (``simulator_replay_miss``) when there is none."""
        entry = self._recording.find(request)
        if entry is None:
            called = f"{request.tool.name} {cut_json(request.arguments, 200)}"
            raise SimulatorFault("simulator_replay_miss", f"not in the recording: {called}")
        return BackendResponse(entry.response, entry.is_error, source="replay")
