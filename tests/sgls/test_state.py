"""What an episode did, its later calls see; what nobody did, they answer as before."""

import asyncio
import hashlib
import json
import sys
from pathlib import Path

import pytest

from verl_slca.sgls.effects import action_of
from verl_slca.sgls.generate import generate_arguments
from verl_slca.sgls.schema import compile_tool
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.sgls.state import State, seeded
from verl_slca.trajectory import ToolCall, ToolResult

TEXT = {"type": "string"}
QUICKSTART = Path(__file__).parents[2] / "recipes" / "quickstart"


def declared(name: str, output: dict | None = None, /, **parameters) -> dict:
    tool = {"name": name, "parameters": {"type": "object", "properties": parameters, "required": list(parameters)}}
    return tool | ({"outputSchema": output} if output else {})


NOTES = [
    declared("notes-server-create_note", title=TEXT, text=TEXT),
    declared("notes-server-get_note", note_id=TEXT),
    declared("notes-server-list_notes"),
    declared("notes-server-search_notes", query=TEXT),
    declared("notes-server-update_note", note_id=TEXT, text=TEXT),
    declared("notes-server-delete_note", note_id=TEXT),
    declared("notes-server-add_comment", note_id=TEXT, body=TEXT),
    declared("other-server-get_note", note_id=TEXT),
]


class Session:
    """An episode whose calls are written as method calls."""

    def __init__(self, tools, world="w", prefix="notes-server-", **settings):
        self.episode = Simulator(SglsConfig(**settings)).episode(tools, world)
        self.prefix = prefix

    def __call__(self, name, /, **arguments) -> ToolResult:
        return asyncio.run(self.episode.respond([ToolCall(self.prefix + name, arguments)]))[0]

    def value(self, name, /, **arguments):
        result = self(name, **arguments)
        assert not result.is_error, result.content
        return json.loads(result.content)


def test_what_was_created_is_read_with_its_fields_and_its_id():
    call = Session(NOTES)
    made = call.value("create_note", title="Milk", text="buy two")
    got = call.value("get_note", note_id=made["note_id"])
    assert {"note_id": made["note_id"], "title": "Milk", "text": "buy two"}.items() <= got.items()


def test_a_list_holds_what_was_created_and_a_search_what_fits():
    call = Session(NOTES)
    before = call.value("list_notes")["notes"]
    made = call.value("create_note", title="Milk", text="buy two")
    after = call.value("list_notes")["notes"]
    assert after[1:] == before
    assert (after[0]["id"], after[0]["title"]) == (made["note_id"], "Milk")
    assert made["note_id"] in json.dumps(call.value("search_notes", query="milk"))
    assert made["note_id"] not in json.dumps(call.value("search_notes", query="bread"))


def test_an_update_changes_what_is_read():
    call = Session(NOTES)
    made = call.value("create_note", title="Milk", text="buy two")
    call.value("update_note", note_id=made["note_id"], text="buy three")
    got = call.value("get_note", note_id=made["note_id"])
    assert (got["title"], got["text"]) == ("Milk", "buy three")


def test_an_update_of_a_thing_that_nobody_created_is_remembered_too():
    call = Session(NOTES)
    before = call.value("get_note", note_id="n7")
    call.value("update_note", note_id="n7", text="new")
    after = call.value("get_note", note_id="n7")
    assert before.items() <= after.items()
    assert after["text"] == "new"


def test_what_was_deleted_is_gone_for_every_call_that_names_it():
    call = Session(NOTES)
    made = call.value("create_note", title="Milk", text="buy two")["note_id"]
    call.value("delete_note", note_id=made)
    for name, more in (
        ("get_note", {}),
        ("update_note", {"text": "x"}),
        ("delete_note", {}),
        ("add_comment", {"body": "x"}),
    ):
        assert call(name, note_id=made, **more) == ToolResult(
            f"notes-server-{name}", f'Error: note "{made}" not found.', is_error=True
        )
    assert made not in call("list_notes").content
    assert not call("get_note", note_id="another").is_error


def test_what_was_deleted_can_be_created_again():
    call = Session(
        [
            declared("write_file", path=TEXT, content=TEXT),
            declared("read_file", path=TEXT),
            declared("delete_file", path=TEXT),
        ],
        prefix="",
    )
    call.value("write_file", path="a.txt", content="one")
    call.value("delete_file", path="a.txt")
    assert call("read_file", path="a.txt").is_error
    call.value("write_file", path="a.txt", content="two")
    assert call.value("read_file", path="a.txt")["content"] == "two"


def test_an_item_that_a_list_showed_is_gone_after_its_deletion():
    call = Session(NOTES)
    first, second = call.value("list_notes")["notes"]
    call.value("delete_note", note_id=first["id"])
    assert call.value("list_notes")["notes"] == [second]


