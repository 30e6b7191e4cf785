"""The worker process: what a model wrote is executed there, and may cost its own sample only."""

import asyncio
import json
import os
import signal
from typing import Any

import pytest
from bfcl_fixtures import Ask, Load

from verl_slca.errors import InfrastructureFault


def step(name: str, **arguments: Any) -> list[dict[str, str]]:
    return [{name: json.dumps(arguments)}]


def execute(*steps: Any) -> dict[str, Any]:
    return {"op": "execute", "id": "multi_turn_base_0", "mode": "fc", "steps": list(steps)}


def judge(result: Any, id: str = "simple_python_0", mode: str = "fc") -> dict[str, Any]:
    return {"op": "judge", "id": id, "mode": mode, "result": result}


TRIANGLE = [{"calculate_triangle_area": '{"base": 10, "height": 5}'}]


def test_an_episode_leaves_nothing_to_the_next(load: Load, ask: Ask) -> None:
    made = execute(step("mkdir", dir_name="temp"), step("ls"))
    first, second, without = ask(load("multi_turn_base"), [made, made, execute(step("ls"))])
    assert first == second
    assert "temp" in first["results"][0]
    assert "temp" not in without["results"][0]


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os')._exit(0) or str",
        "[].append(exit()) or str",
        "str('a' * 10**10) or str",
        "__import__('os').abort() or str",
    ],
)
def test_code_that_breaks_its_process_costs_its_own_answer_only(load: Load, ask: Ask, code: str) -> None:
    jobs = [judge(TRIANGLE), execute(step(code)), judge(TRIANGLE)]
    before, broken, after = ask(load("all"), jobs)
    assert before["valid"]
    assert after["valid"]
    assert "killed" in broken or "Error during execution" in broken["results"][0]


def test_code_that_hangs_is_stopped_after_its_time(load: Load, ask: Ask) -> None:
    hang = judge("[calculate_triangle_area(base=9**9**9, height=5)]", mode="prompt")
    broken, after = ask(load("all", sample_seconds=0.5), [hang, judge(TRIANGLE)])
    assert broken == {"killed": "took longer than 0.5 s"}
    assert after["valid"]


def test_code_sees_no_secrets_and_writes_into_a_temporary_folder(
    load: Load, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    seen = execute(
        step("str(dict(__import__('os').environ)).strip"),
    )
    where = execute(step("__import__('os').getcwd"))
    environment, folder = (answer["results"][0] for answer in ask(load("all"), [seen, where]))
    assert "secret" not in environment
    assert "slca-bfcl-" in folder
    assert not os.path.exists(folder)


def test_what_code_prints_and_reads_does_not_touch_the_pipes(load: Load, ask: Ask) -> None:
    noisy, after = ask(load("all"), [execute(step("print('[]') or input")), judge(TRIANGLE)])
    assert "EOF" in noisy["results"][0]
    assert after["valid"]


def test_arguments_are_passed_as_they_are(load: Load, ask: Ask) -> None:
    (answer,) = ask(load("all"), [execute(step("dict", a={"b": {}}, c={}, d=None, e=True))])
    assert json.loads(answer["results"][0]) == {"a": {"b": {}}, "c": {}, "d": None, "e": True}


@pytest.mark.parametrize(
    ("result", "error_type"),
    [
        ([{"calculate_triangle_area": '{"base": 10.0, "height": 5}'}], "type_error:simple"),
        ([{"calculate_triangle_area": '{"base": 10, "height": 5, "unit": null}'}], "type_error:simple"),
        ([{"calculate_triangle_area": '{"base": 10}'}], "simple_function_checker:missing_required"),
        ([{"calculate_triangle_area": '{"base": 10, "height": 5'}], "ast_decoder:decoder_failed"),
        ([{"calculate_triangle_area": "[10, 5]"}], "ast_decoder:decoder_wrong_output_format"),
        ([*TRIANGLE, *TRIANGLE], "simple_function_checker:wrong_count"),
        ("The area is 25.", "ast_decoder:decoder_failed"),
    ],
)
def test_the_official_error_is_kept(load: Load, ask: Ask, result: Any, error_type: str) -> None:
    (verdict,) = ask(load("all"), [judge(result)])
    assert (verdict["valid"], verdict["error_type"]) == (False, error_type)
    assert verdict["error"]


def test_an_int_is_a_float_and_parallel_calls_have_no_order(load: Load, ask: Ask) -> None:
    task = load("all")
    from harness.benchmarks.bfcl import gold
    from harness.benchmarks.bfcl.decode import result_of

    result = result_of(gold.scripts(task)["gold"]("parallel_0", {}), "fc", False)
    assert isinstance(result, list)
    assert len(result) > 1
    forward, backward = ask(task, [judge(result, "parallel_0"), judge(result[::-1], "parallel_0")])
    assert forward["valid"]
    assert backward["valid"]


def test_a_worker_killed_from_outside_is_a_fault_of_ours_and_is_replaced(load: Load) -> None:
    async def run() -> bool:
        async with load("all")._pool() as pool:
            await pool.ask(judge(TRIANGLE))
            os.kill(pool._idle[0].pid, signal.SIGKILL)
            with pytest.raises(InfrastructureFault, match="bfcl_worker"):
                await pool.ask(judge(TRIANGLE))
            return bool((await pool.ask(judge(TRIANGLE)))["valid"])

    assert asyncio.run(run())


def test_an_unknown_entry_is_a_fault_of_ours(load: Load, ask: Ask) -> None:
    with pytest.raises(InfrastructureFault, match="bfcl_worker"):
        ask(load("all"), [judge(TRIANGLE, "simple_python_400")])


def test_memory_is_flat_over_ten_thousand_samples(load: Load) -> None:
    def resident(pid: int) -> int:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def run() -> tuple[int, int]:
        async with load("all")._pool() as pool:
            jobs = [judge(TRIANGLE)] * 64
            for _ in range(16):
                await pool.ask_all(jobs)
            before = resident(pool._idle[0].pid)
            for _ in range(140):
                await pool.ask_all(jobs)
            return before, resident(pool._idle[0].pid)

    before, after = asyncio.run(run())
    assert after < before + (2 << 20)
