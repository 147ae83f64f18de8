"""The verbs that all four models share, with the same argument names and the same meaning."""

from __future__ import annotations

import asyncio
import inspect
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

import fourfold
from fourfold import limits
from fourfold.client import AsyncRemoteStore
from fourfold.client.coroutines import remote_spaces as async_spaces
from fourfold.client.coroutines.remote_graph import AsyncRemoteGraph
from fourfold.client.coroutines.remote_graphs import AsyncRemoteGraphs
from fourfold.client.coroutines.remote_session import AsyncRemoteSession
from fourfold.client.coroutines.remote_sessions import AsyncRemoteSessions
from fourfold.client.coroutines.remote_streams import AsyncRemoteStream, AsyncRemoteStreams
from fourfold.client.threads import remote_spaces
from fourfold.client.threads.remote_graph import RemoteGraph
from fourfold.client.threads.remote_graphs import RemoteGraphs
from fourfold.client.threads.remote_session import RemoteSession
from fourfold.client.threads.remote_sessions import RemoteSessions
from fourfold.client.threads.remote_streams import RemoteStream, RemoteStreams
from fourfold.errors import InvalidInput, NotFound

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from served_streams import Served


class Subject(NamedTuple):
    """A model as one test drives it: its collection, and how to write to a handle of it."""

    collection: object
    create: object
    unknown: str
    write: object
    read: object
    follow: object


DID = "did:web:a.example"
STARTED = {"type": "turn/started", "turn": {"status": "running"}}


def documents(store):
    return Subject(
        store.documents,
        lambda: store.documents.create(DID),
        "did:web:unknown.example",
        lambda space, n: space.set("a", {"n": n}),
        lambda space, at: space.read("a", at=at),
        lambda space, after: [commit.seq for commit in space.follow(after=after, timeout=0)],
    )


def streams(store):
    return Subject(
        store.streams,
        lambda: store.streams.create("s", "application/json"),
        "unknown",
        lambda stream, n: stream.append({"n": n}),
        None,
        lambda stream, after: [
            record.offset + 1 for chunk in stream.follow(after, timeout=0) for record in chunk
        ],
    )


def created_graph(store):
    graph = store.graphs.create("notes")
    graph.register_type("parent", "note")
    return graph


def graphs(store):
    return Subject(
        store.graphs,
        lambda: created_graph(store),
        "unknown",
        lambda graph, n: graph.apply(
            [
                {"op": "parent_create", "type_key": "note", "payload": {}}
                if n == 1
                else {"op": "parent_update", "type_key": "note", "payload": {"parent_id": 1}}
            ],
            owner=1,
            trace_id=str(n),
        ),
        lambda graph, at: graph.read("parent", 1, at=at),
        lambda graph, after: sorted(
            {
                change.global_seq
                for changes in graph.follow(after=after, timeout=0)
                for change in changes
            }
        ),
    )


def sessions(store):
    return Subject(
        store.sessions,
        lambda: store.sessions.create({"id": "s"}),
        "unknown",
        lambda session, _: session.append(STARTED),
        lambda session, at: len(session.read(at).turns) or None,
        lambda session, after: [event.id for event in session.follow(after=after, timeout=0)],
    )


def position(handle):
    """Return the position of a handle as a number."""
    newest = handle.position()
    return getattr(newest, "record", newest)


MODELS = [documents, streams, graphs, sessions]
COLLECTIONS = ["documents", "streams", "graphs", "sessions"]
NAMES = {
    "documents": [f"did:web:{letter}.example" for letter in "abc"],
    "streams": ["a", "b/1", "b/2"],
    "graphs": ["system", "a", "b"],
    "sessions": ["c", "a", "b"],
}
"""Names of each collection in the order of its list."""


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("served") / "store")
    yield server
    server.kill()


