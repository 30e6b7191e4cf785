"""What a response has shown is true from then on, whichever tool shows it next."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.sgls.backends import BackendResponse
from verl_slca.sgls.simulator import SglsConfig, Simulator
from verl_slca.trajectory import ToolCall, ToolResult

TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
STATES = {"enum": ["open", "closed"]}


def tool(name, output=None, /, *, optional=(), description="", **parameters) -> dict:
    required = [key for key in parameters if key not in optional]
    declared = {"name": name, "description": description}
    declared["parameters"] = {"type": "object", "properties": parameters, "required": required}
    return declared | ({"outputSchema": output} if output else {})


def shape(**properties) -> dict:
    return {"type": "object", "properties": properties, "required": list(properties)}


def many(item, name="") -> dict:
    items = {"type": "array", "items": item, "minItems": 1}
    return shape(**{name: items}) if name else items


class Session:
    """One episode, whose calls are written as method calls."""

    def __init__(self, tools, world="w", backend=None, **config):
        self.episode = Simulator(SglsConfig(**config), backend).episode(tools, world)

    def result(self, name, /, **arguments) -> ToolResult:
        return asyncio.run(self.episode.respond([ToolCall(name, arguments)]))[0]

    def __call__(self, name, /, **arguments):
        result = self.result(name, **arguments)
        assert not result.is_error, result.content
        return json.loads(result.content)


def shared(one, other) -> list[tuple]:
    """The values of the fields that two objects have in common, side by side."""
    return [(name, one[name], other[name]) for name in one if name in other]


def agree(one, other) -> bool:
    return all(a == b for _, a, b in shared(one, other)) and len(shared(one, other)) > 1


ISSUE = shape(number=WHOLE, title=TEXT, state=STATES, comments=WHOLE, author=TEXT)
ISSUES = [
    tool("list_issues", many(ISSUE, "issues")),
    tool("search_issues", many(ISSUE, "items"), query=TEXT),
    tool("get_issue", ISSUE, issue_number=WHOLE),
    tool("create_issue", ISSUE, title=TEXT, author=TEXT),
    tool("update_issue", ISSUE, optional=("title", "state"), issue_number=WHOLE, title=TEXT, state=STATES),
    tool("close_issue", shape(success={"type": "boolean"}), issue_number=WHOLE),
]


@pytest.mark.parametrize("world", [str(n) for n in range(30)])
def test_a_listed_thing_has_the_same_fields_when_it_is_got(world):
    call = Session(ISSUES, world)
    for issue in call("list_issues")["issues"] + call("search_issues", query="login")["items"]:
        assert call("get_issue", issue_number=issue["number"]) == issue


@pytest.mark.parametrize("world", [str(n) for n in range(10)])
def test_tools_that_declare_no_output_agree_too(world):
    call = Session([tool("list_issues"), tool("get_issue", issue_id=WHOLE), tool("search_issues", q=TEXT)], world)
    for issue in call("list_issues")["issues"] + call("search_issues", q="login")["issues"]:
        assert agree(call("get_issue", issue_id=issue["id"]), {**issue, "issue_id": issue["id"]})


@pytest.mark.parametrize("got", ["id", "issue_id", "issueId", "number", "issueNumber", "issue_number", "issue", "key"])
@pytest.mark.parametrize("listed", ["id", "number", "issue_id", "issueNumber"])
@pytest.mark.parametrize("wrapper", ["issues", "items", "results", "data", ""])
def test_one_kind_may_be_identified_by_fields_of_many_names(got, listed, wrapper):
    item = shape(**{listed: WHOLE, "title": TEXT, "priority": {"enum": ["low", "high"]}})
    call = Session(
        [tool("list_issues", many(item, wrapper)), tool("get_issue", shape(title=TEXT, priority=TEXT), **{got: WHOLE})]
    )
    answer = call("list_issues")
    for issue in answer[wrapper] if wrapper else answer:
        assert agree(call("get_issue", **{got: issue[listed]}), issue)


@pytest.mark.parametrize("wrapper", ["issue", "data", "result"])
def test_a_thing_inside_a_wrapper_is_the_same_thing(wrapper):
    item = shape(id=TEXT, title=TEXT, status=TEXT)
    call = Session(
        [
            tool("list_issues", shape(data=shape(issues=many(item), total=WHOLE))),
            tool("get_issue", shape(**{wrapper: item}), id=TEXT),
        ]
    )
    for issue in call("list_issues")["data"]["issues"]:
        assert call("get_issue", id=issue["id"])[wrapper] == issue


def test_an_identifier_is_of_the_type_that_the_tools_ask_for():
    call = Session([tool("list_issues"), tool("get_issue", issue_number=WHOLE), tool("create_issue", title=TEXT)])
    assert all(isinstance(issue["id"], int) for issue in call("list_issues")["issues"])
    assert isinstance(call("create_issue", title="Login fails")["issue_id"], int)


def test_one_field_satisfies_every_tool_that_shows_it():
    loose, strict = (
        shape(id=TEXT, priority=TEXT, size=NUMBER),
        shape(id=TEXT, priority={"enum": ["p1", "p2"]}, size=WHOLE),
    )
    for world in map(str, range(10)):
        call = Session([tool("list_jobs", many(loose, "jobs")), tool("get_job", strict, job_id=TEXT)], world)
        for job in call("list_jobs")["jobs"]:
            assert call("get_job", job_id=job["id"]) == job


@pytest.mark.parametrize("world", [str(n) for n in range(10)])
def test_a_created_thing_reads_the_same_by_get_list_and_search(world):
    call = Session(ISSUES, world)
    made = call("create_issue", title="Login fails", author="Ana")
    assert (made["title"], made["author"]) == ("Login fails", "Ana")
    assert call("get_issue", issue_number=made["number"]) == made
    assert call("list_issues")["issues"][0] == made
    assert call("search_issues", query="login")["items"][0] == made


def test_two_things_created_alike_are_two_things():
    call = Session([tool("create_note", text=TEXT), tool("list_notes")])
    ids = [call("create_note", text="milk")["note_id"] for _ in range(3)]
    assert len(set(ids)) == 3
    assert {note["id"] for note in call("list_notes")["notes"]} >= set(ids)


def test_a_search_finds_what_a_list_has_shown():
    call = Session(ISSUES)
    for issue in call("list_issues")["issues"]:
        assert issue in call("search_issues", query=issue["title"])["items"]


def test_a_filtered_list_holds_what_fits_and_nothing_takes_the_place_of_what_no_longer_does():
    tools = [
        tool("list_issues", many(ISSUE, "issues") | {"required": []}, optional=("state",), state=STATES),
        *ISSUES[2:],
    ]
    tools[0]["outputSchema"]["properties"]["issues"]["minItems"] = 0
    for world in map(str, range(10)):
        call = Session(tools, world)
        opened = call("list_issues", state="open")["issues"]
        assert opened
        assert {issue["state"] for issue in opened} == {"open"}
        for issue in opened:
            call("close_issue", issue_number=issue["number"])
        assert call("list_issues", state="open")["issues"] == []


@pytest.mark.parametrize("limit", [1, 2])
def test_a_list_holds_no_more_than_was_asked_for(limit):
    tools = [tool("list_notes", limit=WHOLE), tool("create_note", text=TEXT)]
    call = Session(tools)
    for text in ("one", "two", "three"):
        call("create_note", text=text)
    assert len(call("list_notes", limit=limit)["notes"]) == limit


BOTH = shape(id=TEXT, status=TEXT, state=STATES, closed={"type": "boolean"})


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        ("update_issue", {"state": "closed"}),
        ("set_issue_status", {"status": "closed"}),
        ("close_issue", {}),
    ],
)
@pytest.mark.parametrize("seen_before", [False, True])
def test_one_state_under_several_names_moves_together(change, arguments, seen_before):
    tools = [
        tool("list_issues", many(BOTH, "issues")),
        tool("get_issue", BOTH, id=TEXT),
        tool(change, id=TEXT, **dict.fromkeys(arguments, TEXT)),
    ]
    for world in map(str, range(10)):
        call = Session(tools, world)
        issue_id = call("list_issues")["issues"][0]["id"] if seen_before else "i7"
        call(change, id=issue_id, **arguments)
        got = call("get_issue", id=issue_id)
        assert (got["status"], got["state"], got["closed"]) == ("closed", "closed", True)


def test_one_state_under_several_names_is_one_from_the_start():
    issue = shape(id=TEXT, status=STATES, state=STATES, closed={"type": "boolean"})
    for world in map(str, range(20)):
        got = Session([tool("get_issue", issue, id=TEXT)], world)("get_issue", id="i7")
        assert (got["status"] == "closed") == (got["state"] == "closed") == got["closed"]


def test_a_state_in_an_address_is_no_status():
    address = shape(id=TEXT, street=TEXT, city=TEXT, state=TEXT, status=TEXT)
    call = Session([tool("get_shop", address, id=TEXT), tool("update_shop", id=TEXT, status=TEXT)])
    before = call("get_shop", id="s1")
    call("update_shop", id="s1", status="closed")
    after = call("get_shop", id="s1")
    assert (after["state"], after["status"]) == (before["state"], "closed")


@pytest.mark.parametrize(
    ("verb", "status"), [("cancel", "cancelled"), ("archive", "archived"), ("approve", "approved"), ("pause", "paused")]
)
def test_what_was_done_to_a_thing_is_its_status_and_does_not_remove_it(verb, status):
    call = Session(
        [
            tool("create_booking", guest=TEXT),
            tool("get_booking", booking_id=TEXT),
            tool(f"{verb}_booking", booking_id=TEXT),
        ]
    )
    made = call("create_booking", guest="Ana")["booking_id"]
    assert call(f"{verb}_booking", booking_id=made)["status"] == status
    got = call("get_booking", booking_id=made)
    assert (got["status"], got["guest"]) == (status, "Ana")


def test_a_side_of_a_thing_agrees_with_the_whole_of_it():
    call = Session(
        [
            tool("get_order", shape(order_id=TEXT, status=TEXT, total=NUMBER), order_id=TEXT),
            tool("get_order_status", shape(orderStatus=TEXT), order_id=TEXT),
            tool("get_order_total", shape(total=NUMBER), order_id=TEXT),
        ]
    )
    order = call("get_order", order_id="o1")
    assert call("get_order_status", order_id="o1") == {"orderStatus": order["status"]}
    assert call("get_order_total", order_id="o1") == {"total": order["total"]}


def test_a_field_that_depends_on_more_than_the_thing_may_differ():
    call = Session([tool("get_rate", shape(price=NUMBER), room_id=TEXT, date=TEXT)])
    prices = {call("get_rate", room_id="r1", date=f"2024-01-0{day}")["price"] for day in range(1, 8)}
    assert len(prices) > 1


STOCK = shape(product_id=TEXT, stock=WHOLE)
SHOP = [
    tool("get_stock", STOCK, product_id=TEXT),
    tool("list_products", many(shape(id=TEXT, name=TEXT, stock=WHOLE), "products")),
    tool("place_order", shape(order_id=TEXT), product_id=TEXT, quantity=WHOLE),
    tool("restock_product", product_id=TEXT, quantity=WHOLE),
]


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_stock_changes_by_what_was_ordered_and_restocked(seen_before):
    before = Session(SHOP)("get_stock", product_id="p1")["stock"]
    call = Session(SHOP)
    if seen_before:
        assert call("get_stock", product_id="p1")["stock"] == before
    call("place_order", product_id="p1", quantity=3)
    assert call("get_stock", product_id="p1")["stock"] == before - 3
    call("place_order", product_id="p1", quantity=4)
    call("restock_product", product_id="p1", quantity=2)
    assert call("get_stock", product_id="p1")["stock"] == before - 5
    call("place_order", product_id="p1", quantity=1000)
    assert call("get_stock", product_id="p1")["stock"] == 0


def test_a_stock_that_a_list_shows_changes_as_well():
    call = Session(SHOP)
    first, *others = call("list_products")["products"]
    call("place_order", product_id=first["id"], quantity=2)
    assert call("list_products")["products"] == [{**first, "stock": first["stock"] - 2}, *others]
    assert call("get_stock", product_id=first["id"])["stock"] == first["stock"] - 2


def test_an_order_of_several_products_lowers_each_stock():
    line = shape(product_id=TEXT, quantity=WHOLE)
    call = Session([*SHOP, tool("create_order", shape(order_id=TEXT), items={"type": "array", "items": line})])
    before = {p: call("get_stock", product_id=p)["stock"] for p in ("p1", "p2")}
    call("create_order", items=[{"product_id": "p1", "quantity": 1}, {"product_id": "p2", "quantity": 5}])
    assert call("get_stock", product_id="p1")["stock"] == before["p1"] - 1
    assert call("get_stock", product_id="p2")["stock"] == before["p2"] - 5


def test_a_transfer_moves_money_from_one_account_to_the_other():
    account = shape(account_id=TEXT, balance={"type": "number", "minimum": 100})
    call = Session(
        [
            tool("get_account", account, account_id=TEXT),
            tool("get_balance", shape(balance=NUMBER), account_id=TEXT),
            tool("transfer", from_account_id=TEXT, to_account_id=TEXT, amount=NUMBER),
            tool("deposit", account_id=TEXT, amount=NUMBER),
        ]
    )
    a, b = (call("get_account", account_id=name)["balance"] for name in "ab")
    call("transfer", from_account_id="a", to_account_id="b", amount=5)
    call("deposit", account_id="b", amount=1)
    assert call("get_balance", account_id="a")["balance"] == pytest.approx(a - 5)
    assert call("get_account", account_id="b")["balance"] == pytest.approx(b + 6)


def test_rollouts_of_a_group_see_one_world_in_whatever_order_they_look():
    first, other = Session(ISSUES), Session(ISSUES)
    issues = first("list_issues")["issues"]
    assert [other("get_issue", issue_number=issue["number"]) for issue in issues] == issues
    assert other("list_issues")["issues"] == issues


class Scripted:
    """A backend that says what it was told to, as a model would that forgets what it said."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    async def respond(self, request):
        self.requests.append(request)
        return BackendResponse(json.dumps(self.answers.pop(0)))


