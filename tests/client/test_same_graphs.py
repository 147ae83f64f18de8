"""One program with graphs on a folder and on a server: the same calls, results and errors."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from cutting_proxy import CuttingProxy
from served_streams import Served

import fourfold
from fourfold import errors
from fourfold.client import AsyncRemoteStore
from fourfold.models.graphs import Pattern


@pytest.fixture
def slug():
    return f"a-{uuid.uuid4().hex}"


TYPES = {"parent": "note", "attr": "text", "edge": "cites", "rating": "suppress"}


@pytest.fixture
def notes(store, slug):
    app = store.graphs.create(slug, "Notes")
    for kind, key in TYPES.items():
        app.register_type(kind, key)
    return app


def note(value=None, **fields):
    payload = {"value": value} if value is not None else {}
    return {"op": "attr_create", "type_key": "text", "payload": {**payload, **fields}}


def test_apps_are_created_opened_and_listed(store, notes, slug):
    assert (notes.slug, notes.info.title, notes.info.slug) == (slug, "Notes", slug)
    assert store.graphs.create(slug).app_id == notes.app_id
    assert store.graphs.open(notes.app_id) == store.graphs[slug] == notes
    assert repr(notes) == f"<Graph {slug}>"
    apps = store.graphs.list()
    assert [app.app_id for app in apps] == sorted(app.app_id for app in apps)
    assert (apps[0].slug, notes.info in apps) == ("system", True)
    assert store.graphs.app(slug) == store.graphs.app(notes.app_id) == notes.info
    assert hash(notes) == hash(store.graphs.open(slug))
    assert notes.usage == store.graphs.usage(notes.app_id)
    assert notes.usage[1:] == (0, 0, None, None)


def test_types_are_registered_once(notes):
    assert [(row.kind, row.type_key) for row in notes.types()] == list(TYPES.items())
    again = [notes.register_type(kind, key) for kind, key in TYPES.items()]
    assert again == [row.id for row in notes.types()]


def test_objects_of_every_kind_are_written_and_read(notes):
    result = notes.apply(
        [
            {"op": "parent_create", "type_key": "note"},
            {"op": "parent_create", "type_key": "note"},
            note("é", parent_id={"$op": 0}),
            note(1.5, parent_id={"$op": 0}),
            note(b"\xff\x00", parent_id={"$op": 0}),
            note({"a": [None, True]}, parent_id={"$op": 1}),
            {
                "op": "edge_create",
                "type_key": "cites",
                "payload": {"src_parent_id": {"$op": 0}, "dst_parent_id": {"$op": 1}},
            },
            {
                "op": "rating_create",
                "type_key": "suppress",
                "payload": {"target_parent_id": {"$op": 1}, "value": 0},
            },
        ],
        owner=7,
        trace_id="t",
    )
    assert len(result.object_ids) == 8
    first, second, text, *_, edge, rating = result.object_ids
    assert notes.read("parent", first).owner_identity == 7
    assert notes.read("attr", text).value_text == "é"
    values = [
        (row.value_text, row.value_number, row.value_blob, row.value_json)
        for row in notes.objects("attr")
    ]
    assert values == [
        ("é", None, None, None),
        (None, 1.5, None, None),
        (None, None, b"\xff\x00", None),
        (None, None, None, '{"a":[null,true]}'),
    ]
    assert notes.read("edge", edge).dst_parent_id == second
    assert notes.read("rating", rating).value_number == 0.0
    around = notes.neighbours(first)
    assert (around.object.object_id, around.complete) == (first, True)
    assert [row.object_id for row in around.edges] == [edge]
    assert [row.object_id for row in around.objects] == [second]
    assert len(around.attrs) == 3
    assert not notes.neighbours(first, limit=1).complete
    assert notes.neighbours(text, kind="attr").objects[0].object_id == first
    assert notes.usage.rows == 8


def test_objects_are_read_together_with_parts_of_their_neighbourhood(notes):
    operations = [{"op": "parent_create", "type_key": "note"} for _ in range(3)]
    operations += [note(text, parent_id={"$op": at}) for at in (0, 1) for text in ("a", "b")]
    operations += [
        {
            "op": "edge_create",
            "type_key": "cites",
            "payload": {"src_parent_id": {"$op": 0}, "dst_parent_id": {"$op": 1}},
        },
        {
            "op": "rating_create",
            "type_key": "suppress",
            "payload": {"target_attr_id": {"$op": 4}, "value": 1},
        },
    ]
    result = notes.apply(operations, owner=7, trace_id="t")
    first, second, third = result.object_ids[:3]
    notes.apply([note("later", parent_id=first)], owner=7, trace_id="u")
    ids = [second, first, 2**40, third]
    for parts in (("attrs",), ("edges", "objects"), ("attrs", "edges", "ratings", "objects"), ()):
        for options in ({}, {"at": result.global_seq}, {"limit": 1}, {"suppressed": True}):
            for read in notes.read_many(ids, parts=parts, **options):
                whole = notes.neighbours(read.object.object_id, **options)
                assert read.object == whole.object
                for part in ("attrs", "edges", "ratings", "objects"):
                    assert getattr(read, part) == (getattr(whole, part) if part in parts else ())
            read = notes.read_many(ids, parts=parts, **options)
            assert [item.object.object_id for item in read] == [second, first, third]
    assert notes.read_many([]) == notes.read_many([2**40]) == []
    assert notes.read_many([first], at=0) == []
    for wrong in (lambda: notes.read_many([0]), lambda: notes.read_many(range(1, 202))):
        with pytest.raises(errors.InvalidInput):
            wrong()
    for parts in ("attrs", ["names"]):
        with pytest.raises(errors.InvalidInput):
            notes.read_many([first], parts=parts)


def test_walks_follow_edges_at_every_point(notes):
    note_type = notes.register_type("parent", "note")
    cites, quotes = notes.register_type("edge", "cites"), notes.register_type("edge", "quotes")
    a, b, c, d = notes.insert("parent", [{"type_id": note_type, "owner_identity": 1}] * 4)
    before = notes.position()
    link = {"owner_identity": 1, "src_parent_id": a, "dst_parent_id": b}
    first, second, third = (
        notes.insert("edge", [{**link, "type_id": kind, "src_parent_id": src, "dst_parent_id": to}])
        for src, to, kind in ((a, b, cites), (b, c, cites), (c, d, quotes))
    )
    reached = notes.traverse(a, depth=5)
    assert [row.object_id for row in reached.objects] == [b, c, d]
    assert reached.objects[1] == (c, 2, b, *second)
    assert (reached.seq, reached.complete) == (notes.position(), True)
    assert not notes.traverse(a, depth=5, limit=1).complete
    assert notes.traverse(a, at=before).objects == ()
    assert notes.traverse(a, types=[]).objects == ()
    path = notes.path(a, d)
    assert (path.objects, path.edges) == ((a, b, c, d), (*first, *second, *third))
    assert notes.path(a, d, types=[cites]) is None
    assert notes.path(a, d, depth=2) is None
    assert notes.path(d, a, direction="in").objects == (d, c, b, a)
    assert notes.path(a, d, at=before) is None
    assert notes.exists(a, b)
    assert not notes.exists(b, a)
    assert not notes.exists(a, b, at=before)
    assert not notes.exists(a, b, types=[quotes])
    assert (notes.count(b), notes.count(b, direction="both")) == (1, 2)
    assert notes.count(b, direction="both", at=before) == 0
    hidden = {"target_parent_id": c, "type_id": notes.register_type("rating", "suppress")}
    notes.insert("rating", [{**hidden, "owner_identity": 1}])
    assert notes.path(a, d) is None
    assert notes.path(a, d, suppressed=True).objects == (a, b, c, d)
    assert notes.count(b) == 0
    for wrong in (
        lambda: notes.traverse(a, direction="up"),
        lambda: notes.traverse(a, limit=10_001),
        lambda: notes.path(a, b, depth=0),
        lambda: notes.count(a, types="12"),
        lambda: notes.count(a, at=notes.position() + 1),
        lambda: notes.traverse(0),
    ):
        with pytest.raises(errors.InvalidInput):
            wrong()
    for missing in (lambda: notes.path(a, 10**9), lambda: notes.exists(10**9, a)):
        with pytest.raises(errors.NotFound):
            missing()


def test_an_update_is_refused_if_another_came_first(notes):
    kind, text = notes.register_type("parent", "note"), notes.register_type("attr", "text")
    [one] = notes.insert("parent", [{"type_id": kind, "owner_identity": 1}])
    row = {"type_id": text, "owner_identity": 1, "parent_id": one, "value_text": "a"}
    [attr] = notes.insert("attr", [row])
    read = notes.read("attr", attr)
    newer = notes.update("attr", attr, {"value_text": "b"}, expected=read.id)
    before = notes.position()
    with pytest.raises(errors.PreconditionFailed, match=f"is {newer}, not {read.id}") as caught:
        notes.update("attr", attr, {"value_text": "c"}, expected=read.id)
    assert caught.value.details["id"] == newer
    operations = [
        {"op": "parent_create", "type_key": "note"},
        {
            "op": "attr_update",
            "type_key": "text",
            "expected": read.id,
            "payload": {"attr_id": attr, "value": "c"},
        },
    ]
    with pytest.raises(errors.PreconditionFailed, match=r"ops\[1\]"):
        notes.apply(operations, owner=1, trace_id="t")
    assert notes.position() == before
    assert notes.read("attr", attr).value_text == "b"
    operations[1]["expected"] = newer
    notes.apply(operations, owner=1, trace_id="t")
    assert notes.read("attr", attr).value_text == "c"
    for wrong in (0, True, "1"):
        operations[1]["expected"] = wrong
        with pytest.raises(errors.InvalidInput):
            notes.apply(operations, owner=1, trace_id="t")
    with pytest.raises(errors.InvalidInput, match="is for updates"):
        notes.apply([{**operations[0], "expected": 1}], owner=1, trace_id="t")


def test_envelopes_are_found_by_their_trace_id(store, slug, notes):
    create = [{"op": "parent_create", "type_key": "note"}]
    seqs = [notes.apply(create, owner=1, trace_id=t).global_seq for t in ("a", "b", "a", "a")]
    other = store.graphs.create(f"{slug}-2")
    other.register_type("parent", "note")
    other.apply(create, owner=1, trace_id="a")
    rows = notes.envelopes("a")
    assert [row.global_seq for row in rows] == [seqs[0], seqs[2], seqs[3]]
    assert {(row.app_id, row.kinds, row.trace_id) for row in rows} == {(notes.app_id, 1, "a")}
    assert notes.envelopes("a", after=seqs[0], limit=1) == rows[1:2]
    assert notes.envelopes("none") == []
    for wrong in (lambda: notes.envelopes(""), lambda: notes.envelopes("a", limit=0)):
        with pytest.raises(errors.InvalidInput):
            wrong()


def test_an_envelope_is_written_once_by_its_trace_id(notes):
    for key in ("note", "other"):
        notes.register_type("parent", key)
    notes.register_type("attr", "text")
    create = {"op": "parent_create", "type_key": "note"}
    value = {"op": "attr_create", "type_key": "text", "payload": {"parent_id": {"$op": 0}}}
    value["payload"]["value"] = "a"
    first = notes.apply([create, value, create], owner=1, trace_id="t", once=True)
    assert notes.apply([create, value, create], owner=1, trace_id="t", once=True) == first
    assert notes.position() == first.global_seq
    for wrong in (
        [create],
        [create, create, value],
        [{**create, "type_key": "other"}, value, create],
    ):
        with pytest.raises(errors.ReplayMismatch):
            notes.apply(wrong, owner=1, trace_id="t", once=True)
    with pytest.raises(errors.ReplayMismatch):
        notes.apply([create, value, create], owner=2, trace_id="t", once=True)
    assert notes.apply([create], owner=1, trace_id="u", once=True).global_seq > first.global_seq
    assert notes.apply([create], owner=1, trace_id="t").global_seq == notes.position()
    assert len(notes.envelopes("t")) == 2


def test_values_are_found_and_aggregated(notes):
    kind, text = notes.register_type("parent", "note"), notes.register_type("attr", "text")
    stars, other = notes.register_type("rating", "stars"), notes.register_type("parent", "other")
    a, b = notes.insert("parent", [{"type_id": kind, "owner_identity": 1}] * 2)
    before = notes.position()
    row = {"type_id": text, "owner_identity": 1, "parent_id": a}
    values = ({"value_text": "b"}, {"value_text": "a"}, {"value_number": 2.0})
    ids = [notes.insert("attr", [{**row, **value}])[0] for value in values]
    assert [row.object_id for row in notes.find("text").rows] == [ids[2], ids[1], ids[0]]
    [found] = notes.find("text", "a").rows
    assert (found, found.parent_id) == (notes.read("attr", ids[1]), a)
    assert [row.object_id for row in notes.find("text", {"$gte": "a"}).rows] == [ids[1], ids[0]]
    first = notes.find("text", limit=2)
    rest = notes.find("text", limit=2, after=first.cursor)
    assert (len(first.rows), len(rest.rows), rest.cursor) == (2, 1, None)
    assert notes.find("text", at=before).rows == ()
    for target, number in ((a, 1), (a, 2), (b, 5)):
        rating = {"type_id": stars, "owner_identity": 1, "target_parent_id": target}
        notes.insert("rating", [{**rating, "value_number": float(number)}])
    whole = notes.aggregate("stars")
    assert whole == (notes.position(), 3, 3, 8.0, 8 / 3, 1.0, 5.0)
    assert notes.aggregate("stars", target=a).average == 1.5
    assert notes.aggregate("stars", at=before) == (before, 0, 0, None, None, None, None)
    assert notes.aggregate("text", kind="attr")[1:3] == (3, 1)
    assert notes.top("stars").objects == ((b, 1, 5.0, 5.0), (a, 2, 3.0, 1.5))
    assert [row.object_id for row in notes.top("stars", order="count", limit=1).objects] == [a]
    assert notes.top("stars", types=[other]).objects == notes.top("stars", types=[]).objects == ()
    for wrong in (
        lambda: notes.find("text", {"$like": 1}),
        lambda: notes.find("text", after="x"),
        lambda: notes.find("text", "\ud800"),
        lambda: notes.find("text", limit=0),
        lambda: notes.aggregate("stars", target=0),
        lambda: notes.top("stars", order="best"),
    ):
        with pytest.raises(errors.InvalidInput):
            wrong()
    with pytest.raises(errors.NotFound):
        notes.find("none")


def test_limits_of_an_app_are_set_and_enforced(notes):
    kind = notes.register_type("parent", "note")
    usage = notes.set_limits(rows_max=2, bytes_max=100)
    assert (usage.app_id, usage.rows_max, usage.bytes_max) == (notes.app_id, 2, 100)
    assert notes.usage == usage
    row = {"type_id": kind, "owner_identity": 1}
    with pytest.raises(errors.LimitExceeded):
        notes.insert("parent", [row] * 3)
    notes.insert("parent", [row] * 2)
    assert notes.set_limits(bytes_max=100)[1:] == (2, 0, None, 100)
    notes.insert("parent", [row])
    for wrong in (-1, 1.5, "2", True):
        with pytest.raises(errors.InvalidInput):
            notes.set_limits(rows_max=wrong)


def test_rules_of_types_are_set_described_and_enforced(notes):
    kind, text = notes.register_type("parent", "note"), notes.register_type("attr", "text")
    rule = {"on": ["note"], "value": "text", "unique": True}
    notes.set_rule("attr", "text", rule)
    description = notes.describe()
    assert (description.app.slug, description.usage.app_id) == (notes.slug, notes.app_id)
    rules = {row.type_key: row.rule for row in description.types}
    assert (rules["note"], rules["text"]) == (None, rule)
    [one] = notes.insert("parent", [{"type_id": kind, "owner_identity": 1}])
    row = {"type_id": text, "owner_identity": 1, "parent_id": one}
    notes.insert("attr", [{**row, "value_text": "a"}])
    for wrong in ({"value_text": "a"}, {"value_number": 1.0}):
        with pytest.raises(errors.RuleBroken):
            notes.insert("attr", [{**row, **wrong}])
    with pytest.raises(errors.RuleBroken):
        notes.set_rule("attr", "text", {"value": "number"})
    with pytest.raises(errors.InvalidInput):
        notes.set_rule("attr", "text", {"to": ["note"]})
    with pytest.raises(errors.NotFound):
        notes.set_rule("edge", "none", {"most": 1})
    notes.set_rule("attr", "text", None)
    notes.insert("attr", [{**row, "value_text": "a"}])


def test_a_follower_of_a_pattern_gets_only_what_concerns_it(notes):
    kind, other = notes.register_type("parent", "note"), notes.register_type("edge", "likes")
    knows, age = notes.register_type("edge", "knows"), notes.register_type("attr", "age")
    note = notes.register_type("attr", "text")
    hide = notes.register_type("rating", "suppress")
    a, b = notes.insert("parent", [{"type_id": kind, "owner_identity": 1}] * 2)
    pattern = Pattern().node("a", where={"age": {"$gt": 1}}).edge("a", "b", "knows")
    feed = notes.follow(after=notes.position(), timeout=30, pattern=pattern)
    row = {"owner_identity": 1, "src_parent_id": a, "dst_parent_id": b}
    value = {"owner_identity": 1, "parent_id": a, "value_number": 2.0}
    notes.insert("edge", [{**row, "type_id": other}])
    notes.insert("attr", [{**value, "type_id": note}])
    notes.insert("parent", [{"type_id": kind, "owner_identity": 1}])
    wanted = [
        ("edge", notes.insert("edge", [{**row, "type_id": knows}])[0]),
        ("attr", notes.insert("attr", [{**value, "type_id": age}])[0]),
    ]
    rating = {"type_id": hide, "owner_identity": 1, "target_parent_id": b, "value_number": 1.0}
    wanted.append(("rating", notes.insert("rating", [rating])[0]))
    changes = []
    while len(changes) < len(wanted):
        changes += next(feed)
    assert [(change.kind, change.row.object_id) for change in changes] == wanted
    feed.close()
    with pytest.raises(errors.InvalidInput):
        next(notes.follow(after=0, timeout=1, pattern={}))
    with pytest.raises(errors.NotFound):
        next(notes.follow(after=0, timeout=1, pattern=Pattern().edge("a", "b", "none")))


def test_patterns_are_matched_page_by_page(notes):
    kind, knows = notes.register_type("parent", "note"), notes.register_type("edge", "knows")
    age = notes.register_type("attr", "age")
    a, b, c = notes.insert("parent", [{"type_id": kind, "owner_identity": 1}] * 3)
    row = {"type_id": knows, "owner_identity": 1}
    edges = [
        notes.insert("edge", [{**row, "src_parent_id": src, "dst_parent_id": dst}])[0]
        for src, dst in ((a, b), (b, c))
    ]
    before = notes.position()
    value = {"type_id": age, "owner_identity": 1, "parent_id": c, "value_number": 20.0}
    notes.insert("attr", [value])
    pattern = Pattern().edge("a", "b", "knows").path("b", "c", hops=2)
    [row] = notes.match(pattern).rows
    assert row.objects == {"a": a, "b": b, "c": c}
    assert [path.edges for path in row.paths] == [(edges[0],), (edges[1],)]
    pattern = Pattern().path("a", "b", "knows", hops=2)
    first = notes.match(pattern, limit=2)
    rest = notes.match(pattern.to_json(), limit=2, after=first.cursor)
    assert (len(first.rows), len(rest.rows), rest.cursor) == (2, 1, None)
    aged = pattern.node("b", type_key="note", where={"age": {"$gt": 18}})
    assert [row.objects["a"] for row in notes.match(aged).rows] == [a, b]
    assert notes.match(aged, at=before) == (before, (), None)
    for wrong in (
        lambda: notes.match({}),
        lambda: notes.match(pattern, limit=0),
        lambda: notes.match(pattern, after="x"),
        lambda: notes.match({"nodes": {"a": {"where": {"age": float("nan")}}}}),
    ):
        with pytest.raises(errors.InvalidInput):
            wrong()
    with pytest.raises(errors.NotFound):
        notes.match(Pattern().node("a", type_key="none"))


def test_versions_of_an_object_stay_readable(notes):
    note_type = notes.register_type("parent", "note")
    text = notes.register_type("attr", "text")
    [one] = notes.insert("parent", [{"type_id": note_type, "owner_identity": 1}])
    row = {"type_id": text, "owner_identity": 1, "parent_id": one, "value_text": "a"}
    [attr] = notes.insert("attr", [row])
    before = notes.position()
    time_before = datetime.now(UTC) + timedelta(milliseconds=1)
    while datetime.now(UTC) <= time_before:
        pass
    version = notes.update("attr", attr, {"value_text": "b"})
    assert notes.read("attr", attr).id == version
    assert [row.value_text for row in notes.history("attr", attr)] == ["a", "b"]
    [whole] = notes.read_many([one], parts=["versions", "attrs"])
    assert whole.versions == (*notes.history("parent", one), *notes.history("attr", attr))
    [past] = notes.read_many([one], parts=["versions", "attrs"], at=before)
    assert past.versions == whole.versions[:2]
    assert notes.read_many([one])[0].versions == ()
    assert notes.read("attr", attr, at=before).value_text == "a"
    assert notes.read("attr", attr, at=time_before).value_text == "a"
    assert notes.read("attr", attr, at=before - 1) is None
    assert notes.read("attr", 10**9) is None
    assert notes.history("attr", 10**9) == []
    assert [row.value_text for row in notes.objects("attr", at=before)] == ["a"]
    assert notes.insert("parent", []) == []


def test_objects_are_selected_by_type_and_limit(notes, monkeypatch):
    monkeypatch.setattr(fourfold.limits, "PAGE_ITEMS_MAX", 3)
    types = [notes.register_type("parent", key) for key in "abc"]
    rows = [{"type_id": types[n % 3], "owner_identity": 1} for n in range(12)]
    ids = notes.insert("parent", rows)
    assert [row.object_id for row in notes.objects("parent")] == ids
    assert [row.object_id for row in notes.objects("parent", limit=5)] == ids[:5]
    chosen = notes.objects("parent", types=types[:2])
    assert [row.object_id for row in chosen] == [each for n, each in enumerate(ids) if n % 3 < 2]
    assert notes.objects("parent", types=[]) == notes.objects("parent", limit=0) == []


def test_suppressed_objects_are_left_out(notes):
    result = notes.apply(
        [
            {"op": "parent_create", "type_key": "note"},
            {
                "op": "rating_create",
                "type_key": "suppress",
                "payload": {"target_parent_id": {"$op": 0}},
            },
        ],
        owner=1,
        trace_id="t",
    )
    assert notes.objects("parent") == []
    [hidden] = notes.objects("parent", suppressed=True)
    assert hidden.object_id == result.object_ids[0]


def test_wrong_calls_raise_the_same_errors(store, notes):
    def caught(call):
        with pytest.raises(errors.FourfoldError) as info:
            call()
        return type(info.value), info.value.message

    assert caught(lambda: store.graphs.open("none")) == (errors.NotFound, "unknown app 'none'")
    assert caught(lambda: store.graphs.create("No Slug"))[0] is errors.InvalidInput
    assert caught(lambda: notes.read("node", 1)) == (
        errors.InvalidInput,
        "'node' is not a kind of object",
    )
    assert caught(lambda: notes.apply([{"op": "x"}], owner=1, trace_id="t")) == (
        errors.InvalidInput,
        "ops[0]: 'x' is not an operation",
    )
    dangling = note("x", parent_id=10**9)
    assert caught(lambda: notes.apply([dangling], owner=1, trace_id="t"))[0] is errors.NotFound
    assert caught(lambda: notes.neighbours(10**9))[0] is errors.NotFound
    kind = notes.register_type("parent", "note")
    [one] = notes.insert("parent", [{"type_id": kind, "owner_identity": 1}])
    assert caught(lambda: notes.update("parent", one, {"owner_identity": 2})) == (
        errors.Refused,
        f"owner_identity of parent {one} in app {notes.app_id} cannot change",
    )
    position = notes.position()
    assert caught(lambda: notes.follow(after=position + 1))[0] is errors.InvalidInput


def test_log_has_whole_transactions(notes):
    kind = notes.register_type("parent", "note")
    start = notes.position()
    for count in (3, 1, 4):
        notes.insert("parent", [{"type_id": kind, "owner_identity": 1}] * count)
    rows = notes.log(after=start)
    assert [row.global_seq - start for row in rows] == [1, 1, 1, 2, 3, 3, 3, 3]
    assert {(row.app_id, row.kind) for row in rows} == {(notes.app_id, "parent")}
    assert len(notes.log(after=start, limit=4)) in {3, 4}
    assert len(notes.log(after=start, limit=2)) == 3
    assert notes.log(after=notes.position()) == []


def test_changes_are_followed(store, notes, slug):
    kind = notes.register_type("parent", "note")
    start = notes.position()
    with notes.follow(after=start, timeout=30) as pages:
        [one] = notes.insert("parent", [{"type_id": kind, "owner_identity": 1}])
        [change] = next(pages)
        assert (change.row.object_id, change.global_seq) == (one, start + 1)
        assert pages.position == start + 1
    other = store.graphs.create(f"{slug}-2")
    other.insert("parent", [{"type_id": other.register_type("parent", "x"), "owner_identity": 1}])
    ids = {notes.app_id, other.app_id}
    with store.graphs.follow(after=start, apps=ids, timeout=30) as pages:
        seen = [next(pages)]
        while sum(map(len, seen)) < 2:
            seen.append(next(pages))
        assert {change.app_id for page in seen for change in page} == ids
    with store.graphs.feed(after=start, kinds=["edge"], apps=ids) as pages:
        assert pages.next(0.2) == ()


def test_coroutines_write_and_follow(notes):
    async def work():
        create = [{"op": "parent_create", "type_key": "note"}]
        start = notes.position()
        await asyncio.gather(*(notes.apply_async(create, owner=1, trace_id="t") for _ in range(5)))
        rows, pages = [], notes.follow(after=start, timeout=30)
        while len(rows) < 5:
            rows += await anext(pages)
        pages.close()
        return [row.global_seq - start for row in rows]

    assert asyncio.run(work()) == [1, 2, 3, 4, 5]


# The server only


def test_store_for_coroutines_has_graphs(served, slug):
    async def work():
        async with AsyncRemoteStore(f"http://127.0.0.1:{served.port}") as store:
            notes = await store.graphs.create(slug)
            assert (await notes.info).slug == slug
            kind = await notes.register_type("parent", "note")
            start = await notes.position()
            async with notes.follow(after=start, timeout=30) as pages:
                [one] = await notes.insert("parent", [{"type_id": kind, "owner_identity": 1}])
                [change] = await anext(pages)
                assert change.row.object_id == one
                assert await pages.next(0.05) == ()
                assert pages.position == start + 1
            assert len(await notes.log(after=start, limit=1)) == 1
            assert (await notes.read("parent", one)).object_id == one
            assert (await store.graphs.list())[0].slug == "system"

    asyncio.run(work())


def test_large_transaction_is_one_page_over_a_failing_network(served, slug):
    with (
        fourfold.connect(f"http://127.0.0.1:{served.port}") as direct,
        CuttingProxy(served.port, 500_000, seed=5) as proxy,
        fourfold.connect(f"http://127.0.0.1:{proxy.port}", retry_for=None) as cut,
    ):
        notes = direct.graphs.create(slug)
        kind = notes.register_type("parent", "note")
        start = notes.position()
        ids = notes.insert("parent", [{"type_id": kind, "owner_identity": 1}] * 4_000)
        notes.insert("parent", [{"type_id": kind, "owner_identity": 1}])
        with cut.graphs.open(slug).follow(after=start, timeout=60) as pages:
            assert [change.row.object_id for change in next(pages)] == ids
            assert pages.position == start + 1
            assert len(next(pages)) == 1
        assert proxy.cuts > 1


def test_envelope_without_a_response_is_applied_once(served, slug):
    with (
        fourfold.connect(f"http://127.0.0.1:{served.port}") as direct,
        CuttingProxy(served.port, 1_200, seed=5) as proxy,
        fourfold.connect(f"http://127.0.0.1:{proxy.port}", retry_for=None) as cut,
    ):
        notes = cut.graphs.create(slug)
        notes.register_type("parent", "note")
        for _ in range(30):
            notes.apply([{"op": "parent_create", "type_key": "note"}], owner=1, trace_id="t")
        assert proxy.cuts > 5
        assert len(direct.graphs.open(slug).objects("parent")) == 30


def test_follower_continues_on_a_server_that_was_killed(tmp_path):
    served = Served(tmp_path / "store", long_poll="1")
    try:
        with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
            notes = store.graphs.create("notes")
            kind = notes.register_type("parent", "note")
            row = {"type_id": kind, "owner_identity": 1}
            with notes.follow() as pages:
                notes.insert("parent", [row])
                assert len(pages.next(60)) == 1
                served.kill()
                served.start()
                notes.insert("parent", [row, row])
                assert len(pages.next(60)) == 2
    finally:
        served.kill()


def test_transactions_and_durable_feeds_are_refused(served, slug):
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        notes = store.graphs.create(slug)
        with pytest.raises(errors.Refused, match="no transactions"):
            notes.insert("parent", [], txn=object())
        with pytest.raises(errors.Refused, match="durable"):
            store.graphs.feed(durable=True)
