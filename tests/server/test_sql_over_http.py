"""SQL over HTTP: formats, keys, limits, and hostile queries against a real server."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import http.client
import io
import json
import os
import secrets
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from served_streams import Served

import fourfold
from fourfold.cli.main import run as run_command
from fourfold.client import AsyncRemoteStore
from fourfold.errors import DeadlineExceeded, InvalidInput, NotFound
from fourfold.kernel.pauses import BACKGROUND_NICE
from fourfold.query.engine import all_tables
from fourfold.server.key_store import NAMED_MODELS, Grant, Key, KeyStore
from fourfold.server.query_pool import QUERIES_WAITING

A, B = "did:web:a.example", "did:web:b.example"
PREFIXES = {"documents": "did:web:a", "streams": "ord", "sessions": "mine/", "graphs": "shop"}
ENDLESS = "with recursive c(n) as (select 1 union all select n + 1 from c)"
MANY = "with recursive c(n) as (select 1 union all select n + 1 from c where n < 10000)"
SMALL = {"FOURFOLD_SERVER_QUERY_MEMORY_BYTES": str(64 * 2**20)}


def fill(root):
    """Create a store in which each model has names with and without a prefix."""
    with fourfold.open(root) as store:
        for did in (A, B):
            store.space(did).set("n1", {"title": did})
        for name in ("orders", "secret"):
            stream = store.streams.create(name, content_type="application/json")
            stream.append({"type": "t", "key": "k", "value": name})
        for sid in ("mine/1", "other/1"):
            store.sessions.create({"id": sid})
            message = {"role": "user", "content": sid}
            store.sessions.append_event(sid, {"type": "message/appended", "message": message})
        for slug in ("shop", "bank"):
            app = store.graphs.create(slug, slug)
            note = app.register_type("parent", "note")
            app.insert("parent", [{"type_id": note, "owner_identity": 1}])


@pytest.fixture(scope="module")
def open_server(tmp_path_factory):
    """A server without keys whose queries have little memory."""
    root = tmp_path_factory.mktemp("sql") / "store"
    fill(root)
    server = Served(root, environment=SMALL)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def keyed_server(tmp_path_factory):
    root = tmp_path_factory.mktemp("keyed") / "store"
    fill(root)
    add_key(root, Grant("store", ("admin",)))
    server = Served(root)
    yield server
    server.kill()


def add_key(root, *grants):
    secret = f"ff_{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    store = KeyStore(root)
    store.add(Key(secrets.token_hex(4), digest, grants))
    store.close()
    return secret


def ask(server, query, key=None, accept=None, **body):
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    if accept is not None:
        headers["accept"] = accept
    sent = json.dumps({"query": query, **body}).encode()
    response = server.ask("POST", "/v1/sql", sent, headers)
    if accept is None:
        response.value = json.loads(response.text)
    return response


def children(server):
    """Return the ids of the processes of queries of a server."""
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    ids = {int(child) for task in tasks for child in _read(task / "children").split()}
    return {child for child in ids if b"query_process" in _read(Path(f"/proc/{child}/cmdline"))}


def _read(path):
    """Return the content of a file of a process; nothing if the process has ended."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_result_has_columns_with_types_rows_and_cut(open_server):
    answer = ask(open_server, "select space, seq, 1 as one from documents_state order by 1")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert (answer.headers["query-rows"], answer.headers["query-truncated"]) == ("2", "false")
    assert answer.value == {
        "columns": [
            {"name": "space", "type": "string"},
            {"name": "seq", "type": "bigint"},
            {"name": "one", "type": None},
        ],
        "rows": [[A, 1, 1], [B, 1, 1]],
        "cut": {f"spaces/{A}": 1, f"spaces/{B}": 1},
        "truncated": False,
        "warnings": [],
    }


