import gc
import tracemalloc

from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall

TEXT = {"type": "string"}
TOOLS = [
    {"name": "create_note", "parameters": {"properties": {"title": TEXT, "text": TEXT}}},
    {"name": "get_note", "parameters": {"properties": {"title": TEXT}}},
    {"name": "list_notes", "parameters": {}},
    {"name": "get_weather", "parameters": {"properties": {"city": TEXT}}},
]


async def test_a_thousand_episodes_leave_memory_flat():
    simulator = Simulator(SglsConfig())

    async def play(first: int, count: int) -> None:
        for number in range(first, first + count):
            calls = [
                ToolCall("create_note", {"title": f"n{number}", "text": "x" * 1000}),
                ToolCall("get_note", {"title": f"n{number}"}),
                ToolCall("list_notes", {}),
                ToolCall("get_weather", {"city": f"City {number}"}),
                ToolCall(f"invented_{number}", {"y": "z" * 1000}),
            ]
            await simulator.episode(TOOLS, f"world {number}").respond(calls)

    await play(0, 50)
    gc.collect()
    tracemalloc.start()
    try:
        await play(50, 1000)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 200_000  # an episode that stayed would keep 3,000 bytes and more