def test_names_with_the_verb_at_their_end_are_understood():
    tools = [declared("todo_create", title=TEXT), declared("todo_get", id=TEXT), declared("todo_list")]
    call = Session(tools, prefix="todo_")
    made = [call.value("create", title=title)["todo_id"] for title in ("tea", "milk")]
    assert [item["id"] for item in call.value("list")["results"]][:2] == made[::-1]
    assert call.value("get", id=made[0])["title"] == "tea"


def test_a_read_that_names_nothing_shows_the_newest_of_its_kind():
    call = Session([declared("add_to_cart", item=TEXT), declared("get_cart"), declared("clear_cart")], prefix="")
    empty = call.value("get_cart")
    call.value("add_to_cart", item="tea")
    assert call.value("get_cart")["item"] == "tea"
    call.value("clear_cart")
    assert call.value("get_cart") == empty


def test_servers_do_not_share_things():
    call = Session(NOTES, prefix="")
    made = call.value("notes-server-create_note", title="Milk", text="x")["note_id"]
    assert "Milk" not in call("other-server-get_note", note_id=made).content


def test_a_declared_output_is_filled_from_the_thing_and_kept_to():
    shown = {
        "type": "object",
        "properties": {"id": TEXT, "title": TEXT},
        "required": ["id", "title"],
        "additionalProperties": False,
    }
    output = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": shown, "minItems": 2, "maxItems": 2}},
        "required": ["items"],
    }
    call = Session(
        [
            declared("create_note", shown, title=TEXT, text=TEXT),
            declared("get_note", {"type": "object", "properties": {"note": shown}, "required": ["note"]}, id=TEXT),
            declared("list_notes", output),
        ],
        prefix="",
    )  # fmt: skip
    made = call.value("create_note", title="Milk", text="buy two")
    assert call.value("get_note", id=made["id"]) == {"note": {"id": made["id"], "title": "Milk"}}
    items = call.value("list_notes")["items"]
    assert len(items) == 2
    assert items[0] == {"id": made["id"], "title": "Milk"}


def test_every_episode_starts_over():
    simulator = Simulator(SglsConfig())

    def listed(*calls):
        return asyncio.run(simulator.episode(NOTES, "w").respond([*calls, ToolCall("notes-server-list_notes", {})]))[-1]

    fresh = listed()
    assert listed(ToolCall("notes-server-create_note", {"title": "Milk", "text": "x"})) != fresh
    assert listed() == fresh


def test_only_successful_writes_change_the_digest_and_equal_writes_equally():
    tools = {tool["name"].rsplit("-", 1)[-1]: compile_tool(tool) for tool in NOTES}
    start = State()
    assert start.digest == ""
    assert start.after(tools["get_note"], {"note_id": "a"}, "{}") is start
    made = start.after(tools["create_note"], {"title": "a", "text": "b"}, '{"note_id": "n"}')
    again = start.after(tools["create_note"], {"text": "b", "title": "a"}, '{"note_id": "n"}')
    assert made.digest == again.digest != ""
    assert made.after(tools["delete_note"], {"note_id": "n"}, "{}").digest != made.digest


@pytest.mark.parametrize("content", ["", "[]", "null", "nonsense", '{"a": ' * 5000, '{"note_id": {"b": [1]}}', "NaN"])
def test_whatever_a_write_is_answered_with_is_taken(content):
    tool = compile_tool(NOTES[0])
    state = State().after(tool, {"title": "a", "text": "b"}, content)
    assert [(entity.kind, entity.fields["title"]) for entity in state.entities] == [("note", "a")]


USERS = {"crm": {"users": [{"id": 1, "name": "Ana", "plan": "free"}, {"id": 2, "name": "Bo", "plan": "pro"}]}}
CRM = [
    declared("crm-get_user", user_id={"type": "integer"}),
    declared("crm-list_users"),
    declared("crm-create_user", name=TEXT),
    {"name": "crm-search_users", "parameters": {"properties": {"plan": TEXT}}},
]


def test_clearing_one_server_leaves_the_things_of_another():
    tools = [
        declared(f"{server}-{name}", **parameters)
        for server in ("work", "home")
        for name, parameters in (("create_note", {"text": TEXT}), ("list_notes", {}), ("clear_notes", {}))
    ]
    call = Session(tools, prefix="")
    call.value("work-create_note", text="agenda")
    call.value("home-create_note", text="milk")
    call.value("work-clear_notes")
    assert "agenda" not in call("work-list_notes").content
    assert "milk" in call("home-list_notes").content


def test_seeded_things_are_all_there_are(tmp_path):
    path = tmp_path / "state.json"
    path.write_text(json.dumps(USERS))
    call = Session(CRM, prefix="crm-", initial_state=str(path))
    assert call.value("get_user", user_id=2)["name"] == "Bo"
    assert call("get_user", user_id=3) == ToolResult("crm-get_user", 'Error: user "3" not found.', is_error=True)
    assert [user["name"] for user in call.value("list_users")["users"]] == ["Bo", "Ana"]
    assert [user["name"] for user in call.value("search_users", plan="pro")["users"]] == ["Bo"]
    made = call.value("create_user", name="Cy")
    assert call.value("get_user", user_id=2)["plan"] == "pro"
    assert made["user_id"] in [user["id"] for user in call.value("list_users")["users"]]