@pytest.fixture(scope="module", params=["folder", "server"])
def filled(request, tmp_path_factory):
    """Return a store with some names in each collection: in a folder, and of a server."""
    if request.param == "folder":
        opened = fourfold.open(tmp_path_factory.mktemp("folder") / "store")
    else:
        served = request.getfixturevalue("served")
        opened = fourfold.connect(f"http://127.0.0.1:{served.port}")
    with opened as store:
        for did in NAMES["documents"]:
            store.documents.create(did)
        for name in reversed(NAMES["streams"]):
            store.streams.create(name)
        for slug in NAMES["graphs"][1:]:
            store.graphs.create(slug)
        for sid in NAMES["sessions"]:
            store.sessions.create({"id": sid})
        yield store


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_collections_are_mappings_of_names_to_handles(filled, collection):
    handles = getattr(filled, collection)
    names = NAMES[collection]
    assert list(handles) == names
    assert [repr(handles[name]) for name in handles] == [repr(handles.open(name)) for name in names]
    assert names[0] in handles
    assert not [odd for odd in ("z", "", "\ud800", "a b", 5, None, b"a", ()) if odd in handles]
    assert bool(handles)
    with pytest.raises(KeyError):
        handles["did:web:z.example" if collection == "documents" else "z"]


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_len_is_defined_where_it_reads_no_names(filled, collection):
    handles = getattr(filled, collection)
    if collection in {"documents", "graphs"}:
        assert len(handles) == len(NAMES[collection])
        return
    with pytest.raises(TypeError, match=r"use len\(list\(\.\.\.\)\)"):
        len(handles)


def test_graphs_contain_the_ids_of_apps(filled):
    app = filled.graphs["a"].app_id
    assert app in filled.graphs
    assert app + 100 not in filled.graphs


@pytest.mark.parametrize("collection", ["streams", "sessions"])
def test_iteration_reads_names_in_pages(store, collection, monkeypatch):
    handles = getattr(store, collection)
    names = [f"n{number:04}" for number in range(limits.PAGE_ITEMS_MAX + 2)]
    with handles.database.write() if collection == "streams" else handles.log.database.write():
        for name in names:
            handles.create(name if collection == "streams" else {"id": name})
    pages = []
    read_page = type(handles)._names

    def recorded(self, after):
        page = read_page(self, after)
        pages.append(len(page))
        return page

    monkeypatch.setattr(type(handles), "_names", recorded)
    first = iter(handles)
    assert next(first) == names[0]
    assert pages == [limits.PAGE_ITEMS_MAX]
    assert list(handles) == names
    assert pages[1:] == [limits.PAGE_ITEMS_MAX, 2, 0]


def test_deleted_names_are_neither_listed_nor_contained(store):
    store.streams.create("a").fork("b")
    store.streams.delete("a")
    store.sessions.create({"id": "a"})
    store.sessions.delete_session("a")
    assert list(store.streams) == ["b"]
    assert "a" not in store.streams
    assert list(store.sessions) == []
    assert "a" not in store.sessions


def test_remote_calls_name_arguments_of_wrong_types(filled):
    stream, graph = filled.streams.create("odd", "application/json"), filled.graphs["a"]
    for call, name in [
        (lambda: stream.append({"n": 1}, producer="x"), "producer"),
        (lambda: list(stream.follow(timeout="x")), "timeout"),
        (lambda: filled.streams.list(limit="x"), "limit"),
        (lambda: graph.apply("x", owner=1, trace_id="t"), "operations"),
        (lambda: graph.find("name", {1, 2}), "where|filter"),
        (lambda: filled.sessions.list(limit="x"), "limit"),
    ]:
        with pytest.raises(InvalidInput, match=name):
            call()
    assert len(stream) == 0
    stream.delete()


def test_coroutines_iterate_over_the_names_of_a_server(served):
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        expected = [list(getattr(store, collection)) for collection in COLLECTIONS]

    async def read():
        async with AsyncRemoteStore(f"http://127.0.0.1:{served.port}") as remote:
            return [
                [name async for name in getattr(remote, collection)] for collection in COLLECTIONS
            ]

    assert asyncio.run(read()) == expected


@pytest.mark.parametrize("model", MODELS)
def test_collections_create_open_and_list(store, model):
    subject = model(store)
    before = len(subject.collection.list())
    handle = subject.create()
    assert len(subject.collection.list()) == before + 1
    name = next(
        getattr(handle, key) for key in ("did", "name", "slug", "id") if hasattr(handle, key)
    )
    assert repr(subject.collection.open(name)) == repr(handle)
    assert repr(subject.collection[name]) == repr(handle)
    with pytest.raises(NotFound):
        subject.collection.open(subject.unknown)


@pytest.mark.parametrize("model", MODELS)
def test_position_is_where_follow_resumes(store, model):
    subject = model(store)
    handle = subject.create()
    start = position(handle)
    subject.write(handle, 1)
    middle = position(handle)
    subject.write(handle, 2)
    end = position(handle)
    assert start < middle < end
    assert subject.follow(handle, start) == [middle, end]
    assert subject.follow(handle, middle) == [end]
    assert subject.follow(handle, end) == []


