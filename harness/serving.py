"""A server for the model under evaluation: the one at a URL, or one started for a checkpoint and stopped after.

On a machine with a GPU a Hugging Face folder is served by vLLM, elsewhere by `harness.cpu_server`. A server
of ours listens on loopback only, logs to the run folder, and ends with this process, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import openai

from harness.policy import connect, server_fault
from verl_slca.errors import ConfigError, DataError, PolicyServerFault

logger = logging.getLogger(__name__)

START_SECONDS = {"cpu": 120.0, "vllm": 1200.0}
"""How long a server may take until it is ready."""

_STOP_SECONDS = 20.0
_SAMPLED_BYTES = 1 << 20
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")

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
"""vLLM's tool parser for a checkpoint's ``model_type``."""


@dataclass(frozen=True, slots=True)
class Target:
    """What ``--model`` names.

    Attributes:
        location: the URL, or the absolute path of the folder.
        name: what the server calls the model.
        kind: who serves it.
        fingerprint: hash of the checkpoint's files, "" for a URL, which cannot be looked into.
    """

    location: str
    name: str
    kind: Literal["url", "cpu", "vllm"]
    fingerprint: str = ""


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
    _check_checkpoint(folder)
    return Target(str(folder), name or folder.name, "vllm" if _gpu_with_vllm() else "cpu", fingerprint(folder))


@contextlib.contextmanager
def served(target: Target, log: Path, concurrency: int, seed: int) -> Iterator[str]:
    """The base URL of a ready server for `target`; a server started here is stopped on leaving.

    Args:
        target: from `find`.
        log: file that a started server's output is appended to.
        concurrency: requests it will be sent at a time.
        seed: given to a started server.

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
            command = _vllm_command(target, port, seed)
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
                preexec_fn=_end_with_parent,
            )
    logger.info("started server, pid %s: %s", process.pid, " ".join(command))
    try:
        _wait_until_ready(process, f"http://127.0.0.1:{port}", START_SECONDS[target.kind], log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        _stop(process)


def fingerprint(folder: Path) -> str:
    """Hash over the files of a checkpoint: names, sizes, and content (of big files the first and last MiB)."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= 64 * _SAMPLED_BYTES:
                digest.update(file.read())
            else:
                digest.update(file.read(_SAMPLED_BYTES))
                file.seek(-_SAMPLED_BYTES, os.SEEK_END)
                digest.update(file.read())
    return digest.hexdigest()[:16]


def _name_at(url: str, name: str | None, timeout: float) -> str:
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query:
        raise ConfigError("--model: a URL with a key or password in it; put the key into OPENAI_API_KEY instead")
    import asyncio

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


def _check_checkpoint(folder: Path) -> None:
    where = str(folder)
    if not (folder / "config.json").is_file():
        raise DataError(
            "no config.json, so this is no Hugging Face checkpoint; a verl FSDP checkpoint is merged first: "
            "python -m verl.model_merger merge --backend fsdp --local_dir .../actor --target_dir HF_FOLDER",
            where,
        )
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        raise DataError(f"no weights ({' or '.join(_WEIGHTS)})", where)
    templates = (folder / name for name in _TEMPLATES)
    if not any(
        path.is_file() and (path.suffix == ".jinja" or "chat_template" in path.read_text()) for path in templates
    ):
        raise DataError("the tokenizer has no chat template; save the one it was trained with beside it", where)


def _gpu_with_vllm() -> bool:
    if shutil.which("vllm") is None:
        return False
    import torch

    return torch.cuda.is_available()


def _cpu_command(target: Target, listener: int, rows: int) -> list[str]:
    options = {"--model": target.location, "--name": target.name, "--fd": str(listener), "--max-rows": str(rows)}
    return [sys.executable, "-m", "harness.cpu_server", *(part for option in options.items() for part in option)]


def _vllm_command(target: Target, port: int, seed: int) -> list[str]:
    command = ["vllm", "serve", target.location, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", target.name, "--seed", str(seed)]
    config: dict[str, Any] = json.loads((Path(target.location) / "config.json").read_text())
    parser = TOOL_PARSERS.get(config.get("model_type", ""))
    if parser is None:
        logger.warning("no tool parser known for model_type %r; calls must come as text", config.get("model_type"))
        return command
    return [*command, "--enable-auto-tool-choice", "--tool-call-parser", parser]


def _end_with_parent() -> None:
    # A killed harness cannot stop its server; Linux does it then (PR_SET_PDEATHSIG is 1).
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, seconds: float, log: Path) -> None:
    deadline = time.monotonic() + seconds
    with httpx.Client(trust_env=False, timeout=5.0) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise PolicyServerFault(
                    "policy_server_ended", f"exit code {process.returncode}; {log} ends:\n{_tail(log)}"
                )
            try:
                if client.get(f"{url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)
    raise PolicyServerFault("policy_server_not_ready", f"not ready after {seconds:.0f} s; {log} ends:\n{_tail(log)}")


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    for kill in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kill)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return