def test_seeded_data_is_part_of_the_digest():
    assert seeded(USERS).digest != seeded({"crm": {"users": []}}).digest != seeded({}).digest == ""


@pytest.mark.parametrize(
    "wrong", [[], {"crm": []}, {"crm": {"user": {}}}, {"crm": {"user": ["Ana"]}}, {"crm": {"user": [{}]}}]
)
def test_seeded_data_of_another_shape_is_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        seeded(wrong)


@pytest.mark.parametrize(
    ("name", "more", "effect", "kind"),
    [
        ("get_weather", {}, "read", "weather"),
        ("github-list_pull_requests", {}, "list", "request"),
        ("get_notes", {}, "list", "note"),
        ("createEvent", {}, "create", "event"),
        ("flight-book", {}, "create", "booking"),
        ("book_flight", {}, "create", "booking"),
        ("book_appointment", {}, "create", "appointment"),
        ("get_order_status", {}, "read", "order"),
        ("close_issue", {}, "update", "issue"),
        ("cancel_booking", {}, "update", "booking"),
        ("resolve_ticket", {}, "update", "ticket"),
        ("resolve-library-id", {}, "read", "id"),
        ("todo_create", {}, "create", "todo"),
        ("add_numbers", {"parameters": {"properties": {"a": {"type": "number"}}}}, "read", "number"),
        ("add_to_cart", {"parameters": {"properties": {"item": {"type": "integer"}}}}, "create", "cart"),
        ("addNotes", {"parameters": {"properties": {"notes": {"type": "array"}}}}, "create", "note"),
        ("add_to_cart", {"parameters": {"properties": {"item": TEXT}}}, "create", "cart"),
        ("order_status", {"description": "Gets the status of an order"}, "read", "status"),
        ("pay", {"description": "Transfers money."}, "write", "item"),
        ("lights", {"description": "Sets the lights"}, "update", "light"),
        ("frobnicate", {}, "read", "frobnicate"),
        ("delete_note", {"annotations": {"readOnlyHint": True}}, "read", "note"),
        ("frobnicate", {"annotations": {"readOnlyHint": False}}, "write", "frobnicate"),
        ("frobnicate", {"annotations": {"destructiveHint": False}}, "write", "frobnicate"),
        ("delete_note", {"annotations": {"destructiveHint": True}}, "delete", "note"),
    ],
)
def test_the_effect_of_a_tool_is_told_by_annotations_or_words(name, more, effect, kind):
    action = action_of(compile_tool({"name": name, **more}))
    assert (action.effect, action.kind) == (effect, kind)


def test_the_user_can_say_what_a_tool_does():
    tools = [declared("frobnicate_note", text=TEXT), declared("list_notes")]
    told = Session(tools, prefix="", effects={"frobnicate_note": "create"})
    told.value("frobnicate_note", text="hello")
    assert "hello" in told("list_notes").content
    untold = Session(tools, prefix="")
    untold.value("frobnicate_note", text="hello")
    assert "hello" not in untold("list_notes").content


def test_first_calls_are_answered_as_they_always_were(monkeypatch):
    """The quickstart's data and numbers are built on these answers: a change of the digest is a change of its world."""
    monkeypatch.syspath_prepend(str(QUICKSTART))
    sys.modules.pop("catalog", None)
    from catalog import load_tools

    simulator, digest = Simulator(SglsConfig()), hashlib.sha256()
    for tool in load_tools():
        function = tool.schema["function"]
        for world in range(5):
            call = ToolCall(function["name"], generate_arguments(function["parameters"], world))
            (result,) = asyncio.run(simulator.episode([tool.schema], f"world {world}").respond([call]))
            digest.update(f"{result.name}\x1f{result.content}\x1f{result.is_error}\x1e".encode())
    assert digest.hexdigest() == "582ec46ebfd732d7939606f3cbf66415a7ef7d5bac04ec010dbabfb827478b96"


def test_reads_do_not_change_what_later_reads_are_answered():
    tools = [*NOTES, *CRM, declared("get_weather", city=TEXT)]
    simulator = Simulator(SglsConfig())
    calls = [
        ToolCall("notes-server-get_note", {"note_id": "a"}), ToolCall("notes-server-list_notes", {}),
        ToolCall("crm-list_users", {}), ToolCall("get_weather", {"city": "Oslo"}),
    ]  # fmt: skip
    alone = [asyncio.run(simulator.episode(tools, "w").respond([call]))[0] for call in calls]
    together = asyncio.run(simulator.episode(tools, "w").respond(calls * 3))
    assert list(together) == alone * 3
