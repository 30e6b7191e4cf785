"""A server for the model under evaluation: the one at a URL, or one started for a checkpoint and stopped after.

On a machine with a GPU a Hugging Face folder is served by vLLM, elsewhere by `harness.cpu_server`. A server
of ours listens on loopback only, logs to the run folder, and ends with this process, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.checkpoint import check_tokenizer, fingerprint, open_checkpoint, template_of
from harness.policy import server_fault
from harness.records import log_tail
from verl_slca.endpoint import connect, holds_secret
from verl_slca.errors import ConfigError, PolicyServerFault

logger = logging.getLogger(__name__)

START_SECONDS = {"cpu": 120.0, "vllm": 1200.0}
"""How long a server may take until it is ready."""

_STOP_SECONDS = 20.0

TOOL_PARSERS: dict[str, str] = {
    "qwen2": "hermes",
    "qwen2_moe": "hermes",
    "qwen3": "hermes",
    "qwen3_moe": "hermes",
    "llama": "llama3_json",
    "llama4": "llama4_pythonic",
    "mistral": "mistral",
    "granite": "granite",
    "deepseek_v3": "deepseek_v3",
    "glm4_moe": "glm45",
    "gpt_oss": "openai",
    "phi4mm": "phi4_mini_json",
}
"""vLLM's tool parser for a checkpoint's ``model_type`` (vLLM 0.24, docs/features/tool_calling)."""

REASONING_PARSERS: dict[str, str] = {
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3",
    "glm4_moe": "glm45",
    "gpt_oss": "openai_gptoss",
}
"""vLLM's reasoning parser for a ``model_type`` (vLLM 0.24, docs/features/reasoning_outputs), of families that think
unless told not to. Granite and DeepSeek-V3.1 think only when asked, and R1 shares its type with V3.1."""

_OFF = "none"


@dataclass(frozen=True, slots=True)
class ServingConfig:
    """How vLLM serves a folder; the section ``serving`` of the configuration.

    Attributes:
        tool_parser: its ``--tool-call-parser``; None goes by the checkpoint, ``"none"`` is no parser.
        reasoning_parser: its ``--reasoning-parser``, likewise. A parser on a model that was trained not to think
            takes the whole answer for thoughts (vllm-project/vllm#53284): switch it off then.
        vllm_args: more arguments, such as ``["--tensor-parallel-size", "2"]``.
    """

    tool_parser: str | None = None
    reasoning_parser: str | None = None
    vllm_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """What ``--model`` names.

    Attributes:
        location: the URL, or the absolute path of the folder.
        name: what the server calls the model.
        kind: who serves it.
        fingerprint: hash of the checkpoint's files, "" for a URL, which cannot be looked into.
        shards: the folder's files have to be merged first.
    """

    location: str
    name: str
    kind: Literal["url", "cpu", "vllm"]
    fingerprint: str = ""
    shards: bool = False


def find(model: str, name: str | None, timeout: float) -> Target:
    """What `model` is, checked before anything starts.

    Args:
        model: a URL that ends in the API's version (``http://host:8000/v1``), or a Hugging Face folder.
        name: the model's name at the server; None takes the only one it lists, or the folder's name.
        timeout: seconds that a URL's server has to list its models.

    Raises:
        ConfigError: neither a URL nor a folder; a name the server does not know; a key it does not take.
        DataError: a folder that is no servable checkpoint.
        PolicyServerFault: the server at the URL cannot be asked.
    """
    if model.startswith(("http://", "https://")):
        return Target(model.rstrip("/"), _name_at(model.rstrip("/"), name, timeout), "url")
    folder = Path(model).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(f"--model: {model!r} is neither a folder nor a URL that starts with http:// or https://")
    found = open_checkpoint(folder)
    check_tokenizer(found.folder)
    kind: Literal["cpu", "vllm"] = "vllm" if _gpu_with_vllm() else "cpu"
    return Target(str(found.folder), name or found.name, kind, fingerprint(found.folder), found.shards)


@contextlib.contextmanager
def served(target: Target, log: Path, concurrency: int, seed: int, config: ServingConfig) -> Iterator[str]:
    """The base URL of a ready server for `target`; a server started here is stopped on leaving.

    Args:
        target: from `find`, merged if it has to be.
        log: file that a started server's output is appended to.
        concurrency: requests it will be sent at a time.
        seed: given to a started server.
        config: how vLLM serves.

    Raises:
        PolicyServerFault: the server ended or was not ready in time; its last lines are in the message.
    """
    if target.kind == "url":
        yield target.location
        return
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        port = listener.getsockname()[1]
        if target.kind == "cpu":
            command = _cpu_command(target, listener.fileno(), concurrency)
            handed_over: tuple[int, ...] = (listener.fileno(),)
        else:
            command = vllm_command(target, port, seed, config)
            handed_over = ()
            listener.close()
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=handed_over,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
    logger.info("started server, pid %s: %s", process.pid, " ".join(command))
    try:
        _wait_until_ready(process, f"http://127.0.0.1:{port}", START_SECONDS[target.kind], log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        _stop(process)


def _name_at(url: str, name: str | None, timeout: float) -> str:
    if holds_secret(url):
        raise ConfigError("--model: a URL with a key or password in it; put the key into OPENAI_API_KEY instead")
    import asyncio

    import openai

    async def listed() -> list[str]:
        async with connect(url, timeout, retries=1) as client:
            return [model.id for model in (await client.models.list()).data]

    try:
        known = asyncio.run(listed())
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        raise ConfigError(f"--model: {url} does not take the key in OPENAI_API_KEY: {error}") from error
    except openai.NotFoundError as error:
        if name:
            return name
        raise ConfigError(
            f"--model: {url}/models is not there; does the URL end in /v1? Else give --model-name"
        ) from error
    except openai.OpenAIError as error:
        fault = server_fault(error)
        raise PolicyServerFault(fault.kind, f"{url}: {fault.detail}") from error
    except ValueError as error:
        raise PolicyServerFault("policy_server_malformed", f"{url}/models did not answer with JSON: {error}") from error
    if name is None and len(known) == 1:
        return known[0]
    if name not in known:
        given = f"--model-name: {name!r} is not served" if name else "--model-name is needed, there are several models"
        raise ConfigError(f"{given}. At {url}: {', '.join(known) or 'none'}")
    return name


def _gpu_with_vllm() -> bool:
    if shutil.which("vllm") is None:
        return False
    import torch

    return torch.cuda.is_available()


def _cpu_command(target: Target, listener: int, rows: int) -> list[str]:
    options = {"--model": target.location, "--name": target.name, "--fd": str(listener), "--max-rows": str(rows)}
    return [sys.executable, "-m", "harness.cpu_server", *(part for option in options.items() for part in option)]


def vllm_command(target: Target, port: int, seed: int, config: ServingConfig) -> list[str]:
    """The command that serves `target` with vLLM, parsers by the checkpoint where `config` leaves them open."""
    command = ["vllm", "serve", target.location, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", target.name, "--seed", str(seed)]
    folder = Path(target.location)
    kind = json.loads((folder / "config.json").read_text()).get("model_type", "")
    tools = config.tool_parser or TOOL_PARSERS.get(kind, _OFF)
    thinks = "<think>" in template_of(folder) or kind == "gpt_oss"
    reasoning = config.reasoning_parser or (REASONING_PARSERS.get(kind, _OFF) if thinks else _OFF)
    if tools != _OFF:
        command += ["--enable-auto-tool-choice", "--tool-call-parser", tools]
    else:
        logger.warning("no tool parser for model_type %r; calls must come as text", kind)
    if reasoning != _OFF:
        command += ["--reasoning-parser", reasoning]
    return [*command, *config.vllm_args]


def end_with_parent() -> None:
    """For a child about to start: it ends when this process does, even when that is killed (Linux only)."""
    # PR_SET_PDEATHSIG is 1.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, seconds: float, log: Path) -> None:
    deadline = time.monotonic() + seconds
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy leads to this machine
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PolicyServerFault(
                "policy_server_ended", f"exit code {process.returncode}; {log} ends:\n{log_tail(log)}"
            )
        # Not there yet, or there and not ready (503): both are an OSError.
        with contextlib.suppress(OSError, http.client.HTTPException), opener.open(f"{url}/health", timeout=5.0):
            return
        time.sleep(0.2)
    raise PolicyServerFault("policy_server_not_ready", f"not ready after {seconds:.0f} s; {log} ends:\n{log_tail(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for kill in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kill)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return