def test_options_of_a_query_are_applied(open_server):
    count = "select count(*) from state"
    assert ask(open_server, count, model="documents", space=A, at=0).value["rows"] == [[0]]
    assert ask(open_server, count, model="documents", at="2020-01-01").value["rows"] == [[0]]
    assert ask(open_server, count, at="nowhere", model="documents").status == 404
    assert ask(open_server, "select ?, :b", params=[1]).status == 400
    values = [None, 1, 1.5, "x", {"base64": "AP8="}]
    answer = ask(open_server, "select ?, ?, ?, ?, ?, 9e999", params=values)
    assert answer.value["rows"] == [[*values, {"number": "inf"}]]
    assert ask(open_server, "select :a", params={"a": "x"}).value["rows"] == [["x"]]
    for wrong in ([[]], [{}], [{"base64": "*"}], [{"number": "1"}], [2**70]):
        assert ask(open_server, "select ?", params=wrong).status == 400
    answer = ask(open_server, f"{ENDLESS} select n from c", max_rows=3)
    assert (answer.value["rows"], answer.value["truncated"]) == ([[1], [2], [3]], True)
    assert ask(open_server, "select 1", timeout_s=0).status == 400


def test_formats_follow_accept(open_server):
    query = "select id, seq, x'00ff' as b, null as n, 'a,\"b' as t from documents_state limit 1"
    lines = ask(open_server, query, accept="application/x-ndjson").text
    row = {"id": "n1", "seq": 1, "b": {"base64": "AP8="}, "n": None, "t": 'a,"b'}
    assert [json.loads(line) for line in lines.splitlines()] == [row]
    answer = ask(open_server, query, accept="text/csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert list(csv.reader(io.StringIO(answer.text.decode()))) == [
        ["id", "seq", "b", "n", "t"],
        ["n1", "1", "AP8=", "", 'a,"b'],
    ]
    answer = ask(open_server, query, accept="application/vnd.apache.arrow.stream")
    table = pa.ipc.open_stream(answer.text).read_all()
    assert table.select(["id", "seq", "b"]).to_pylist() == [{"id": "n1", "seq": 1, "b": b"\0\xff"}]
    assert str(table.schema.field("seq").type) == "int64"
    cut = json.loads(table.schema.metadata[b"cut"])
    assert cut == {f"spaces/{A}": 1, f"spaces/{B}": 1}