LOOSE = [
    tool("list_issues"),
    tool("get_issue", issue_id=WHOLE),
    tool("update_issue", issue_id=WHOLE, state=TEXT),
    tool("delete_issue", issue_id=WHOLE),
]


def test_a_backend_that_contradicts_itself_is_corrected():
    listed = {
        "issues": [{"id": 7, "title": "Login fails", "state": "open"}, {"id": 8, "title": "Typo", "state": "open"}]
    }
    call = Session(
        LOOSE, backend=Scripted(listed, {"issue": {"number": 7, "title": "Crash", "status": "closed", "votes": 3}})
    )
    call("list_issues")
    assert call("get_issue", issue_id=7) == {
        "issue": {"number": 7, "title": "Login fails", "status": "open", "votes": 3}
    }


def test_a_backend_that_forgets_what_was_done_is_corrected():
    listed = {
        "issues": [{"id": 7, "title": "Login fails", "state": "open"}, {"id": 8, "title": "Typo", "state": "open"}]
    }
    call = Session(LOOSE, backend=Scripted(listed, {"success": True}, {"success": True}, listed))
    call("list_issues")
    call("update_issue", issue_id=7, state="closed")
    call("delete_issue", issue_id=8)
    assert call("list_issues") == {"issues": [{"id": 7, "title": "Login fails", "state": "closed"}]}