COLLECTION_CLASSES = [
    (fourfold.Documents, fourfold.Space),
    (fourfold.Streams, fourfold.Stream),
    (fourfold.Graphs, fourfold.Graph),
    (fourfold.Sessions, fourfold.Session),
]
REMOTE_CLASSES = [
    (remote_spaces.RemoteDocuments, remote_spaces.RemoteSpace),
    (RemoteStreams, RemoteStream),
    (RemoteGraphs, RemoteGraph),
    (RemoteSessions, RemoteSession),
]
ASYNC_CLASSES = [
    (async_spaces.AsyncRemoteDocuments, async_spaces.AsyncRemoteSpace),
    (AsyncRemoteStreams, AsyncRemoteStream),
    (AsyncRemoteGraphs, AsyncRemoteGraph),
    (AsyncRemoteSessions, AsyncRemoteSession),
]
LOCAL_VERBS = {"verify": (set(), "list[Problem]"), "gc": ({"dry_run"}, "GcReport")}
"""What only the process with the files can do: its arguments, and what it returns."""
VERBS = {"create": (set(), ""), "open": (set(), ""), "list": (set(), "")}
HANDLE_VERBS = {
    "read": ({"at"}, ""),
    "follow": ({"after", "timeout"}, ""),
    "history": ({"after", "limit"}, "Rows["),
    "position": (set(), ""),
}


def unmet(cls, verbs):
    """Return what a class lacks of these verbs, their arguments and their types of results."""
    for verb, (arguments, returned) in verbs.items():
        method = getattr(cls, verb, None)
        if method is None:
            yield f"{cls.__name__}.{verb} is missing"
            continue
        signature = inspect.signature(method)
        if missing := arguments - signature.parameters.keys():
            yield f"{cls.__name__}.{verb} has no {missing}"
        result = str(signature.return_annotation).replace("builtins.", "")
        if returned not in result or result in {"<class 'inspect._empty'>", "Any", "int"} - (
            {"int"} if verb == "position" else set()
        ):
            yield f"{cls.__name__}.{verb} returns {result}"
        if not inspect.getdoc(method):
            yield f"{cls.__name__}.{verb} has no docstring"


@pytest.mark.parametrize("classes", [*COLLECTION_CLASSES, *REMOTE_CLASSES, *ASYNC_CLASSES])
def test_every_model_has_the_verbs_with_their_arguments(classes):
    collection, handle = classes
    verbs = VERBS | LOCAL_VERBS if classes in COLLECTION_CLASSES else VERBS
    assert [*unmet(collection, verbs), *unmet(handle, HANDLE_VERBS)] == []


def test_contract_of_verbs_names_what_is_missing():
    class Part:
        def read(self, seq: int) -> int:
            """Read."""

        def history(self, after: int, limit: int) -> str:
            return ""

    problems = list(unmet(Part, HANDLE_VERBS))
    assert problems == [
        "Part.read has no {'at'}",
        "Part.read returns int",
        *("Part.follow is missing", "Part.history returns str", "Part.history has no docstring"),
        "Part.position is missing",
    ]


@pytest.mark.parametrize("model", MODELS)
def test_reports_of_gc_are_frozen_and_count_bytes(store, model):
    subject = model(store)
    subject.write(subject.create(), 1)
    for dry_run in (True, False):
        reports = subject.collection.gc(dry_run=dry_run)
        for report in reports.values() if isinstance(reports, dict) else [reports]:
            assert report.__struct_config__.frozen
            assert (report.bytes, report.dry_run) == (0, dry_run)


def test_read_at_is_the_stream_as_it_was(filled):
    stream = filled.streams.create("past", "application/json")
    try:
        stream.append([{"n": n} for n in range(3)])
        middle = stream.position()
        then = datetime.fromtimestamp(list(stream)[-1].ts_ms / 1000, UTC)
        stream.append([{"n": n} for n in range(3, 6)])
        for at in (middle, str(middle), 3, "now"):
            chunk = stream.read(at=at)
            expected = list(range(6 if at == "now" else 3))
            assert [record.value["n"] for record in chunk] == expected
            assert (chunk.next_offset, chunk.up_to_date) == (len(expected), True)
        assert [record.value["n"] for record in stream.read(1, 1, at=middle)] == [1]
        assert not stream.read(1, 1, at=middle).up_to_date
        assert [record.value["n"] for record in stream.read(after=2, at=middle)] == [2]
        assert list(stream.read(5, at=middle)) == []
        filtered = stream.read(at=middle, where={"n": {"$gte": 1}})
        assert [record.value["n"] for record in filtered] == [1, 2]
        assert list(stream.read(at=then - timedelta(days=1))) == []
        late = stream.read(at=then + timedelta(days=1))
        assert [record.value["n"] for record in late] == list(range(6))
        assert list(stream.read(offset=5)) == list(stream.read(after=5))
        with pytest.raises(InvalidInput, match="after or offset"):
            stream.read(1, offset=1)
        with pytest.raises(InvalidInput):
            stream.read(at=7)
    finally:
        stream.delete()