HOSTILE = [
    "attach 'x.db' as y",
    "detach main",
    "pragma table_list",
    "select * from pragma_table_list",
    "begin",
    "savepoint s",
    "create table x (a)",
    "analyze",
    "vacuum into 'copy.db'",
    "select load_extension('x')",
    "select * from dbstat",
    "select * from sqlite_schema",
    "select * from wal_log",
    "select 1; select 2",
    "select zeroblob(1000000000)",
    "select printf('%.*c', 1000000000, 'x')",
    "",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_queries_that_are_not_plain_reads_are_refused(open_server, query):
    answer = ask(open_server, f"{query} /* documents_state streams_records */")
    assert answer.status in {400, 404, 409}
    assert str(open_server.root) not in answer.text.decode()


BOMBS = [
    f"{ENDLESS} select count(*) from (select n from c order by -n)",
    f"{MANY} select group_concat(hex(n) || printf('%.*c', 10000, 'x')) from c",
    f"{ENDLESS}, m as materialized (select n, printf('%.*c', 1000, 'x') from c) select * from m",
    f"{MANY} select json_group_array(printf('%.*c', 10000, 'x')) from c",
    f"{ENDLESS} select printf('%.*c', 1000000, 'x') as a, n from c order by n desc",
]


@pytest.mark.parametrize("query", BOMBS)
def test_query_that_needs_too_much_memory_is_ended(open_server, query):
    answer = ask(open_server, query, timeout_s=60)
    assert (answer.status, answer.value["kind"]) == (409, "limit_exceeded")
    assert ask(open_server, "select 1").value["rows"] == [[1]]


def test_query_ends_at_its_deadline(open_server):
    answer = ask(open_server, f"{ENDLESS} select count(*) from c", timeout_s=0.2)
    assert (answer.status, answer.value["kind"]) == (503, "deadline_exceeded")
    joined = " cross join ".join(f"documents_history h{number}" for number in range(20))
    answer = ask(open_server, f"{ENDLESS} select count(*) from c, {joined}", timeout_s=0.2)
    assert answer.value["kind"] == "deadline_exceeded"


def test_paths_of_the_server_are_not_shown(open_server):
    for model, tables in all_tables().items():
        for table in tables.public():
            answer = ask(open_server, f"select *, root from {model}_{table.name}")
            assert answer.status == 200
            assert str(open_server.root) not in answer.text.decode()
    for wrong in ({"branch": "nope"}, {"space": "did:web:nope.example"}):
        answer = ask(open_server, "select * from state", model="documents", **wrong)
        assert answer.status == 404
        assert "unknown" in answer.value["detail"]
        assert str(open_server.root) not in answer.text.decode()


def test_processes_are_reused(open_server):
    ask(open_server, "select 1")
    before = children(open_server)
    for _ in range(5):
        assert ask(open_server, "select 1").status == 200
    assert children(open_server) == before


def test_processes_have_a_lower_priority_than_the_server(open_server):
    assert ask(open_server, "select 1").status == 200
    server = os.getpriority(os.PRIO_PROCESS, open_server.process.pid)
    assert {os.getpriority(os.PRIO_PROCESS, child) for child in children(open_server)} == {
        max(server, BACKGROUND_NICE)
    }


def test_killed_process_is_an_error_and_is_replaced(open_server):
    ask(open_server, "select 1")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, open_server, f"{ENDLESS} select count(*) from c", timeout_s=60)
        wait_for(lambda: any(is_busy(pid) for pid in children(open_server)))
        for pid in children(open_server):
            os.kill(pid, signal.SIGKILL)
        answer = running.result()
    assert (answer.status, answer.value["kind"]) == (503, "busy")
    # Idle ones were killed, too: the first queries after that may see it.
    wait_for(lambda: ask(open_server, "select 1").status == 200)