def test_a_correction_that_the_output_schema_forbids_is_not_made():
    tools = [LOOSE[0], tool("get_issue", shape(id=WHOLE, state={"enum": ["red", "green"]}), issue_id=WHOLE)]
    call = Session(tools, backend=Scripted({"issues": [{"id": 7, "state": "open"}]}, {"id": 7, "state": "red"}))
    call("list_issues")
    assert call("get_issue", issue_id=7) == {"id": 7, "state": "red"}


def test_the_backend_is_told_what_was_shown():
    backend = Scripted({"issues": [{"id": 7, "title": "Login fails"}]}, {"id": 7})
    call = Session(LOOSE, backend=backend)
    call("list_issues")
    call("get_issue", issue_id=7)
    (known,) = backend.requests[-1].state.entities
    assert (known.kind, known.id, known.shown["title"]) == ("issue", "7", "Login fails")


def test_what_a_recording_has_shown_binds_the_rules(tmp_path):
    path = tmp_path / "recording.jsonl"
    listed = {"issues": [{"id": 7, "title": "Login fails", "state": "open", "author": "Zoe"}]}
    path.write_text(json.dumps({"tool": "list_issues", "arguments": {}, "response": json.dumps(listed)}))
    call = Session(LOOSE, backends=("replay", "rules"), replay=str(path))
    assert call("list_issues") == listed
    assert agree(call("get_issue", issue_id=7), listed["issues"][0] | {"issue_id": 7, "status": "open"})


