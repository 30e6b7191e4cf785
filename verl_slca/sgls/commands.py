"""`slca simulate`: the simulator as a service, as an MCP server, and measured against recorded responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_slca.errors import ConfigError, DataError

if TYPE_CHECKING:
    from verl_slca.sgls.simulator import Simulator

app = typer.Typer(invoke_without_command=True, no_args_is_help=True, help=__doc__)

_Tools = Annotated[Path, typer.Option("--tools", help="Tool declarations: a JSON list, or what MCP's tools/list says.")]
_Config = Annotated[Path | None, typer.Option("--config", help="YAML file of simulator settings (SglsConfig).")]
_Host = Annotated[str, typer.Option(help="Interface; other than loopback needs SLCA_SIMULATOR_TOKEN to be set.")]
_Port = Annotated[int, typer.Option(help="TCP port; 0 takes a free one.")]


@app.callback()
def serve(
    context: typer.Context,
    tools: Annotated[Path | None, typer.Option("--tools", help="Tool declarations (JSON) to serve over HTTP.")] = None,
    config: _Config = None,
    host: _Host = "127.0.0.1",
    port: _Port = 8017,
) -> None:
    """Serve simulated tools over HTTP (see /openapi.json), or run one of the commands below."""
    if context.invoked_subcommand is not None:
        return
    if tools is None:
        raise ConfigError("--tools FILE is needed: the declarations of the tools to simulate")
    from verl_slca.sgls.guard import token_for

    token = token_for(host)
    _needs_service()
    from verl_slca.sgls.service import create_app

    _run(create_app(_simulator(config), read_tools_file(tools), token), host, port)


@app.command()
def mcp(
    tools: _Tools,
    config: _Config = None,
    world: Annotated[str, typer.Option(help="Names the world; equal worlds answer equally.")] = "w",
    http: Annotated[bool, typer.Option("--http", help="Streamable HTTP at /mcp instead of stdio.")] = False,
    host: _Host = "127.0.0.1",
    port: _Port = 8018,
) -> None:
    """Serve simulated tools as an MCP server, over stdio unless --http is given."""
    from verl_slca.sgls.guard import token_for

    token = token_for(host) if http else ""
    _needs_service()
    from verl_slca.sgls.mcp_server import http_app, mcp_server, serve_stdio

    server = mcp_server(_simulator(config), read_tools_file(tools), world)
    if http:
        _run(http_app(server, host, token), host, port)
    else:
        asyncio.run(serve_stdio(server))


@app.command()
def fidelity(
    recorded: Annotated[Path, typer.Option(help="Real responses: a recording, or raw or SFT Toucan rows.")],
    tools: Annotated[Path | None, typer.Option("--tools", help="Declarations of a recording's tools.")] = None,
    config: _Config = None,
    output: Annotated[Path, typer.Option(help="The report as JSON.")] = Path("fidelity.json"),
) -> None:
    """Compare simulated responses with recorded real ones: structure, validity decisions, errors."""
    from verl_slca.sgls.fidelity import fidelity as report_of
    from verl_slca.sgls.fidelity import read_recorded

    calls, problems = read_recorded(recorded, read_tools_file(tools) if tools else ())
    for problem in problems:
        typer.echo(f"left out: {problem}", err=True)
    if not calls:
        raise DataError("holds no call that can be compared; see the messages above", str(recorded))
    report = asyncio.run(report_of(calls, _simulator(config)))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"recorded": str(recorded), **report}, indent=2) + "\n", encoding="utf-8")
    _show(report)
    typer.echo(f"report: {output}")


@app.command()
def plausibility(
    tools: _Tools,
    config: _Config = None,
    seed: Annotated[int, typer.Option(help="Of the arguments that the tools are called with.")] = 0,
) -> None:
    """Call every tool once and check the responses: an id for what was made, a list for a search, units, domains."""
    from verl_slca.sgls.plausibility import outcomes, simulated

    calls = asyncio.run(simulated(read_tools_file(tools), _simulator(config), seed))
    if not calls:
        raise DataError("holds no tool that could be called and answered", str(tools))
    for name, outcome in outcomes(calls).items():
        failed = f"  failed: {', '.join(outcome.failed[:5])}" if outcome.failed else ""
        typer.echo(f"{name.replace('_', ' '):32} {outcome.calls:5} calls {outcome.share:7.1%}{failed}")


def read_tools_file(path: Path) -> list[dict[str, Any]]:
    """The declarations in a JSON file: a list, or an object with a list under ``tools``.

    Raises:
        DataError: the file cannot be read, or holds no tools.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read: {error}", str(path)) from error
    listed = value.get("tools") if isinstance(value, dict) else value
    if not isinstance(listed, list) or not listed or not all(isinstance(tool, dict) for tool in listed):
        raise DataError("must hold a list of tool declarations, or an object with one under 'tools'", str(path))
    return listed


def _simulator(config: Path | None) -> Simulator:
    from verl_slca.config import parse, read_yaml
    from verl_slca.sgls.simulator import SglsConfig, Simulator

    return Simulator(parse(SglsConfig, read_yaml(config) if config else None, str(config or "simulator")))


def _needs_service() -> None:
    try:
        import fastapi
        import mcp
        import prometheus_client
        import uvicorn
    except ImportError as error:
        raise ConfigError(f"{error}; install the packages of the service: pip install 'verl-slca[service]'") from error
    del fastapi, mcp, prometheus_client, uvicorn


def _run(application: Any, host: str, port: int) -> None:
    import uvicorn

    # A client's header does not say who it is, and the server need not say what it is.
    uvicorn.run(application, host=host, port=port, log_level="info", proxy_headers=False, server_header=False)


_COLUMNS = ("calls", "faults", "agreed", "schema", "kind", "precision", "recall", "types", "size")


def _show(report: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("tool", *_COLUMNS, title="Simulated against recorded responses")
    rows: Sequence[tuple[str, Mapping[str, Any]]] = [*report["tools"].items(), ("total", report["total"])]
    for name, row in rows:
        # A name is data: it is shown as it is, whatever markup it holds.
        table.add_row(Text(name), *(_cell(row[column]) for column in _COLUMNS))
    Console().print(table)


def _cell(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"
