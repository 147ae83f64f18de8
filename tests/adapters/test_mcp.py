"""The MCP server, with the SDK's own client: in process, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time

import mcp
import pytest
from served_streams import Served

import fourfold
from fourfold.adapters.mcp import answers, make_server
from fourfold.models.sessions import Payload
from support.documented_json import documented_json

SPACE = "did:example:notes"
TOOLS = {"list", "read", "history", "diff", "search", "transcript", "sql"}


def fill(store):
    """Write a little into every model."""
    space = store.documents.create(SPACE)
    space.indexes.create("texts", ["/text"], kind="text")
    space.set("a", {"text": "folds are pure", "n": 1})
    space.set("b", {"text": "heads are ids"})
    space.set("a", {"text": "folds are pure", "n": 2})
    stream = store.streams.create("orders", "application/json")
    for number in range(3):
        stream.append({"order": number, "note": "fold" if number == 1 else "other"})
    app = store.graphs.create("shop")
    kind = app.register_type("parent", "item")
    app.insert("parent", [{"type_id": kind, "owner_identity": 1}])
    session = store.sessions.create({"id": "chat", "model": "any"})
    session.append({"type": "message/appended", "message": {"role": "user", "content": "Hello"}})
    first = session.publish_head({"kind": "turn-final"})
    long = "A fold. " * 200
    session.append(
        {"type": "message/appended", "message": {"role": "assistant", "content": Payload(long)}}
    )
    second = session.publish_head({"kind": "turn-final"})
    return first.id, second.id


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("mcp") / "store"


@pytest.fixture(scope="module")
def heads(root):
    with fourfold.open(root) as store:
        return fill(store)


@pytest.fixture(scope="module", params=["folder", "server"])
def opened(request, root, heads):
    """Return the same store twice: opened in its folder, and connected to over HTTP."""
    if request.param == "folder":
        with fourfold.open(root, mode="r") as store:
            yield store
        return
    served = Served(root)
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as connected:
        yield connected
    served.kill()


def talk(target, *calls):
    """Connect with the SDK's client, call tools, and return the results."""

    async def converse():
        async with mcp.Client(target) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(converse())


def answer(target, tool, /, **arguments):
    [result] = talk(target, (tool, arguments))
    assert not result.is_error, result.content
    if result.structured_content is None or set(result.structured_content) == {"result"}:
        return result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def failure(target, tool, /, **arguments):
    [result] = talk(target, (tool, arguments))
    assert result.is_error
    return result.content[0].text


@pytest.fixture
def server(opened):
    return make_server(opened)


def test_tools_are_described_as_read_only(server):
    async def describe():
        async with mcp.Client(server) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in asyncio.run(describe())}
    assert tools.keys() == TOOLS
    for tool in tools.values():
        assert tool.annotations.read_only_hint
        assert tool.description
        for name, schema in tool.input_schema["properties"].items():
            assert schema.get("description") or name == "model", (tool.name, name)


def test_list_names_what_every_model_contains(server):
    assert answer(server, "list", model="documents")["items"] == [{"space": SPACE}]
    assert [
        row["id"] for row in answer(server, "list", model="documents", name=SPACE)["items"]
    ] == [
        "a",
        "b",
    ]
    assert answer(server, "list", model="streams")["items"][0]["name"] == "orders"
    assert [row["slug"] for row in answer(server, "list", model="graphs")["items"]] == [
        "shop",
        "system",
    ]
    assert len(answer(server, "list", model="graphs", name="shop")["items"]) == 1
    assert [row["id"] for row in answer(server, "list", model="sessions")["items"]] == ["chat"]
    names = [row["name"] for row in answer(server, "list", model="tables", limit=200)["items"]]
    assert {"documents_state", "sessions_messages"} <= set(names)


def test_list_continues_after_a_page(server):
    names, after = [], ""
    while True:
        page = answer(server, "list", model="tables", limit=3, after=after)
        names += [row["name"] for row in page["items"]]
        if page["complete"]:
            break
        after = page["next_after"]
    assert names == [
        row["name"] for row in answer(server, "list", model="tables", limit=200)["items"]
    ]
    assert len(names) > 3
    page = answer(server, "list", model="documents", name=SPACE, limit=1)
    assert (page["items"], page["next_after"]) == ([{"id": "a"}], "a")
    assert answer(server, "list", model="documents", name=SPACE, after="a")["items"] == [
        {"id": "b"}
    ]