@dataclass
class Api:
    """A made-up CRUD API: how its tools are called and what their fields are."""

    kind: str
    camel: bool
    declared: bool
    asked: str
    listed: str
    whole: bool
    wrapper: str
    state: str
    tools: list = field(default_factory=list)

    def name(self, verb, plural=False) -> str:
        noun = self.kind + "s" * plural
        return verb + noun.capitalize() if self.camel else f"{verb}_{noun}"

    def __post_init__(self):
        asked = self.asked.replace("KIND", self.kind)
        listed = self.listed.replace("KIND", self.kind)
        ids = WHOLE if self.whole else TEXT
        item = shape(**{listed: ids, "title": TEXT, self.state: STATES, "owner": TEXT, "votes": WHOLE})
        out = (lambda schema: schema) if self.declared else (lambda schema: None)
        self.asked, self.listed_name = asked, listed
        self.tools = [
            tool(self.name("list", True), out(many(item, self.wrapper) | {}) if self.declared else None),
            tool(self.name("search", True), out(many(item, self.wrapper)), query=TEXT),
            tool(self.name("get"), out(item), **{asked: ids}),
            tool(self.name("create"), out(item), title=TEXT, owner=TEXT),
            tool(
                self.name("update"),
                out(item),
                optional=("title", "state"),
                **{asked: ids, "title": TEXT, "state": STATES},
            ),
            tool(self.name("close"), out(item), **{asked: ids}),
            tool(self.name("delete"), out(shape(success={"const": True})), **{asked: ids}),
        ]
        for listing in self.tools[:2]:
            if self.declared:
                schema = listing["outputSchema"]
                (schema["properties"][self.wrapper] if self.wrapper else schema)["minItems"] = 0


