"""Graphs over HTTP: apps, types, envelopes, objects, neighbours, the feed and access."""

from __future__ import annotations

import base64
import json
import random
import threading
from contextlib import nullcontext
from urllib.parse import quote

import pytest
from both_fronts import Front
from served_graphs import Events, ServedApp, server_of

import fourfold
from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.models.graphs import feed
from fourfold.server import graph_feed
from fourfold.server.graphs import object_row

KINDS = ("parent", "attr", "edge", "rating")


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("graphs") / "store", fast=True)
    yield front
    front.stop()


@pytest.fixture(scope="module")
def server(front):
    return server_of(front)


@pytest.fixture
def app(server, request):
    return new_app(server, f"app-{abs(hash(request.node.name)) % 10**9}")


def new_app(server, slug):
    app = ServedApp(server, slug)
    assert app.ask("PUT").status == 201
    for kind in KINDS:
        app.register_type(kind, f"a {kind}")
    app.register_type("rating", "suppress")
    return app


def parent(**payload):
    return {"op": "parent_create", "type_key": "a parent", "payload": payload}


def attr(owner, value):
    return {
        "op": "attr_create",
        "type_key": "a attr",
        "payload": {"parent_id": owner, "value": value},
    }


def edge(source, target):
    payload = {"src_parent_id": source, "dst_parent_id": target}
    return {"op": "edge_create", "type_key": "a edge", "payload": payload}


def suppress(target):
    payload = {"target_parent_id": target, "value": 1}
    return {"op": "rating_create", "type_key": "suppress", "payload": payload}


def plain(row):
    """Return a record of the model as a response has it."""
    fields = row._asdict()
    blob = fields.get("value_blob")
    if blob is not None:
        fields["value_blob"] = base64.b64encode(blob).decode()
    return fields


def without_kind(row):
    return {name: value for name, value in row.items() if name != "kind"}


# Apps and types


def test_app_is_registered_once_and_listed(server):
    path = "/v1/apps/books"
    assert server.ask("GET", path).status == 404
    created = server.ask("PUT", path, query="title=The%20Books")
    assert (created.status, created.headers["location"]) == (201, path)
    assert (created.value["app"], created.value["title"]) == ("books", "The Books")
    again = server.ask("PUT", path, query="title=Other")
    assert (again.status, again.value["title"]) == (200, "The Books")
    assert server.ask("GET", path).value["rows"] == 0
    listed = server.ask("GET", "/v1/apps", query="prefix=book").value["items"]
    assert [row["app"] for row in listed] == ["books"]


def test_apps_are_listed_in_pages_by_name(server):
    for slug in ("pages-c", "pages-a", "pages-b"):
        assert server.ask("PUT", f"/v1/apps/{slug}").status == 201
    first = server.ask("GET", "/v1/apps", query="prefix=pages-&limit=2").value
    assert [row["app"] for row in first["items"]] == ["pages-a", "pages-b"]
    query = f"prefix=pages-&limit=2&cursor={first['next_cursor']}"
    second = server.ask("GET", "/v1/apps", query=query).value
    assert [row["app"] for row in second["items"]] == ["pages-c"]
    assert second["next_cursor"] is None


def test_type_is_registered_once_and_listed(app):
    created = app.ask("POST", "/types", {"kind": "parent", "type_key": "book é"})
    again = app.ask("POST", "/types", {"kind": "parent", "type_key": "book é"})
    assert (created.status, again.status) == (201, 200)
    assert created.value == again.value
    listed = app.pages("/types", "kind=parent&limit=1")
    assert [row["type_key"] for row in listed] == ["a parent", "book é"]
    assert app.ask("POST", "/types", {"kind": "note", "type_key": "x"}).status == 400
    assert ServedApp(app.server, "none").ask("GET", "/types").status == 404


@pytest.mark.parametrize(
    "slug", ["A", "-a", "a/b", "a b", "é", "%00", "a" * 65, "..", "<script>", "a'; DROP TABLE apps"]
)
def test_hostile_name_of_an_app_is_refused(server, slug):
    for method in ("PUT", "GET"):
        answer = ServedApp(server, slug).ask(method)
        assert answer.status in {400, 404}, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    assert slug not in [row["app"] for row in server.ask("GET", "/v1/apps").value["items"]]