def test_read_returns_the_state_now_and_in_the_past(server, heads):
    now = answer(server, "read", model="documents", name=SPACE, id="a")
    assert (now["document"]["n"], now["op"]) == (2, "set")
    seq = answer(server, "history", model="documents", name=SPACE, id="a")["items"][0]["seq"]
    then = answer(server, "read", model="documents", name=SPACE, id="a", at=str(seq))
    assert then["document"]["n"] == 1
    records = answer(server, "read", model="streams", name="orders", offset="1", limit=1)
    assert json.loads(records["items"][0]["payload"])["order"] == 1
    assert (records["next_offset"], records["up_to_date"]) == (2, False)
    item = answer(server, "list", model="graphs", name="shop")["items"][0]
    row = answer(server, "read", model="graphs", name="shop", id=f"parent:{item['object_id']}")
    assert row["type_id"] == item["type_id"]
    view = answer(server, "read", model="sessions", name="chat", at=heads[0])
    assert (view["counters"]["message"], view["session"]["model"]) == (1, "any")
    assert answer(server, "read", model="sessions", name="chat")["counters"]["message"] == 2


def test_history_and_diff_show_changes(server, heads):
    rows = answer(server, "history", model="documents", name=SPACE, id="a")["items"]
    assert [row["data"]["n"] for row in rows if row["op"] == "set"] == [1, 2]
    rows = answer(server, "history", model="sessions", name="chat", after=1, limit=1)
    assert (rows["items"][0]["type"], rows["next_after"]) == ("message/appended", 2)
    first = answer(server, "history", model="documents", name=SPACE, id="a")["items"][0]["seq"]
    difference = answer(server, "diff", model="documents", name=SPACE, one=str(first), id="a")
    assert difference["items"][0]["patches"] == [{"op": "replace", "path": "/n", "value": 2}]
    compared = answer(server, "diff", model="sessions", name="chat", one=heads[0])
    assert compared["other"] == heads[1]
    assert [message["role"] for message in compared["new_messages"]] == ["assistant"]


def test_search_transcript_and_sql(server):
    hits = answer(server, "search", model="documents", name=SPACE, query="folds")["items"]
    assert [hit["id"] for hit in hits] == ["a"]
    hits = answer(server, "search", model="streams", name="orders", query="fold")["items"]
    assert len(hits) == 1
    text = answer(server, "transcript", session="chat")
    assert text.startswith("# Session chat\n")
    assert "> A fold. A fold." in text
    assert "A fold." not in answer(server, "transcript", session="chat", at="2")
    result = answer(server, "sql", query="select id from documents_state order by id")
    assert (result["columns"], result["rows"], result["truncated"]) == (
        ["id"],
        [["a"], ["b"]],
        False,
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("read", {"model": "documents", "name": SPACE, "id": "z"}, "not_found"),
        ("read", {"model": "documents", "name": SPACE}, "invalid_input"),
        ("read", {"model": "documents", "name": SPACE, "id": "a", "at": "soon"}, "invalid_input"),
        ("read", {"model": "sessions", "name": "unknown"}, "not_found"),
        ("read", {"model": "graphs", "name": "shop", "id": "x:1"}, "invalid_input"),
        ("read", {"model": "streams", "name": "orders", "at": "1"}, "invalid_input"),
        ("list", {"model": "streams", "name": "orders"}, "invalid_input"),
        ("transcript", {"session": "chat", "at": "99"}, "not_found"),
        ("sql", {"query": "select * from nowhere"}, "not_found"),
        ("sql", {"query": "delete from documents_state"}, "invalid_input"),
    ],
)
def test_failure_is_a_result_with_its_kind(server, tool, arguments, kind):
    assert f"error[{kind}]: " in failure(server, tool, **arguments)


def test_failure_has_its_hint(server):
    assert "\nhint: Use list to see the ids." in failure(
        server, "read", model="documents", name=SPACE
    )


