"""A socket on which each connection is answered by a process of its own, forked with tau2 loaded."""

import ctypes
import gc
import json
import os
import resource
import signal
import socketserver
import sys
from pathlib import Path
from typing import Any

from .installed import tasks_of


def serve(path: str, domains: list[str]) -> None:
    """Say that it is ready, as a line on stdout, then answer until it is killed."""
    _end_with_parent()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the package prints; only the line below goes to stdout
    import litellm

    from . import api, simulate

    getattr(litellm, "encoding", None)  # a tokenizer that litellm loads with its first request, in each process anew
    jobs = {"simulate": simulate.simulate, "evaluate": simulate.evaluate}
    entries = {domain: {e["id"]: e for e in tasks_of(Path(api.DATA_DIR), domain)} for domain in domains}

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            _end_with_parent()
            job = json.loads(self.rfile.readline())
            signal.setitimer(signal.ITIMER_REAL, job["seconds"])  # SIGALRM, unhandled, ends the process
            answer: dict[str, Any] = jobs[job["op"]](job, entries[job["domain"]][job["task"]])
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
        max_children = 10_000  # how many there are at a time is up to who asks
        request_queue_size = 1024
        block_on_close = False

    with Server(path, Handler) as server:
        gc.collect()
        gc.freeze()
        print(json.dumps({"ready": str(api.DATA_DIR)}), file=out, flush=True)
        server.serve_forever(poll_interval=0.5)


def _end_with_parent() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
