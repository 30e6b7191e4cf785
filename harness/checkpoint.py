"""What lies in a ``--model`` folder: a Hugging Face checkpoint, or shards of a verl one, merged before serving."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from harness.records import log_tail, read_json, write_json
from verl_slca.chat_template import problems
from verl_slca.errors import ConfigError, DataError, InfrastructureFault

logger = logging.getLogger(__name__)

_SAMPLED_BYTES = 1 << 20
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
_SHARDS = "model_world_size_*_rank_0.pt"
_CONFIG = "huggingface"
"""Where verl saves configuration and tokenizer beside its shards, and the weights too where it was asked to."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that can be served, at once or after merging.

    Attributes:
        folder: of the Hugging Face files, or of the shards.
        name: for people and servers: the folder's, or that of the training step.
        shards: the folder holds shards of verl's FSDP trainer.
    """

    folder: Path
    name: str
    shards: bool = False


def open_checkpoint(folder: Path) -> Checkpoint:
    """What is in `folder`: Hugging Face files, a step of a verl training, or the ``actor`` of one.

    Raises:
        DataError: nothing that could be served; the message says what is missing.
    """
    actor = folder / "actor" if (folder / "actor").is_dir() else folder
    name = next((part for part in reversed(folder.parts) if part not in ("actor", _CONFIG)), folder.name)
    if any(actor.glob(_SHARDS)):
        saved = actor / _CONFIG
        _check(saved, weights=False)
        return Checkpoint(saved, name) if _has_weights(saved) else Checkpoint(actor, name, shards=True)
    _check(folder, weights=True)
    return Checkpoint(folder, name)


def check_tokenizer(folder: Path) -> None:
    """Nothing, when the checkpoint's chat template and tokenizer mean the same (`chat_template.problems`).

    Raises:
        DataError: they do not, or the tokenizer cannot be loaded.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # whatever a broken file makes transformers raise
        said = str(error).partition("\n")[0]
        raise DataError(f"its tokenizer cannot be loaded ({type(error).__name__}: {said})", str(folder)) from error
    if found := problems(tokenizer, str(folder)):
        raise DataError("; and ".join(found), str(folder))


def merged(checkpoint: Checkpoint, target: Path, log: Path, console: Console) -> Path:
    """The Hugging Face folder of a sharded checkpoint, made with verl's own merger; made before, it is used again.

    Args:
        checkpoint: with shards.
        target: the folder to make; all of it is there, or none of it.
        log: file that the merger's output is appended to.
        console: where to say so.

    Raises:
        ConfigError: verl is not installed here.
        InfrastructureFault: the merger failed (``"merge_failed"``); its last lines are in the message.
    """
    receipt = {"shards": fingerprint(checkpoint.folder)}
    done = target / "merged_from.json"
    if done.is_file() and read_json(done) == receipt:
        return target
    if importlib.util.find_spec("verl") is None:
        raise ConfigError(
            f"--model: {checkpoint.folder} holds shards of a verl checkpoint, and verl is not installed here to merge "
            "them. Where it is: python -m verl_slca.adapters.merge merge --backend fsdp "
            f"--local_dir {checkpoint.folder} --target_dir HF_FOLDER, then --model HF_FOLDER"
        )
    console.print(f"Merging the shards in {checkpoint.folder} ...", highlight=False, soft_wrap=True)
    unfinished = target.with_suffix(".tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [sys.executable, "-m", "verl_slca.adapters.merge", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(checkpoint.folder), "--target_dir", str(unfinished)]
    with log.open("ab") as output:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT).returncode
    if code:
        raise InfrastructureFault("merge_failed", f"exit code {code}; {log} ends:\n{log_tail(log)}")
    for path in (checkpoint.folder / _CONFIG).iterdir():
        if path.is_file() and not (unfinished / path.name).exists():
            shutil.copy(path, unfinished)  # the chat template, where the tokenizer was saved with one beside it
    write_json(unfinished / done.name, receipt)
    shutil.rmtree(target, ignore_errors=True)
    unfinished.replace(target)
    return target


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


def template_of(folder: Path) -> str:
    """The files that hold the chat template, as one text; "" where there is none."""
    texts = [path.read_text(encoding="utf-8") for name in _TEMPLATES if (path := folder / name).is_file()]
    return "\n".join(text for text in texts if "chat_template" in text or "{" in text)


def _check(folder: Path, weights: bool) -> None:
    where = str(folder)
    if not (folder / "config.json").is_file():
        raise DataError(
            "no config.json, so this is no Hugging Face checkpoint, and no verl one either (global_step_N/actor)", where
        )
    if weights and not _has_weights(folder):
        raise DataError(f"no weights ({' or '.join(_WEIGHTS)})", where)
    templates = (folder / name for name in _TEMPLATES)
    if not any(
        path.is_file() and (path.suffix == ".jinja" or "chat_template" in path.read_text()) for path in templates
    ):
        raise DataError("the tokenizer has no chat template; save the one it was trained with beside it", where)


def _has_weights(folder: Path) -> bool:
    return any(any(folder.glob(pattern)) for pattern in _WEIGHTS)