def test_invalid_arguments_are_refused_before_the_store_is_read(server):
    assert "limit" in failure(server, "list", model="streams", limit=0)
    assert "limit" in failure(server, "sql", query="select 1", limit=100_000)
    assert "model" in failure(server, "list", model="files")


def test_answers_have_a_limited_size(tmp_path):
    with fourfold.open(tmp_path / "large") as store:
        space = store.documents.create(SPACE)
        space.set("large", {"text": "é" * 200_000})
        for number in range(40):
            space.set(f"d{number:02}", {"text": "x" * 5_000})
        session = store.sessions.create({"id": "s", "note": "n" * 90_000})
        for number in range(100):
            content = f"{number} " + "y" * 3_000
            session.append({"type": "message/appended", "message": {"content": Payload(content)}})
        server = make_server(store)
        calls = [
            ("read", {"model": "documents", "name": SPACE, "id": "large"}),
            ("read", {"model": "sessions", "name": "s"}),
            ("history", {"model": "sessions", "name": "s", "limit": 200}),
            ("diff", {"model": "documents", "name": SPACE, "one": "0", "limit": 200}),
            ("transcript", {"session": "s", "limit": 200}),
            ("sql", {"query": "select id, document from documents_state", "limit": 200}),
        ]
        for (name, _), result in zip(calls, talk(server, *calls), strict=True):
            assert not result.is_error, (name, result.content)
            size = len(result.content[0].text.encode())
            assert size < 2 * answers.ANSWER_BYTES_MAX, name
        large = answer(server, "read", model="documents", name=SPACE, id="large")
        assert large["document"]["truncated"]
        assert large["document"]["bytes"] > 400_000
        rows = answer(server, "sql", query="select id, document from documents_state", limit=200)
        assert rows["truncated"]
        assert "98 y" not in answer(server, "transcript", session="s", limit=1)
        assert "99 y" in answer(server, "transcript", session="s", limit=200)


def test_calling_tools_changes_nothing(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        fill(store)
        before = [store.sessions.position(), store.documents.open(SPACE).log()[-1].seq]
        server = make_server(store)
        answer(server, "read", model="documents", name=SPACE, id="a")
        failure(server, "sql", query="insert into documents_state values (1)")
        failure(server, "list", model="graphs", name="new")
        failure(server, "read", model="documents", name="did:example:new", id="a")
        after = [store.sessions.position(), store.documents.open(SPACE).log()[-1].seq]
        assert (after, store.spaces()) == (before, [SPACE])


def arguments_of(root, *options):
    return ["-m", "fourfold", "mcp", str(root), *options]


def test_client_reads_over_stdio_while_this_process_writes(tmp_path):
    root = tmp_path / "store"
    # The SDK hands on few variables; the tests may need the path of these sources.
    target = mcp.StdioServerParameters(
        command=sys.executable, args=arguments_of(root), env=dict(os.environ)
    )
    with fourfold.open(root) as store:
        fill(store)
        assert answer(target, "list", model="documents")["items"] == [{"space": SPACE}]
        assert "error[not_found]" in failure(target, "transcript", session="unknown")
        store.documents.open(SPACE).set("c", {"text": "new"})
        assert answer(target, "read", model="documents", name=SPACE, id="c")["document"] == {
            "text": "new"
        }


def test_client_reads_a_store_over_http(root, heads):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    target = f"http://127.0.0.1:{port}/mcp"
    command = [sys.executable, *arguments_of(root, "--http", "--port", str(port), "--json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for(port)
            assert answer(target, "list", model="documents")["items"] == [{"space": SPACE}]
            assert "error[not_found]" in failure(target, "transcript", session="unknown")
            assert answer(target, "transcript", session="chat").startswith("# Session chat")
        finally:
            process.terminate()
        printed = json.loads(process.stdout.read())
        assert printed == {"root": str(root), "url": target}
        assert printed.keys() == documented_json("mcp").keys()


def wait_for(port):
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return


def test_http_listens_on_this_machine_only(root, heads):
    command = [sys.executable, *arguments_of(root, "--http", "--host", "0.0.0.0")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "error[refused]" in done.stderr
