"""A server that costs next to nothing: one fixed answer to everything, in a process of its own.

with instant_server(delay=0.05) as url:  # ends in /v1
    ...
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

MODELS = {"object": "list", "data": [{"id": "instant", "object": "model", "owned_by": "test"}]}
REPLY = {
    "id": "cmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "instant",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@contextlib.contextmanager
def instant_server(delay: float = 0.0) -> Iterator[str]:
    """The base URL of a server that answers `delay` seconds after a request."""
    with subprocess.Popen([sys.executable, __file__, str(delay)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    delay = float(sys.argv[1])
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0]) if lengths else 0)
            await asyncio.sleep(delay)
            body = json.dumps(MODELS if head.startswith(b"get") else REPLY).encode()
            writer.write(HEAD % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 24, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main())