APIS = st.builds(
    Api,
    kind=st.sampled_from(["issue", "note", "ticket", "recipe"]),
    camel=st.booleans(),
    declared=st.booleans(),
    asked=st.sampled_from(["id", "KIND_id", "KINDId", "KINDNumber", "number", "KIND"]),
    listed=st.sampled_from(["id", "KIND_id", "number", "KINDNumber"]),
    whole=st.booleans(),
    wrapper=st.sampled_from(["items", "results", "data"]),
    state=st.sampled_from(["state", "status"]),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["list", "search", "get", "create", "update", "close", "delete"]), st.integers(0, 20)),
    min_size=3,
    max_size=12,
)
SAME = {"status": "state", "number": "id"}


class Ledger:
    """All that was shown and done, kept by the test itself."""

    def __init__(self, api):
        self.api, self.known, self.gone = api, {}, set()

    def plain(self, shown) -> dict:
        own = {self.api.kind + suffix: "id" for suffix in ("", "_id", "Id", "Number")}
        names = {**SAME, **own}
        return {
            names.get(name, name): value
            for name, value in shown.items()
            if name not in ("success", "created_at", "updated_at", "query")
        }

    def see(self, shown, **changes):
        values = self.plain(shown)
        key = str(values.get("id", changes.pop("key", None)))
        known = self.known.setdefault(key, {})
        known |= changes
        assert key not in self.gone
        for name, value in values.items():
            if name != "id":
                assert known.setdefault(name, value) == value, (key, name, known, shown)


@settings(max_examples=150, deadline=None)
@given(api=APIS, steps=STEPS, world=st.integers(0, 10**6))
def test_whatever_is_done_in_whatever_order_one_thing_has_one_set_of_values(api, steps, world):
    call, ledger = Session(api.tools, str(world)), Ledger(api)
    for verb, number in steps:
        alive = sorted(set(ledger.known) - ledger.gone)
        if verb in ("list", "search"):
            arguments = {"query": "login"} if verb == "search" else {}
            answer = call(api.name(verb, True), **arguments)
            items = next(
                value
                for value in ([answer] if isinstance(answer, list) else answer.values())
                if isinstance(value, list)
            )
            for item in items:
                ledger.see(item)
            if verb == "list":
                made = {key for key, values in ledger.known.items() if values.get("made")} - ledger.gone
                assert made <= {str(ledger.plain(item)["id"]) for item in items}
        elif verb == "create":
            made = {"title": f"Login {number}", "owner": "Ana"}
            ledger.see(call(api.name("create"), **made), **made, made=True)
        elif alive:
            key = alive[number % len(alive)]
            identifier = {api.asked: int(key) if api.whole else key}
            if verb == "get":
                ledger.see(call(api.name("get"), **identifier), key=key)
            elif verb == "update":
                change = {"title": f"New {number}"} if number % 2 else {"state": ["open", "closed"][number % 4 // 2]}
                ledger.see(call(api.name("update"), **identifier, **change), key=key, **change)
            elif verb == "close":
                ledger.see(call(api.name("close"), **identifier), key=key, state="closed")
            else:
                call(api.name("delete"), **identifier)
                ledger.gone.add(key)
                assert call.result(api.name("get"), **identifier).is_error
