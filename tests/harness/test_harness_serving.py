"""Finding a model, and serving a real (tiny, random) checkpoint with our own server."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from chat_templates import tokenizer
from rich.console import Console

from harness.benchmarks.toucan_gold import TOOLS
from harness.checkpoint import Checkpoint, fingerprint, merged, open_checkpoint
from harness.serving import ServingConfig, Target, find, served, vllm_command
from verl_slca.errors import ConfigError, DataError, InfrastructureFault, PolicyServerFault

CONTEXT = 512
TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments.city }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 folder of a few thousand random weights, with a byte-level tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    vocabulary = {token: i for i, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        eos_token_id=tokenizer.eos_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def test_what_cannot_be_served_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a folder nor a URL"):
        find("no/such/place", None, 1.0)
    with pytest.raises(DataError, match=r"no config\.json.*global_step_N/actor"):
        find(str(tmp_path), None, 1.0)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="no weights"):
        find(str(tmp_path), None, 1.0)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="no chat template"):
        find(str(tmp_path), None, 1.0)
    (tmp_path / "chat_template.jinja").write_text("x")
    with pytest.raises(DataError, match="tokenizer cannot be loaded"):
        find(str(tmp_path), None, 1.0)
    tokenizer("qwen3", eos="<|endoftext|>").save_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"<\|im_end\|>, which is no eos"):
        find(str(tmp_path), None, 1.0)
    tokenizer("qwen3").save_pretrained(tmp_path)
    assert find(str(tmp_path), None, 1.0).name == tmp_path.name


def test_a_fingerprint_sees_new_weights_under_the_same_name(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(1000))
    first = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == first
    weights.write_bytes(bytes(999) + b"\1")
    assert fingerprint(tmp_path) != first


def test_a_url_that_is_no_api_says_so(server: object) -> None:
    url = server.url.removesuffix("/v1")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="does the URL end in /v1"):
        find(url, None, 5.0)
    assert find(url, "named", 5.0) == Target(url, "named", "url")


def test_a_server_that_does_not_start_is_a_fault_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    target = Target(str(tmp_path), "broken", "cpu")
    with (
        pytest.raises(PolicyServerFault, match=r"policy_server_ended(.|\n)*broken|Error"),
        served(target, tmp_path / "server.log", 1, 0, ServingConfig()),
    ):
        pass


@pytest.mark.slow
def test_our_own_server_speaks_the_api(checkpoint: Path, tmp_path: Path) -> None:
    with served(find(str(checkpoint), None, 5.0), tmp_path / "server.log", 4, 0, ServingConfig()) as url:
        client = httpx.Client(base_url=url, timeout=60, trust_env=False)
        model = client.get("/models").json()["data"][0]
        assert (model["id"], model["max_model_len"]) == ("tiny", CONTEXT)
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}
        first = client.post("/chat/completions", json=body).json()
        assert first["choices"] == client.post("/chat/completions", json=body).json()["choices"]
        # "user", "hi", "assistant", a byte each, three newlines, three special tokens
        assert first["usage"]["prompt_tokens"] == 4 + 2 + 9 + 3 + 3
        assert first["usage"]["completion_tokens"] <= 8
        raw = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        plain = client.post("/completions", json={"prompt": raw, "max_tokens": 8, "temperature": 0}).json()
        assert plain["choices"][0]["text"] == first["choices"][0]["message"]["content"]
        warm = {**body, "temperature": 1.0}
        texts = [client.post("/chat/completions", json={**warm, "seed": seed}).json()["choices"] for seed in (1, 1, 2)]
        assert texts[0] == texts[1] != texts[2]
        with_tools = client.post("/chat/completions", json={**body, "tools": TOOLS[:1]}).json()
        assert with_tools["usage"]["prompt_tokens"] > first["usage"]["prompt_tokens"] + 50
        called = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"city": "Oslo"}'}}]
        history = [*body["messages"], {"role": "assistant", "content": None, "tool_calls": called}]  # type: ignore[misc]
        assert client.post("/chat/completions", json={**body, "messages": history}).status_code == 200
        long = {**body, "messages": [{"role": "user", "content": "x" * CONTEXT}]}
        refused = client.post("/chat/completions", json=long)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert client.post("/chat/completions", json={**body, "stream": True}).status_code == 400
        assert client.post("/chat/completions", json={**body, "model": "other"}).status_code == 400
        clipped = client.post("/chat/completions", json={**body, "max_tokens": 10**6}).json()
        assert clipped["usage"]["total_tokens"] <= CONTEXT


@pytest.mark.slow
def test_tools_that_the_template_would_drop_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deaf"
    shutil.copytree(checkpoint, folder)
    plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    (folder / "chat_template.jinja").write_text(plain)
    with served(find(str(folder), None, 5.0), tmp_path / "server.log", 1, 0, ServingConfig()) as url:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        assert httpx.post(f"{url}/chat/completions", json=body, trust_env=False, timeout=60).status_code == 200
        refused = httpx.post(f"{url}/chat/completions", json={**body, "tools": TOOLS[:1]}, trust_env=False, timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "tools_not_supported")


@pytest.mark.slow
def test_a_checkpoint_is_scored_with_one_command_and_its_server_is_gone_after(
    checkpoint: Path, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", "from harness.cli import main; main()", "run", "--model", str(checkpoint)]
    command += ["--tasks", "toucan", "--data", str(data), "--output-dir", str(folder), "--max-tokens", "32"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    toucan = json.loads((folder / "results.json").read_text())["tasks"]["toucan"]
    assert toucan["samples"]["expected"] == 12
    assert toucan["complete"]
    assert not _alive(_server_pid(folder))


@pytest.mark.slow
def test_a_killed_harness_leaves_no_server_behind(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", "from harness.cli import main; main()", "run", "--model", str(checkpoint)]
    command += ["--tasks", "toucan", "--data", str(data), "--output-dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while "started server" not in (log.read_text() if (log := folder / "run.log").exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    server = _server_pid(folder)
    while _alive(server):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _server_pid(folder: Path) -> int:
    return int((folder / "run.log").read_text().split("started server, pid ")[1].split(":")[0])


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def served_by_vllm(folder: Path, model_type: str, template: str = "", **config: Any) -> str:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "chat_template.jinja").write_text(template + "{{ messages }}")
    return " ".join(vllm_command(Target(str(folder), "m", "vllm"), 8000, 0, ServingConfig(**config)))


def test_vllm_gets_the_parsers_of_the_models_family(tmp_path: Path) -> None:
    plain = served_by_vllm(tmp_path, "qwen2")
    assert plain.endswith("--enable-auto-tool-choice --tool-call-parser hermes")
    thinking = served_by_vllm(tmp_path, "qwen3", "<think>")
    assert thinking.endswith("--tool-call-parser hermes --reasoning-parser qwen3")
    assert "--reasoning-parser" not in served_by_vllm(tmp_path, "qwen3")  # its template knows no thinking
    assert served_by_vllm(tmp_path, "gpt_oss").endswith("--tool-call-parser openai --reasoning-parser openai_gptoss")
    assert "-parser" not in served_by_vllm(tmp_path, "mystery")


def test_parsers_can_be_set_and_switched_off(tmp_path: Path) -> None:
    off = served_by_vllm(tmp_path, "qwen3", "<think>", reasoning_parser="none", tool_parser="none")
    assert "-parser" not in off
    own = served_by_vllm(tmp_path, "mystery", tool_parser="pythonic", vllm_args=("--max-model-len", "4096"))
    assert own.endswith("--tool-call-parser pythonic --max-model-len 4096")


def test_a_step_of_a_verl_training_is_found_by_any_of_its_folders(tmp_path: Path, checkpoint: Path) -> None:
    actor = tmp_path / "global_step_7/actor"
    shutil.copytree(checkpoint, actor / "huggingface")
    (actor / "model_world_size_2_rank_0.pt").write_bytes(b"0")
    for folder in (actor.parent, actor, actor / "huggingface"):
        assert open_checkpoint(folder) == Checkpoint(actor / "huggingface", "global_step_7")
    (actor / "huggingface/model.safetensors").unlink()
    for folder in (actor.parent, actor):
        assert open_checkpoint(folder) == Checkpoint(actor, "global_step_7", shards=True)
    with pytest.raises(DataError, match="no weights"):
        open_checkpoint(actor / "huggingface")


def test_shards_without_verl_are_refused_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"verl is not installed here.*python -m verl_slca\.adapters\.merge merge"):
        merged(Checkpoint(tmp_path, "s", True), tmp_path / "merged", tmp_path / "merge.log", Console())


@pytest.mark.verl
@pytest.mark.slow
def test_shards_are_merged_by_verl_in_their_own_precision(tmp_path: Path, checkpoint: Path) -> None:
    pytest.importorskip("verl")
    import torch
    from safetensors.torch import load_file

    actor = tmp_path / "global_step_7/actor"
    shutil.copytree(checkpoint, actor / "huggingface", ignore=shutil.ignore_patterns("*.safetensors"))
    weights = load_file(checkpoint / "model.safetensors")
    torch.save(weights, actor / "model_world_size_1_rank_0.pt")
    (actor / "fsdp_config.json").write_text('{"FSDP_version": 1, "world_size": 1}')
    made = merged(open_checkpoint(actor), tmp_path / "merged", tmp_path / "merge.log", Console())
    again = load_file(made / "model.safetensors")
    assert all(torch.equal(again[name], weights[name]) and again[name].dtype == torch.float32 for name in again)
    assert set(again) == set(weights)
    assert open_checkpoint(made).folder == made
    before = (made / "model.safetensors").stat().st_mtime_ns
    assert merged(open_checkpoint(actor), made, tmp_path / "merge.log", Console()) == made
    assert (made / "model.safetensors").stat().st_mtime_ns == before


def test_a_merger_that_fails_leaves_nothing(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verl")
    shutil.copytree(checkpoint, tmp_path / "s/huggingface", ignore=shutil.ignore_patterns("*.safetensors"))
    (tmp_path / "s/model_world_size_1_rank_0.pt").write_bytes(b"0")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(InfrastructureFault, match="merge_failed: exit code 1"):
        merged(open_checkpoint(tmp_path / "s"), tmp_path / "merged", tmp_path / "merge.log", Console())
    assert not (tmp_path / "merged").exists()


def test_our_own_server_takes_calls_apart_as_the_api_gives_them() -> None:
    from harness.cpu_server import _calls

    (call,) = _calls('Let me see. <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>')
    assert call["function"] == {"name": "f", "arguments": '{"x": 1}'}
    assert _calls("<tool_call>broken</tool_call>") == _calls("No call.") == []