def test_history_of_stream_has_its_schemas_trims_and_end(filled):
    stream = filled.streams.create("lived", "application/json", retention_bytes=100)
    try:
        stream.set_schema({"type": "object"})
        stream.append([{"n": 1}, {"n": 2}])
        stream.set_schema({"type": "object", "title": "Second"}, lens={"ops": []})
        stream.append({"n": 3})
        stream.close()
        created, first, schema, closed = stream.history()
        assert first[:2] == ("schema", 0)
        assert created.at_ms == stream.info.created_at_ms
        assert [created[:2], schema[:2], closed[:2]] == [
            ("created", 0),
            ("schema", 2),
            ("closed", 3),
        ]
        assert (first.schema_version, schema.schema_version) == (1, 2)
        assert list(stream.history(after=0, limit=1)) == [schema]
    finally:
        stream.delete()


def test_history_of_stream_starts_at_its_fork_and_shows_trims(store):
    source = store.streams.create("source", "application/json")
    source.append([{"n": n} for n in range(4)])
    fork = source.fork("fork", at=2)
    assert [event[:2] for event in fork.history()] == [("forked", 2)]
    fork.append([{"n": 9}] * 3)
    fork.configure(retention_bytes=8)
    store.streams.gc()
    assert [event[:2] for event in fork.history()] == [
        ("forked", 2),
        ("trimmed", fork.info.first_offset),
    ]


def test_history_of_graph_object_is_read_in_parts(filled):
    graph = filled.graphs["a"]
    kind = graph.register_type("parent", "page")
    [page] = graph.insert("parent", [{"type_id": kind, "owner_identity": 1}])
    for _ in range(3):
        graph.update("parent", page, {"sync_flags": 0})
    versions = graph.history("parent", page)
    assert len(versions) == 4
    assert graph.history("parent", page, after=versions[0].global_seq, limit=2) == versions[1:3]
    with pytest.raises(InvalidInput, match="limit"):
        graph.history("parent", page, limit=0)


def test_stream_follow_accepts_offset_for_after(filled):
    stream = filled.streams.create("follow", "application/json")
    stream.append([{"n": 1}, {"n": 2}])
    try:
        for options in ({"after": 1}, {"offset": 1}):
            values = [
                record.value for part in stream.follow(**options, timeout=0) for record in part
            ]
            assert values == [{"n": 2}]
        with pytest.raises(InvalidInput, match="after or offset"):
            list(stream.follow(1, offset=1, timeout=0))
    finally:
        stream.delete()


def test_history_of_session_is_its_log(filled):
    session = filled.sessions[next(iter(filled.sessions))]
    assert list(session.history()) == list(session.log())
    assert list(session.history(after=1, until=3, limit=1)) == list(session.log(after=1, limit=1))


@pytest.mark.parametrize("model", [documents, graphs, sessions])
def test_read_at_a_position_is_the_state_then(store, model):
    subject = model(store)
    handle = subject.create()
    subject.write(handle, 1)
    position = handle.position()
    then = subject.read(handle, None)
    subject.write(handle, 2)
    assert subject.read(handle, position) == then
    assert subject.read(handle, None) != then


@pytest.mark.parametrize("model", MODELS)
def test_stores_without_problems_verify_as_empty_lists(store, model):
    subject = model(store)
    handle = subject.create()
    subject.write(handle, 1)
    assert subject.collection.verify() == []


DAMAGE = {
    documents: ("spaces/did:web:a.example.sqlite", "DELETE FROM revision"),
    streams: ("streams/wal.sqlite", "UPDATE streams SET next_offset = next_offset + 5"),
    graphs: ("graphs/backend.db", "UPDATE app_1_parent SET type_id = 99"),
    sessions: ("sessions/events.db", "UPDATE events SET body = '{}'"),
}