def is_busy(pid):
    """Return True if a process is running, and not waiting for input."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()[:1] == [b"R"]


def is_any_busy(server):
    """Return True if a process of queries is running at this time."""
    time.sleep(0.01)
    return any(is_busy(pid) for pid in children(server))


@contextmanager
def endless_query(server):
    """Send a query that does not end, and disconnect at the end of the block."""
    body = json.dumps({"query": f"{ENDLESS} select count(*) from c", "timeout_s": 60}).encode()
    head = f"POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(head.encode() + body)
        yield


def test_disconnected_client_ends_its_query(open_server):
    ask(open_server, "select 1")
    with endless_query(open_server):
        wait_for(lambda: is_any_busy(open_server))
    # Long before the query's own timeout, no process computes any more.
    wait_for(lambda: not any(is_any_busy(open_server) for _ in range(20)), seconds=30)
    assert ask(open_server, "select 1").status == 200


def test_too_many_queries_are_refused(open_server):
    with ExitStack() as stack:
        for _ in range(2 + QUERIES_WAITING):
            stack.enter_context(endless_query(open_server))
        # A query that arrives before the last one of these is not refused, but waits.
        wait_for(lambda: ask(open_server, "select 1").status == 429)
        answer = ask(open_server, "select 1")
        assert (answer.status, answer.value["kind"]) == (429, "overloaded")
        assert answer.headers["retry-after"]
    wait_for(lambda: ask(open_server, "select 1").status == 200)


def test_server_responds_while_queries_run(open_server):
    with endless_query(open_server), endless_query(open_server):
        wait_for(lambda: any(is_busy(pid) for pid in children(open_server)))
        assert open_server.ask("GET", "/health").status == 200


# Keys


def test_query_needs_a_key_with_its_scope(keyed_server):
    assert ask(keyed_server, "select 1").status == 401
    reader = add_key(keyed_server.root, Grant("documents", ("read",)))
    answer = ask(keyed_server, "select 1", reader)
    assert (answer.status, answer.value["kind"]) == (403, "forbidden")
    blind = add_key(keyed_server.root, Grant("documents", ("query",)))
    assert ask(keyed_server, "select 1", blind).status == 403


def test_key_reads_only_its_models(keyed_server):
    grants = (
        Grant("documents", ("query", "read")),
        Grant("streams", ("read",)),
        Grant("sessions", ("query",)),
    )
    key = add_key(keyed_server.root, *grants)
    assert len(ask(keyed_server, "select 1 from documents_state", key).value["rows"]) == 2
    for table in ("streams_records", "sessions_events", "graphs_apps"):
        answer = ask(keyed_server, f"select count(*) from {table}", key)
        assert (answer.status, answer.value["kind"]) == (404, "not_found")


def test_prefixes_of_a_key_restrict_every_table(keyed_server):
    everything = add_key(
        keyed_server.root, *(Grant(model, ("query", "read")) for model in PREFIXES)
    )
    limited = add_key(
        keyed_server.root,
        *(Grant(model, ("query", "read"), prefix) for model, prefix in PREFIXES.items()),
    )
    for model, tables in all_tables().items():
        for table in tables.public():
            query = f"select * from {model}_{table.name}"
            seen = ask(keyed_server, query, limited)
            names = [column.name for column in table.columns if not column.hidden]
            if tables.name_column not in names:
                assert seen.status == 404
                continue
            at = names.index(tables.name_column)
            rows = ask(keyed_server, query, everything).value["rows"]
            allowed = [row for row in rows if row[at].startswith(PREFIXES[model])]
            assert seen.value["rows"] == allowed, table.name


def test_listed_tables_are_those_that_the_key_may_query(keyed_server):
    root = keyed_server.root

    def listed(key):
        headers = {"authorization": f"Bearer {key}"}
        answer = json.loads(keyed_server.ask("GET", "/v1/sql/tables", headers=headers).text)
        return {table["name"] for table in answer["tables"]}

    scopes = ("read", "query")
    everything = listed(add_key(root, *(Grant(model, scopes) for model in NAMED_MODELS)))
    assert {name.partition("_")[0] for name in everything} == set(NAMED_MODELS)
    streams = {name for name in everything if name.startswith("streams_")}
    assert listed(add_key(root, Grant("streams", scopes), Grant("graphs", ("read",)))) == streams
    sessions = listed(add_key(root, Grant("sessions", scopes, "mine/")))
    assert "sessions_events" in sessions
    assert "sessions_payloads" not in sessions
    for name in sessions:
        key = add_key(root, Grant("sessions", scopes, "mine/"))
        assert ask(keyed_server, f"select count(*) from {name}", key).status == 200


def test_two_keys_at_once_see_their_own_names(keyed_server):
    keys = {
        did: add_key(keyed_server.root, Grant("documents", ("query", "read"), did))
        for did in (A, B)
    }
    names = [A, B] * 10
    query = "select space from documents_state"
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda did: ask(keyed_server, query, keys[did]), names)
        assert [answer.value["rows"] for answer in answers] == [[[did]] for did in names]


# Clients


def test_client_returns_the_result_of_a_local_store(open_server):
    queries = [
        ("select * from documents_commits order by space", ()),
        ("select *, 9e999 as x, x'00ff' as b from streams_records order by position", ()),
        ("select ? as a, ? as b", (b"\0\1", None)),
        ("select :a as a", {"a": 1.5}),
        ("select ? as a, ? as b, ? as c", (float("inf"), float("-inf"), float("nan"))),
    ]
    with fourfold.open(open_server.root, mode="r") as store, client_of(open_server) as remote:
        for query, params in queries:
            local = store.sql(query, params)
            result = remote.sql(query, params)
            assert result == local
            assert result.types == local.types
            assert result.to_arrow().equals(local.to_arrow())
        at = datetime(2020, 1, 1, tzinfo=UTC)
        assert remote.sql("select 1 from documents_state", at=at).rows == []
        space = remote.space(A)
        assert space.sql("select id, seq from state", at=1).rows == [("n1", 1)]
        with pytest.raises(NotFound, match="unknown table"):
            remote.sql("select 1 from unknown")
        with pytest.raises(DeadlineExceeded):
            remote.sql(f"{ENDLESS} select count(*) from c", timeout_s=0.2)
        for wrong in ({"params": [[1]]}, {"max_rows": 0}, {"at": -1}):
            with pytest.raises(InvalidInput):
                remote.sql("select 1", **wrong)


def test_warnings_are_sent_to_the_client(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        store.streams.create("logs", "application/json").append({"n": 1})
        store.archive.publish_all()
    server = Served(root)
    query = "select * from streams_records"
    try:
        with fourfold.open(root, mode="r") as store, client_of(server) as remote:
            result = remote.sql(query)
            assert result == store.sql(query)
            assert result.truncated
            assert "'logs' are only in segments" in result.warnings[0]
        html = {"accept": "text/html"}
        page = server.ask("GET", f"/sql?query={quote(query)}", headers=html).text.decode()
        assert "are only in segments" in page
        assert "more are not shown" not in page
    finally:
        server.kill()


def test_client_for_coroutines_runs_queries(open_server):
    async def run():
        async with AsyncRemoteStore(f"http://127.0.0.1:{open_server.port}") as remote:
            return await remote.sql("select 1 as one")

    assert asyncio.run(run()).rows == [(1,)]


def client_of(server):
    return fourfold.connect(f"http://127.0.0.1:{server.port}")


def test_command_prints_the_result_of_a_server(open_server, capsys):
    url = f"http://127.0.0.1:{open_server.port}"
    assert run_command(["sql", url, "select space from state order by 1"]) == 0
    assert capsys.readouterr().out == f"SPACE\n{A}\n{B}\n"
    assert run_command(["sql", url, "select 1", "--engine", "spark"]) != 0
    assert "Spark reads folders" in capsys.readouterr().err


def test_processes_end_with_the_server(tmp_path):
    server = Served(tmp_path / "store")
    assert ask(server, "select 1").status == 200
    (pid,) = children(server)
    server.kill()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or is_zombie(pid))


def test_running_and_waiting_queries_end_when_the_server_stops(tmp_path):
    server = Served(tmp_path / "store")
    endless = f"{ENDLESS} select count(*) from c"
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, server, endless, timeout_s=60) for _ in range(4)]
        wait_for(lambda: len([pid for pid in children(server) if is_busy(pid)]) == 2)
        pids = children(server)
        assert server.stop() == 0
        # One that had not arrived finds no server.
        errors = [future.exception() for future in asked]
        arrived = [future.result() for future in asked if future.exception() is None]
    assert all(error is None or isinstance(error, OSError) for error in errors)
    assert len(arrived) >= 2
    assert {answer.value["kind"] for answer in arrived} <= {"busy", "overloaded"}
    assert all(not Path(f"/proc/{pid}").exists() or is_zombie(pid) for pid in pids)


def is_zombie(pid):
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True


def test_body_must_match_the_schema(open_server):
    for body in (b"", b"[]", b"{}", b'{"query": 1}', b'{"query": "select 1", "x": 1}'):
        assert open_server.ask("POST", "/v1/sql", body).status == 400
    connection = http.client.HTTPConnection("127.0.0.1", open_server.port)
    connection.request("GET", "/v1/sql")
    assert connection.getresponse().status == 405
    connection.close()