# Envelopes


def test_envelope_creates_a_tree_under_one_seq(app, front):
    value = {"deep": ["é", None, 1.5]}
    operations = [parent(), parent(), attr({"$op": 0}, value), edge({"$op": 0}, {"$op": 1})]
    applied = app.apply(operations, trace_id="t-1").value
    assert applied["replayed"] is False
    graph = front.store.graphs.open(app.app)
    first, second, third, fourth = applied["object_ids"]
    assert json.loads(graph.read("attr", third).value_json) == value
    row = graph.read("edge", fourth)
    assert (row.src_parent_id, row.dst_parent_id) == (first, second)
    assert {graph.read("parent", number).global_seq for number in (first, second)} == {
        applied["seq"]
    }
    update = {"op": "attr_update", "type_key": "a attr", "payload": {"attr_id": third, "value": 7}}
    assert app.apply([update]).status == 200
    assert graph.read("attr", third).value_number == 7.0
    blob = {
        "op": "attr_update",
        "type_key": "a attr",
        "payload": {"attr_id": third, "value_blob": base64.b64encode(b"\x00\xff").decode()},
    }
    assert app.apply([blob]).status == 200
    assert graph.read("attr", third).value_blob == b"\x00\xff"
    got = app.ask("GET", f"/objects/{third}", query="kind=attr").value["object"]
    assert base64.b64decode(got["value_blob"]) == b"\x00\xff"


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        ({"op": "parent_create", "type_key": "unknown"}, 404),
        ({"op": "parent_create"}, 400),
        ({"op": "parent_create", "type_key": "a parent", "type_id": 1}, 400),
        ({"op": "parent_create", "type_key": "a parent", "payload": {"x": 1}}, 400),
        ({"op": "parent_create", "type_key": "a parent", "payload": {"created_at": "x"}}, 400),
        ({"op": "parent_drop", "type_key": "a parent"}, 400),
        (attr(999_999, 1), 404),
        (attr({"$op": 5}, 1), 400),
        ({**attr(1, 1), "payload": {"parent_id": 1, "value_blob": "not base64!"}}, 400),
        ({**attr(1, 1), "payload": {"parent_id": 1, "value": 1, "value_number": 1}}, 400),
    ],
)
def test_wrong_operation_changes_nothing(app, front, operation, status):
    before = front.store.graphs.position()
    answer = app.apply([parent(), operation])
    assert answer.status == status, answer.text
    assert front.store.graphs.position() == before


def test_another_owner_may_not_update(app):
    [number] = app.apply([parent()], owner=1).value["object_ids"]
    update = {"op": "parent_update", "type_key": "a parent", "payload": {"parent_id": number}}
    answer = app.apply([update], owner=2)
    assert (answer.status, answer.value["kind"]) == (409, "refused")


def test_large_envelope_is_applied_by_a_worker(app, front):
    operations = [parent(), *(attr({"$op": 0}, f"{'x' * 100}{n}") for n in range(2000))]
    answer = app.apply(operations)
    assert len(answer.value["object_ids"]) == 2001
    assert front.store.graphs.open(app.app).usage.rows == 2001
    assert app.apply([parent()] * (limits.ENVELOPE_OPERATIONS_MAX + 1)).status == 400


# Idempotency


def test_repeated_envelope_is_applied_once(app, front):
    sent = {"Idempotency_Key": "k-1"}
    first = app.apply([parent()], headers=sent)
    again = app.apply([parent()], headers=sent)
    assert first.value["replayed"] is False
    assert again.value == first.value | {"replayed": True}
    other = app.apply([parent(), parent()], headers=sent)
    assert (other.status, other.value["kind"]) == (422, "replay_mismatch")
    assert app.apply([attr(10**6, 1)], headers={"Idempotency_Key": "k-2"}).status == 404
    assert app.apply([parent()], headers={"Idempotency_Key": "k-2"}).status == 200
    assert front.store.graphs.open(app.app).usage.rows == 2