@pytest.mark.parametrize("model", MODELS)
def test_problems_of_every_model_are_of_one_type(store, model):
    subject = model(store)
    subject.write(subject.create(), 1)
    name, statement = DAMAGE[model]
    path = store.root / name
    store.close()
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    with fourfold.open(store.root) as damaged:
        problems = model(damaged).collection.verify()
        assert problems
        assert {type(problem) for problem in problems} == {fourfold.Problem}
        assert [str(problem) for problem in problems] == [problem.message for problem in problems]
        report = damaged.verify()
        assert {problem.message for problem in problems} <= {
            problem.message for problem in report.problems
        }
        assert type(report.damage[0]) is fourfold.Problem


@pytest.mark.parametrize(
    "cls",
    [
        fourfold.Documents,
        fourfold.Space,
        fourfold.Stream,
        fourfold.Streams,
        fourfold.Graph,
        fourfold.Graphs,
        fourfold.Session,
        fourfold.Sessions,
        fourfold.Store,
    ],
)
def test_public_methods_have_docstrings(cls):
    missing = [
        name
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property))
        and not inspect.getdoc(member)
    ]
    assert missing == []
    assert not inspect.getdoc(cls).startswith("The same")


def test_repr_names_where_a_facade_is(store):
    sessions = store.root / "sessions" / "events.db"
    assert repr(store.sessions) == f"<Sessions in {sessions}>"
    assert repr(fourfold.Sessions()) == "<Sessions in memory>"
    assert repr(store.archive) == f"<Archive of {store.root / 'streams' / 'wal.sqlite'}>"
    assert repr(fourfold.Runtime(store.sessions, print)) == f"<Runtime of <Sessions in {sessions}>>"
    signer = fourfold.Ed25519Signer(b"s" * 32)
    assert repr(signer) == f"<Ed25519Signer {signer.public_key}>"


def test_repr_of_remote_rules_names_the_server(served):
    address = f"http://127.0.0.1:{served.port}"
    with fourfold.connect(address) as store:
        assert repr(store.streams.schemas) == f"<Schemas at {address}>"
        assert repr(store.streams.profiles) == f"<Profiles at {address}>"


def test_results_are_shown_as_html(store):
    space = store.space(DID)
    space.indexes.create("title", "/title", kind="text")
    space.set("a", {"title": "<b>leek</b>"})
    stream = store.streams.create("s", "application/json")
    stream.append([{"n": 1, "text": "<b>leek</b>"}])
    graph = created_graph(store)
    kind = graph.register_type("attr", "name")
    edge = graph.register_type("edge", "knows")
    one, two = graph.insert("parent", [{"type_id": 1, "owner_identity": 1}] * 2)
    graph.insert(
        "attr",
        [
            {"type_id": kind, "owner_identity": 1, "parent_id": one, "value_text": "<b>leek</b>"},
            {"type_id": kind, "owner_identity": 1, "parent_id": one, "value_number": 1.0},
        ],
    )
    graph.insert(
        "edge",
        [{"type_id": edge, "owner_identity": 1, "src_parent_id": one, "dst_parent_id": two}],
    )
    store.sessions.create({"id": "s"}).append(STARTED)
    for result, text in [
        (space.find({}), "&lt;b&gt;leek"),
        (space.search("leek"), "&lt;b&gt;leek"),
        (stream.info, "application/json"),
        (stream.search(""), "&lt;b&gt;leek"),
        (stream.aggregate(by=["n"]), "count"),
        (graph.find("name"), "&lt;b&gt;leek"),
        (graph.traverse(one), "distance"),
        (graph.path(one, two), "objects"),
        (graph.neighbours(one), "&lt;b&gt;leek"),
        (graph.aggregate("name", kind="attr"), "average"),
        (graph.top("name", kind="attr"), "object_id"),
        (store.verify(), "without problems"),
        (store.sessions.list(), "created_at"),
    ]:
        shown = result._repr_html_()
        assert text in shown, result
        assert "<b>leek" not in shown
    assert "s" in store.sessions["s"].transcript()._repr_markdown_()


def test_html_of_a_verification_lists_the_problems(store):
    documents(store).create().set("a", {"n": 1})
    name, statement = DAMAGE[documents]
    path = store.root / name
    store.close()
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    with fourfold.open(store.root) as damaged:
        report = damaged.verify()
    assert report.problems[0].message in report._repr_html_().replace("&#x27;", "'")
