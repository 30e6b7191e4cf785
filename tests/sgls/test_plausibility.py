"""Responses are what their tools are for."""

import asyncio
import json
import os
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from verl_slca.cli import app
from verl_slca.sgls.plausibility import CHECKS, answered, outcomes, simulated
from verl_slca.sgls.schema import compile_tool
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall

_SHARED = Path(os.environ.get("SLCA_SHARED", Path(__file__).parents[3] / "shared"))
_CORPUS = _SHARED / "data" / "mcp_tools.jsonl"
TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def tool(name, description="", /, **parameters) -> dict:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return {"name": name, "description": description, "parameters": schema}


TOOLS = [
    tool("getInventory", "Returns the current stock of a product", productId=TEXT),
    tool("book_flight", "Book a flight", flight_id=TEXT, passenger=TEXT),
    tool("bookHotel", "", hotelId=WHOLE, nights=WHOLE),
    tool("reserve_table", "", restaurant=TEXT, guests=WHOLE),
    tool("buy_ticket", "", event_id=TEXT),
    tool("place_order", "", product_id=TEXT, quantity=WHOLE),
    tool("todo_create", "", title=TEXT),
    tool("add_note", "", text=TEXT),
    tool("add_member", "", group_id=TEXT, member_id=TEXT),
    tool("create_user", "", user_id=TEXT, name=TEXT),
    tool("list_files", "", path=TEXT),
    tool("list_directory", "Get a detailed listing", path=TEXT),
    tool("app-store-list", "Get the top apps", country=TEXT),
    tool("search_papers", "", query=TEXT),
    tool("get_user", "", user_id=WHOLE),
    tool("get_report", "", a=TEXT, b=TEXT, c=TEXT, d=TEXT, report_id=TEXT),
    tool("get_weather", "", city=TEXT, units={"enum": ["celsius", "fahrenheit"]}),
    tool("get_balance", "", account_id=TEXT, currency=TEXT),
    tool("get_server_info", "Information about the location of a server", url=TEXT),
    tool("getExecutiveCompensation", "Compensation of executives, with stock awards", company=TEXT),
]


def response(declaration, /, **arguments):
    (result,) = asyncio.run(
        Simulator(SglsConfig()).episode([declaration], "w").respond([ToolCall(declaration["name"], arguments)])
    )
    return json.loads(result.content)


@pytest.mark.parametrize("seed", range(5))
def test_every_check_holds_for_tools_of_every_kind(seed):
    found = outcomes(asyncio.run(simulated(TOOLS, Simulator(SglsConfig()), seed)))
    assert {name: outcome.failed for name, outcome in found.items() if outcome.failed} == {}
    assert all(outcome.calls for outcome in found.values())


@pytest.mark.parametrize(
    ("check", "name", "description", "arguments", "content"),
    [
        ("id_of_what_was_made", "book_flight", "", {"flight_id": "f1"}, {"flight_id": "f1", "status": "ok"}),
        ("list_where_asked_for", "list_notes", "", {}, {"name": "one"}),
        ("list_where_asked_for", "search_notes", "", {}, {"notes": [{"color": "red"}]}),
        ("asked_thing_is_named", "get_user", "", {"user_id": 4}, {"name": "Ana"}),
        ("no_field_of_another_domain", "getInventory", "current stock", {}, {"symbol": "AAPL", "price": 3}),
        ("no_field_of_another_domain", "get_server_info", "", {}, {"latitude": 3.5}),
        ("unit_is_the_one_asked_for", "get_weather", "", {"units": "fahrenheit"}, {"temperature": 3}),
        ("unit_is_the_one_asked_for", "get_price", "", {"currency": "EUR"}, {"price": 3, "currency": "USD"}),
        ("values_fit_their_names", "get_user", "", {}, {"user_id": "Maya Patel"}),
        ("values_fit_their_names", "get_place", "", {}, {"latitude": 120}),
        ("values_fit_their_names", "get_stock", "", {}, {"stock": 3.5}),
        ("something_is_told", "get_user", "", {"id": 1}, {"id": 1}),
    ],
)  # fmt: skip
def test_every_check_can_fail(check, name, description, arguments, content):
    declared = compile_tool({"name": name, "description": description})
    (verdict,) = [c(answered(declared, arguments, json.dumps(content))) for c in CHECKS if c.__name__ == check]
    assert verdict is False


def test_a_stock_of_goods_is_no_share_and_a_share_no_stock_of_goods():
    goods = response(tool("getInventory", "Returns the current stock", productId=TEXT), productId="p1")
    assert isinstance(goods["stock"], int)
    assert not {"symbol", "price", "change"} & goods.keys()
    assert response(tool("get_stock", "Quote of a ticker", ticker=TEXT), ticker="TSLA")["symbol"] == "TSLA"


def test_who_books_is_told_a_booking_and_who_pays_a_payment():
    flight = response(tool("book_flight", "", flight_id=TEXT), flight_id="f1")
    assert flight["flight_id"] == "f1"
    assert flight["booking_id"] not in ("", "f1")
    assert response(tool("pay_bill", "", bill_id=TEXT, amount=NUMBER), bill_id="b1", amount=5)["payment_id"]


def test_another_unit_gives_the_same_value_in_that_unit():
    weather = tool("get_weather", "", city=TEXT, units=TEXT)
    celsius, fahrenheit = (response(weather, city="Oslo", units=units) for units in ("celsius", "fahrenheit"))
    assert fahrenheit["temperature"] == pytest.approx(celsius["temperature"] * 1.8 + 32, abs=0.11)
    assert fahrenheit["humidity"] == celsius["humidity"]


def test_adding_a_note_is_no_sum():
    assert response(tool("add_note", "", text=TEXT), text="milk")["note_id"]
    assert response(tool("add_numbers", "", a=NUMBER, b=NUMBER), a=1, b=2)["result"] == 3


def test_the_command_shows_a_line_a_check(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    done = CliRunner().invoke(app, ["simulate", "plausibility", "--tools", str(path)])
    assert done.exit_code == 0, done.output
    assert [line.split("  ")[0].replace(" ", "_") for line in done.output.splitlines()] == [c.__name__ for c in CHECKS]


@pytest.mark.skipif(not _CORPUS.exists(), reason=f"{_CORPUS} is absent; set SLCA_SHARED")
@pytest.mark.parametrize("seed", range(3))
def test_real_tools_get_plausible_responses(seed):
    tools = [json.loads(line) for line in _CORPUS.read_text().splitlines()]
    sample = random.Random(seed).sample(tools, 300)
    found = outcomes(asyncio.run(simulated(sample, Simulator(SglsConfig()), seed)))
    assert {name: outcome.failed for name, outcome in found.items() if outcome.share < 0.98} == {}