def test_repeated_envelope_is_applied_once_across_a_restart(tmp_path):
    sent = {"Idempotency_Key": "k"}
    results = []
    for _ in range(2):
        front = Front(tmp_path / "store", fast=True)
        app = ServedApp(server_of(front), "notes")
        app.ask("PUT")
        app.register_type("parent", "a parent")
        results.append(app.apply([parent()], headers=sent).value)
        rows = front.store.graphs.open("notes").usage.rows
        front.stop()
    assert results[1] == results[0] | {"replayed": True}
    assert rows == 1


def test_concurrent_repetitions_are_applied_once(app, front):
    answers = []
    threads = [
        threading.Thread(
            target=lambda: answers.append(app.apply([parent()], headers={"Idempotency_Key": "c"}))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.value["seq"] for answer in answers} == {answers[0].value["seq"]}
    assert sorted(answer.value["replayed"] for answer in answers) == [False] + [True] * 7
    assert front.store.graphs.open(app.app).usage.rows == 1


# Reads


def test_object_is_read_at_any_point(app):
    first = app.apply([parent(), attr({"$op": 0}, "one")]).value
    number = first["object_ids"][1]
    change = {"attr_id": number, "value": "two"}
    second = app.apply([{"op": "attr_update", "type_key": "a attr", "payload": change}]).value

    def read(query="", **headers):
        return app.ask("GET", f"/objects/{number}", None, f"kind=attr{query}", **headers)

    assert read().value["object"]["value_text"] == "two"
    assert read(f"&at={first['seq']}").value["object"]["value_text"] == "one"
    assert read("&at=2999-01-01T00:00:00Z").value["object"]["value_text"] == "two"
    assert read("&at=2000-01-01T00:00:00Z").status == 404
    assert read(f"&at={first['seq'] - 1}").status == 404
    assert read("&at=999999999").status == 400
    etag = read().headers["etag"]
    assert read(if_none_match=etag).status == 304
    history = app.pages(f"/history/{number}", "kind=attr&limit=1")
    assert [(row["version"], row["value_text"]) for row in history] == [(1, "one"), (2, "two")]
    past = app.pages(f"/history/{number}", f"kind=attr&at={first['seq']}")
    assert [row["version"] for row in past] == [1]
    assert second["seq"] > first["seq"]


def test_time_is_the_newest_seq_at_or_before_it(app, front):
    for _ in range(5):
        app.apply([parent()])
    graph = front.store.graphs.open(app.app)
    for row in graph.objects("parent"):
        at = row.created_at.replace("+00:00", "Z")
        state = app.ask("GET", f"/objects/{row.object_id}", query=f"at={at}").value
        assert state["seq"] >= row.global_seq
        assert state["object"]["id"] == row.id


@pytest.mark.parametrize("text", ["0", "-1", "a", "1e3", "٣", "9" * 19, "9" * 30, "1.0", " "])
def test_invalid_id_of_an_object_is_refused(app, text):
    for path in ("objects", "history", "neighbours"):
        answer = app.ask("GET", f"/{path}/{quote(text)}")
        assert answer.status == 400, answer.text
    assert app.ask("GET", "/objects/999").status == 404
    assert app.ask("GET", "/history/999").status == 404
    assert app.ask("GET", "/neighbours/999").status == 404


def test_pages_show_one_state_while_objects_are_added(app):
    for _ in range(5):
        app.apply([parent()])
    first = app.ask("GET", "/objects", query="limit=2").value
    for _ in range(5):
        app.apply([parent()])
    items, cursor = first["items"], first["next_cursor"]
    while cursor is not None:
        page = app.ask("GET", "/objects", query=f"limit=2&cursor={cursor}").value
        assert page["seq"] == first["seq"]
        items, cursor = items + page["items"], page["next_cursor"]
    assert len({row["object_id"] for row in items}) == len(items) == 5
    other = app.ask("GET", "/objects", query=f"limit=2&kind=attr&cursor={first['next_cursor']}")
    assert other.status == 400


def test_suppressed_objects_are_listed_on_request(app):
    numbers = app.apply([parent(), parent(), edge({"$op": 0}, {"$op": 1})]).value["object_ids"]
    app.apply([suppress(numbers[1])])
    shown = app.pages("/objects")
    assert [row["object_id"] for row in shown] == [numbers[0]]
    assert len(app.pages("/objects", "suppressed=true")) == 2
    around = app.ask("GET", f"/neighbours/{numbers[0]}").value
    assert (around["edges"], around["objects"]) == ([], [])
    around = app.ask("GET", f"/neighbours/{numbers[0]}", query="suppressed=true").value
    assert [row["object_id"] for row in around["objects"]] == [numbers[1]]


def test_neighbours_of_a_hub_are_bounded(app):
    count = limits.NEIGHBOURS_MAX + 50
    operations = [parent() for _ in range(count + 1)]
    operations += [edge({"$op": 0}, {"$op": n + 1}) for n in range(count)]
    operations += [edge({"$op": n + 1}, {"$op": 0}) for n in range(count)]
    operations += [edge({"$op": 0}, {"$op": 0}), attr({"$op": 0}, "x")]
    hub, *others = app.apply(operations).value["object_ids"]
    around = app.ask("GET", f"/neighbours/{hub}").value
    assert around["complete"] is False
    assert len(around["edges"]) == limits.NEIGHBOURS_MAX
    assert len(around["objects"]) <= limits.NEIGHBOURS_MAX
    sources = {row["src_parent_id"] == hub for row in around["edges"]}
    assert sources == {True, False}
    assert app.ask("GET", f"/neighbours/{hub}", query="limit=201").status == 400
    leaf = app.ask("GET", f"/neighbours/{others[0]}").value
    assert leaf["complete"] is True
    assert [row["object_id"] for row in leaf["objects"]] == [hub]
    assert len(leaf["edges"]) == 2


def test_search_for_a_path_is_bounded(app, monkeypatch):
    monkeypatch.setattr(limits, "HTTP_PATH_OBJECTS_MAX", 10)
    operations = [parent() for _ in range(14)]
    operations += [edge({"$op": 0}, {"$op": n}) for n in range(1, 13)]
    start, *others = app.apply(operations).value["object_ids"][:14]
    answer = app.ask("GET", "/path", query=f"start={start}&end={others[-1]}")
    assert (answer.status, answer.value["kind"]) == (409, "limit_exceeded")
    assert app.ask("GET", "/path", query=f"start={start}&end={others[0]}").status == 200
    assert app.ask("GET", "/path", query=f"start={start}&end={start}&depth=1001").status == 400


# HTTP = in process


def random_program(rng, app):
    """Yield the answers of random envelopes, of which some fail."""
    made = {kind: [] for kind in KINDS}
    for _ in range(60):
        operations = []
        for _ in range(rng.randint(1, 4)):
            known = made["parent"] or [1]
            choice = rng.choice(["parent", "attr", "edge", "rating", "suppress", "update"])
            target = rng.choice([rng.choice(known), 10**6 if rng.random() < 0.05 else known[-1]])
            if choice == "parent":
                operations.append(parent())
            elif choice == "attr":
                value = rng.choice(["é", 1, 2.5, None, [1], {"a": "b"}])
                operations.append(attr(target, value))
            elif choice == "edge":
                operations.append(edge(target, rng.choice(known)))
            elif choice == "update" and made["attr"]:
                payload = {"attr_id": rng.choice(made["attr"]), "value": rng.random()}
                operations.append({"op": "attr_update", "type_key": "a attr", "payload": payload})
            elif choice == "suppress":
                operations.append(suppress(target))
        if operations:
            answer = app.apply(operations)
            yield answer
            if answer.status == 200:
                ids = answer.value["object_ids"]
                for operation, number in zip(operations, ids, strict=True):
                    if operation["op"].endswith("_create"):
                        made[operation["op"].removesuffix("_create")].append(number)


@pytest.mark.parametrize("seed", range(3))
def test_http_equals_in_process_on_random_programs(server, front, seed):
    rng = random.Random(seed)
    app = new_app(server, f"random-{seed}")
    graph = front.store.graphs.open(app.app)
    statuses = {answer.status for answer in random_program(rng, app)}
    assert statuses == {200, 404}
    seqs = sorted({change.global_seq for change in graph.log(limit=10_000)})
    for at in [None, *rng.sample(seqs, 6)]:
        point = "" if at is None else f"&at={at}"
        for kind in KINDS:
            for suppressed in (False, True):
                hidden = "&suppressed=true" if suppressed else ""
                got = app.pages("/objects", f"kind={kind}&limit=7{point}{hidden}")
                expected = graph.objects(kind, at=at, suppressed=suppressed)
                assert [without_kind(row) for row in got] == [plain(row) for row in expected]
                assert {row["kind"] for row in got} <= {kind}
            for number in range(1, 12):
                state = app.ask("GET", f"/objects/{number}", query=f"kind={kind}{point}")
                row = graph.read(kind, number, at)
                assert state.status == (404 if row is None else 200)
                if row is not None:
                    assert without_kind(state.value["object"]) == plain(row)
        for number in range(1, 8):
            for kind in ("parent", "attr"):
                answer = app.ask("GET", f"/neighbours/{number}", query=f"kind={kind}{point}")
                try:
                    found = graph.neighbours(number, kind=kind, at=at)
                except FourfoldError:
                    assert answer.status == 404
                    continue
                around = answer.value
                assert without_kind(around["object"]) == plain(found.object)
                for name in ("attrs", "edges", "ratings", "objects"):
                    got = [without_kind(row) for row in around[name]]
                    assert got == [plain(row) for row in getattr(found, name)]
                    assert naive_neighbours(graph, kind, number, at)[name] == {
                        row["id"] for row in around[name]
                    }
    for kind in KINDS:
        for row in graph.objects(kind, suppressed=True):
            got = app.pages(f"/history/{row.object_id}", f"kind={kind}&limit=2")
            assert [without_kind(row) for row in got] == [
                plain(version) for version in graph.history(kind, row.object_id)
            ]


def naive_neighbours(graph, kind, number, at):
    """Return the row ids of what is one hop away, by going through all objects."""
    edges = [
        row
        for row in graph.objects("edge", at=at)
        if getattr(row, f"dst_{kind}_id") == number
        or (kind == "parent" and row.src_parent_id == number)
    ]
    ends = {("parent", row.src_parent_id) for row in edges}
    ends |= {("parent", row.dst_parent_id) for row in edges if row.dst_parent_id is not None}
    ends |= {("attr", row.dst_attr_id) for row in edges if row.dst_attr_id is not None}
    attrs = graph.objects("attr", at=at)
    if kind == "attr":
        ends.add(("parent", graph.read("attr", number, at).parent_id))
        attrs = []
    ends.discard((kind, number))
    return {
        "attrs": {row.id for row in attrs if row.parent_id == number},
        "edges": {row.id for row in edges},
        "ratings": {
            row.id
            for row in graph.objects("rating", at=at)
            if getattr(row, f"target_{kind}_id") == number
        },
        "objects": {graph.read(*end, at).id for end in ends},
    }


# Keys


def test_key_is_for_the_apps_with_its_prefix(tmp_path):
    front = Front(tmp_path / "store", fast=True, access=True)
    try:
        graphs = front.store.graphs
        for slug in ("notes", "notes-2", "other"):
            graphs.create(slug).register_type("parent", "a parent")
        secrets = {
            name: front.access.add(scopes, prefix, models=(model,))[1]
            for name, scopes, prefix, model in [
                ("reader", ("read",), "notes", "graphs"),
                ("writer", ("write",), "notes", "graphs"),
                ("streams", ("read", "write", "admin"), "", "streams"),
            ]
        }

        def ask(name, method, path, body=None, query=""):
            headers = {"Authorization": f"Bearer {secrets[name]}"} if name else {}
            body = None if body is None else json.dumps(body).encode()
            return server_of(front).ask(method, path, body, query, **headers).status

        envelope = {"owner": 1, "operations": [parent()]}
        assert ask("", "GET", "/v1/apps") == 401
        assert ask("writer", "POST", "/v1/apps/notes/envelopes", envelope) == 200
        assert ask("writer", "POST", "/v1/apps/other/envelopes", envelope) == 403
        assert ask("writer", "PUT", "/v1/apps/notes-3") == 201
        assert ask("writer", "GET", "/v1/apps/notes") == 403
        assert ask("reader", "POST", "/v1/apps/notes/envelopes", envelope) == 403
        assert ask("reader", "PUT", "/v1/apps/notes-4") == 403
        walks = ("/traverse/1", "/count/1")
        paths = ("", "/types", "/objects", "/objects/1", "/history/1", "/neighbours/1", *walks)
        for path in paths:
            assert ask("reader", "GET", f"/v1/apps/notes{path}") == 200, path
            assert ask("reader", "GET", f"/v1/apps/other{path}") == 403, path
            assert ask("streams", "GET", f"/v1/apps/notes{path}") == 403, path
        assert ask("reader", "GET", "/v1/apps") == 403
        assert ask("reader", "GET", "/v1/apps", query="prefix=notes") == 200
        assert ask("reader", "GET", "/v1/graph/feed") == 403
        assert ask("reader", "GET", "/v1/graph/feed", query="prefix=notes&until=0") == 200
        assert ask("reader", "GET", "/v1/apps/notes/feed", query="until=0") == 200
        assert ask("reader", "GET", "/v1/apps/other/feed", query="until=0") == 403
    finally:
        front.stop()


# The feed


def received(front, target, **headers):
    """Return the events of a feed that ends."""
    with Events(front.port, target, **headers) as events:
        return [event for event in events if event[1] is not None]


def rows_of(events):
    return [
        (change["app"], change["object"]["kind"], change["object"]["id"])
        for _, name, data in events
        if name == "changes"
        for change in data["changes"]
    ]


def logged(graph, after, until):
    return [
        (graph.slug, change.kind, change.row.id)
        for change in graph.log(after=after, limit=10**6)
        if change.global_seq <= until
    ]


def test_feed_resumes_anywhere_without_loss_or_duplication(app, front, monkeypatch):
    monkeypatch.setattr(graph_feed, "FEED_EVENT_ROWS", 3)
    graph = front.store.graphs.open(app.app)
    start = graph.position()
    for size in (1, 7, 2, 12, 1):
        app.apply([parent() for _ in range(size)])
    until = graph.position()
    target = f"/v1/apps/{app.app}/feed?after={start}&until={until}"
    whole = received(front, target)
    assert rows_of(whole) == logged(graph, start, until)
    assert whole[-1][1:] == ("end", {"seq": until})
    assert len({event[0] for event in whole[:-1]}) == len(whole) - 1 >= 10
    for cut, (place, _, _) in enumerate(whole[:-1], start=1):
        rest = received(front, target, Last_Event_ID=place)
        assert rows_of(whole[:cut]) + rows_of(rest) == logged(graph, start, until), place


def test_changes_of_large_transaction_are_encoded_in_steps(tmp_path, monkeypatch):
    rows, steps, count = [], [], 2 * feed.FEED_STEP_ROWS + 1

    def end_step():
        steps.append(len(rows))
        rows.clear()

    def encode(kind, row):
        rows.append(row)
        return object_row(kind, row)

    monkeypatch.setattr(graph_feed, "object_row", encode)
    with fourfold.open(tmp_path) as store:
        graphs = store.graphs
        app = graphs.register_app("notes", "Notes").app_id
        row = {"type_id": graphs.register_type(app, "parent", "note"), "owner_identity": 1}
        graphs.insert_many_parents(app, [row] * count)
        monkeypatch.setattr(graphs.database, "paced", lambda: nullcontext(end_step))
        selection = graph_feed._Selection(None, "", None)
        ((seq, changes, sizes),), position = graph_feed._read_changes(graphs, selection, 0)
    assert (seq, position, len(changes), len(sizes)) == (1, 1, count, count)
    assert [step for step in steps if step] == [feed.FEED_STEP_ROWS, feed.FEED_STEP_ROWS, 1]


def test_feed_delivers_while_others_write_and_after_every_reconnect(server, front):
    apps = [new_app(server, f"live-{number}") for number in range(2)]
    graphs = front.store.graphs
    start = graphs.position()
    total = 120

    def write(app):
        for number in range(total // 2):
            assert app.apply([parent(), attr({"$op": 0}, number)]).status == 200

    threads = [threading.Thread(target=write, args=(app,)) for app in apps]
    got, place = [], str(start)
    rng = random.Random(1)
    for thread in threads:
        thread.start()
    while len(got) < 2 * total:
        with Events(front.port, "/v1/graph/feed?prefix=live-", Last_Event_ID=place) as events:
            patience = rng.randint(1, 9)
            for event_id, name, data in events:
                place = event_id
                if name == "changes":
                    got += rows_of([(event_id, name, data)])
                    patience -= 1
                if not patience or len(got) >= 2 * total:
                    break
    for thread in threads:
        thread.join()
    expected = [
        (graphs.app(change.app_id).slug, change.kind, change.row.id)
        for change in graphs.page(
            fourfold.models.graphs.FeedFilter.of(
                [graphs.app(app.app).app_id for app in apps], None, None
            ),
            *(start, 10**6),
            durable=False,
        ).changes
    ]
    assert got == expected


def test_feed_includes_an_app_that_is_registered_later(server, front):
    start = front.store.graphs.position()
    with Events(front.port, f"/v1/graph/feed?prefix=later&after={start}") as events:
        iterator = iter(events)
        assert next(iterator)[0] == str(start)
        app = new_app(server, "later-1")
        seq = app.apply([parent()]).value["seq"]
        event_id, name, data = next(event for event in iterator if event[1] == "changes")
    assert (event_id, data["seq"], data["complete"]) == (str(seq), seq, True)
    assert rows_of([(event_id, name, data)])[0][:2] == ("later-1", "parent")


def test_feed_has_no_changes_of_other_apps(server, front):
    start = front.store.graphs.position()
    apps = [new_app(server, f"{name}-feed") for name in ("one", "two", "one-two")]
    for app in (*apps, *apps):
        app.apply([parent()])
    until = front.store.graphs.position()
    query = f"after={start}&until={until}"
    for target, names in (
        (f"/v1/apps/one-feed/feed?{query}", ["one-feed"] * 2),
        (f"/v1/graph/feed?prefix=one&{query}", ["one-feed", "one-two-feed"] * 2),
        (f"/v1/graph/feed?prefix=none&{query}", []),
    ):
        assert [name for name, _, _ in rows_of(received(front, target))] == names


def test_feed_filters_kinds_and_passes_what_does_not_match(app, front):
    start = front.store.graphs.position()
    app.apply([parent(), attr({"$op": 0}, 1)])
    app.apply([parent()])
    until = front.store.graphs.position()
    query = f"kind=attr&after={start}&until={until}"
    events = received(front, f"/v1/apps/{app.app}/feed?{query}")
    assert [kind for _, kind, _ in rows_of(events)] == ["attr"]
    assert events[-1][:2] == (str(until), "end")


def test_feed_reports_a_gap_after_ids_that_are_lost(app, front):
    app.apply([parent()])
    newest = front.store.graphs.position()
    target = f"/v1/apps/{app.app}/feed?until={newest}"
    (place, name, data), end = received(front, target, Last_Event_ID=str(newest + 5))
    assert (place, name) == (str(newest), "gap")
    assert data == {"after": newest + 5, "newest": newest}
    assert end[1] == "end"
    assert app.ask("GET", "/feed", query=f"after={newest + 5}").status == 400
    for text in ("x", "-1", "1.0", "0.1", "1.2.3", "9" * 40, "٣"):
        answer = app.ask("GET", "/feed", None, "until=0", Last_Event_ID=text.encode())
        assert answer.status == 400, text
