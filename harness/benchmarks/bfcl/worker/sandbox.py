"""Jobs done by forked children, limited in time and memory, and gone with whatever a model's code did to them.

Not a wall against malice: a child may still read files and use the network.
"""

import contextlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

Job = dict[str, Any]
Answer = dict[str, Any]

LONGEST_ANSWER = 1 << 24


def answer(do: Callable[[Job], Answer], job: Job) -> Answer:
    """The answer to one job, done right here; what it raises is the answer."""
    try:
        return do(job)
    except (MemoryError, RecursionError) as error:
        return {"killed": f"needed too much memory or too deep a stack ({type(error).__name__})"}
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"[:4000]}


def answers(do: Callable[[Job], Answer], jobs: Sequence[Job], seconds: float, megabytes: int) -> list[Answer]:
    """One answer per job, in order; a job that kills its child costs its own answer only.

    Args:
        do: the answer to a job; what it raises is that job's answer.
        jobs: done one after another.
        seconds: longest that one may take.
        megabytes: most memory that a child may map.
    """
    done: list[Answer] = []
    while len(done) < len(jobs):
        done += _from_child(do, jobs[len(done) :], seconds, megabytes)
    return done


def _from_child(do: Callable[[Job], Answer], jobs: Sequence[Job], seconds: float, megabytes: int) -> list[Answer]:
    """The answers to the first jobs, up to and including the one that the child did not survive."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(do, jobs, writer, megabytes)
    os.close(writer)
    lines: list[bytes] = []
    rest, why = b"", ""
    deadline = time.monotonic() + seconds
    while len(lines) < len(jobs):
        if not select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            why = f"took longer than {seconds:g} s"
            break
        data = os.read(reader, 1 << 16)
        if not data or len(rest) > LONGEST_ANSWER:
            why = "gave an answer that is too long" if data else "ended its process"
            break
        *whole, rest = (rest + data).split(b"\n")
        if whole:
            lines += whole
            deadline = time.monotonic() + seconds
    os.close(reader)
    for kill in (os.killpg, os.kill):  # the group once the child leads one, and the child in any case
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return [json.loads(line) for line in lines] + ([{"killed": why}] if why else [])


def _be_child(do: Callable[[Job], Answer], jobs: Sequence[Job], writer: int, megabytes: int) -> NoReturn:
    try:
        os.setsid()
        os.dup2(0, 2)
        size = megabytes << 20
        for limit, most in ((resource.RLIMIT_AS, size), (resource.RLIMIT_FSIZE, size), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(limit, (most, most))
        for job in jobs:
            line = json.dumps(answer(do, job)).encode() + b"\n"
            while line:
                line = line[os.write(writer, line) :]
    finally:
        os._exit(1)
