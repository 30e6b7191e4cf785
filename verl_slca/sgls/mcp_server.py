"""The simulator as an MCP server, so that any agent can be pointed at simulated tools: `slca simulate mcp`.

Over stdio the connection is one episode. Over streamable HTTP every session is one; clients of the protocol's newer
revisions have no sessions, and share one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from verl_slca.errors import InfrastructureFault
from verl_slca.sgls.guard import MAX_BODY_BYTES, Asgi, Guard
from verl_slca.sgls.schema import compile_tool
from verl_slca.sgls.service import Episodes
from verl_slca.sgls.simulator import Simulator
from verl_slca.trajectory import ToolCall

INTERNAL_ERROR = -32603


def mcp_server(simulator: Simulator, tools: Sequence[Mapping[str, Any]], world: str) -> Server[Any]:
    """An MCP server that offers `tools` and answers their calls in `world`.

    What the policy got wrong is a result with ``is_error``; what failed in the simulator is a protocol error.

    Raises:
        DataError: the tools cannot be used together.
    """
    episodes = Episodes(simulator, tools)
    listed = [
        types.Tool(name=tool.name, description=tool.description or None, input_schema=_object(tool.parameters.schema))
        for tool in map(compile_tool, tools)
    ]

    async def list_tools(context: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            session = _session(context)
            if session not in episodes:
                episodes.open(session, world)
            answer = await episodes.call(session, ToolCall(params.name, params.arguments or {}))
        except OverflowError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        except InfrastructureFault as fault:
            raise MCPError(INTERNAL_ERROR, f"the simulator failed: {fault}") from fault
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=answer.content)], is_error=answer.is_error
        )

    return Server("sgls", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client over this process's stdin and stdout until it hangs up."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def http_app(server: Server[Any], host: str, token: str) -> Asgi:
    """The server's streamable HTTP endpoint at ``/mcp``, guarded."""
    return Guard(server.streamable_http_app(host=host, max_request_body_size=MAX_BODY_BYTES), token)


def _session(context: ServerRequestContext[Any]) -> str:
    headers = getattr(context.request, "headers", None) or {}
    return str(headers.get("mcp-session-id", ""))


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """An arguments' schema as MCP wants it: an object at its root."""
    return {**schema, "type": "object"}
