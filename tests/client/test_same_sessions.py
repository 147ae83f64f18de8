"""One program on the sessions of a folder and of a server: the same calls, results and errors."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from same_program import refused

import fourfold
from fourfold import errors
from fourfold.content import PayloadRef
from fourfold.models.sessions.request import Payload


@pytest.fixture
def session(store, name):
    return store.sessions.create({"id": name, "model": "any"})


def test_sessions_are_created_listed_and_deleted(store, name):
    made = store.sessions.create({"id": f"{name}-1", "model": "any"})
    assert (made.id, made.created) == (f"{name}-1", True)
    assert not store.sessions.create({"id": f"{name}-1"}).created
    other = store.sessions.create({"id": f"{name}-2"})
    assert store.sessions[made.id] == made != other
    assert [info.id for info in store.sessions.list(prefix=name)] == [made.id, other.id]
    assert [info.id for info in store.sessions.list(prefix=name, after=made.id)] == [other.id]
    assert [info.id for info in store.sessions.list(prefix=name, limit=1)] == [made.id]
    refused(
        errors.NotFound,
        f"unknown session '{name}-missing'",
        lambda: store.sessions.list(after=f"{name}-missing"),
    )
    assert (len(made), len(other)) == (1, 0)
    other.delete()
    assert [info.id for info in store.sessions.list(prefix=name)] == [made.id]
    with pytest.raises(errors.NotFound, match=f"session '{name}-2' was deleted at"):
        store.sessions.open(other.id)
    refused(errors.NotFound, f"there is no session '{name}-3'", lambda: store.sessions[f"{name}-3"])


def test_sessions_are_listed_by_a_filter(store, name):
    for index in range(6):
        fields = {"id": f"{name}-{index}", "model": "ab"[index % 2], "team": {"size": index}}
        store.sessions.create(fields)
    store.sessions.append_event(f"{name}-4", {"type": "session/stopped"})

    def ids(where, **options):
        rows = store.sessions.list(prefix=name, where=where, **options)
        return [int(info.id[-1]) for info in rows]

    assert ids({}) == [0, 1, 2, 3, 4, 5]
    assert ids({"model": "a"}) == [0, 2, 4]
    assert ids({"model": "a", "status": "running"}) == [0, 2]
    assert ids({"/team/size": {"$gte": 3}}, newest_first=True) == [5, 4, 3]
    assert ids({"model": "b"}, limit=1) == [1]
    assert ids({"model": "b"}, after=f"{name}-2", limit=1) == [3]
    assert ids({"events": {"$gt": 1}}) == [4]
    assert ids({"id": f"{name}-5"}) == [5]
    assert ids({"model": "c"}) == []
    store.sessions.delete_session(f"{name}-0")
    assert ids({"model": "a"}) == [2, 4]
    assert ids({"deleted_at": {"$type": "string"}}, deleted=True) == [0]
    refused(
        errors.InvalidInput,
        "unknown combination '$x'",
        lambda: store.sessions.list(where={"$x": 1}),
    )


def test_sessions_are_listed_by_their_newest_events(store, name):
    for index in range(5):
        store.sessions.create({"id": f"{name}-{index}", "kind": "ab"[index % 2]})
    store.sessions.append_event(f"{name}-1", {"type": "session/stopped"})

    def ids(**options):
        rows = store.sessions.list(prefix=name, order="updated", **options)
        return [int(info.id[-1]) for info in rows]

    oldest_first = ids()
    assert sorted(oldest_first) == [0, 1, 2, 3, 4]
    assert ids(newest_first=True) == oldest_first[::-1]
    assert ids(status="stopped") == [1]
    assert sorted(ids(kind="a")) == [0, 2, 4]
    assert ids(kind="b", status="running") == [3]
    assert ids(since=datetime(9000, 1, 1, tzinfo=UTC)) == []
    pages, after = [], None
    while page := store.sessions.list(
        prefix=name, order="updated", newest_first=True, limit=2, after=after
    ):
        pages += [int(info.id[-1]) for info in page]
        after = page[-1]
    assert pages == oldest_first[::-1]
    assert {info.kind for info in store.sessions.list(prefix=name)} == {"a", "b"}
    assert [i.id[-1] for i in store.sessions.list(prefix=name, kind="b", newest_first=True)] == [
        "3",
        "1",
    ]
    refused(
        errors.InvalidInput,
        "order 'updated' lists current sessions, without deleted ones",
        lambda: store.sessions.list(order="updated", deleted=True),
    )


def test_events_are_appended_and_folded(store, session):
    started = session.append({"type": "turn/started", "turn": {"status": "running"}})
    assert [(event.id, event.type, event.entity_id) for event in started] == [
        (2, "turn/started", 1)
    ]
    values = {"bytes": b"\x00", "when": datetime(2030, 1, 1, tzinfo=UTC), "set": frozenset({1})}
    session.append(
        [
            {"type": "message/appended", "message": {"role": "user", "content": values}},
            {"type": "turn/put", "turn": {"id": 1, "status": "done"}},
        ],
        key="k",
    )
    again = session.append(
        [
            {"type": "message/appended", "message": {"role": "user", "content": values}},
            {"type": "turn/put", "turn": {"id": 1, "status": "done"}},
        ],
        key="k",
    )
    assert [event.id for event in again] == [3, 4]
    view = session.read()
    assert isinstance(view, fourfold.SessionView)
    assert view.turns[0]["status"] == "done"
    assert view.messages == [{"id": 1, "role": "user", "content": values}]
    assert session.read(at=2).turns[0]["status"] == "running"
    assert view.session["model"] == "any"
    assert (view.counters.event, view.counters.turn, session.position()) == (4, 1, 4)
    assert view.materialize().state == view.state
    assert [event.type for event in session.log(after=1, until=3)] == [
        "turn/started",
        "message/appended",
    ]
    assert list(view.events) == session.log() == session.events_since()
    assert store.sessions.peek_next_id(session.id, "turn") == 2
    assert list(view.kept_messages()) == list(view.messages)


def test_heads_are_compared_and_swapped(store, session):
    first = session.publish_head({"kind": "turn-final"}, expected_basis=None)
    assert (first.session, first.basis, first.event_range) == (session.id, None, (1, 1))
    second = session.publish_head(
        expected_basis=first.id,
        events=[{"type": "message/appended", "message": {"role": "user", "content": "hi"}}],
    )
    assert second.basis == first.id
    with pytest.raises(errors.HeadMoved):
        session.publish_head(expected_basis=first.id)
    assert store.sessions.head(second.id) == second
    assert session.read().current_head == second.id
    assert list(session.read().heads) == [first, second]
    assert session.read(at=first.id).counters.event == 1
    with pytest.raises(errors.PreconditionFailed):
        session.append({"type": "turn/started", "turn": {}}, expected_last_id=1)
    fork = session.fork({"id": f"{session.id}-fork"}, at=second.id)
    assert fork.created
    [edge] = store.sessions.lineage(fork.id)
    assert (edge.from_session, edge.to_head) == (session.id, edge.to_head)
    assert {head.session for head in store.sessions.lineage_graph(fork.id).heads} == {
        session.id,
        fork.id,
    }


def test_heads_are_compared(store, session):
    message = {"role": "user", "content": "hi"}
    first = session.publish_head({"kind": "turn-final"})
    second = session.publish_head(events=[{"type": "message/appended", "message": message}])
    forward = store.sessions.compare_heads(first.id, second.id)
    assert (forward.one, forward.other, forward.common) == (first.id, second.id, first.id)
    assert (forward.new_messages, forward.gone_messages) == ([{"id": 1, **message}], [])
    assert (forward.added, forward.removed, forward.changed) == ([], [], [])
    back = store.sessions.compare_heads(second.id, first.id)
    assert (back.new_messages, back.gone_messages) == ([], [{"id": 1, **message}])
    unknown = f"sha256:{'0' * 64}"
    with pytest.raises(errors.NotFound):
        store.sessions.compare_heads(first.id, unknown)


def test_payloads_are_stored_by_their_hash(store):
    value = {"text": "x" * 2000, "bytes": b"\x01"}
    ref = store.sessions.intern_payload(value)
    assert store.sessions.read_payload(ref) == value
    assert store.sessions.maybe_intern("short") == "short"
    assert store.sessions.maybe_intern(value) == ref
    missing = PayloadRef(f"sha256:{'0' * 64}", "message", 1)
    with pytest.raises(errors.PayloadMissing):
        store.sessions.read_payload(missing)


def test_events_of_a_session_are_followed(store, session):
    with session.follow(timeout=30) as items:
        store.sessions.notify_transient(session.id, {"token": "he"})
        session.append({"type": "turn/started", "turn": {}})
        transient, event = next(items), next(items)
        assert (transient.item, transient.event_id) == ({"token": "he"}, 1)
        assert (event.id, event.type) == (2, "turn/started")
        assert items.cursor == 2
    with session.follow(after=0, timeout=2) as items:
        assert [item.id for item in items] == [1, 2]


def test_events_of_all_sessions_are_followed(store, session):
    other = store.sessions.create({"id": f"{session.id}-2"})
    with store.sessions.follow_all(timeout=30) as items:
        start = items.cursor
        session.append({"type": "turn/started", "turn": {}})
        other.append({"type": "turn/started", "turn": {}})
        events = [next(items), next(items)]
        assert [(event.session, event.id) for event in events] == [(session.id, 2), (other.id, 1)]
        assert [event.position for event in events] == [start + 1, items.cursor]
        store.sessions.notify_transient(other.id, "token")
        transient = next(items)
        assert (transient.session, transient.item) == (other.id, "token")
    with store.sessions.follow_all(after=start, timeout=30) as items:
        assert next(items) == events[0]


def test_heads_have_ancestors_and_descendants(store, session):
    session.append({"type": "turn/started", "turn": {}}, key="k")
    assert [event.id for event in store.sessions.events_of_key(session.id, "k")] == [2]
    assert store.sessions.events_of_key(session.id, "none") == []
    first = session.publish_head()
    session.append({"type": "turn/started", "turn": {}})
    second = session.publish_head()
    fork = session.fork()
    third = fork.read().current_head
    assert store.sessions.ancestors(third) == [second.id, first.id]
    assert store.sessions.descendants(first.id) == [second.id, third]
    with pytest.raises(errors.NotFound):
        store.sessions.ancestors(f"sha256:{'0' * 64}")


def test_large_values_in_events_become_payloads(store, session):
    text = "x" * 2_000
    content = {"content": Payload(text), "note": Payload("short")}
    session.append({"type": "message/appended", "message": content})
    [message] = session.read().messages
    assert isinstance(message["content"], PayloadRef)
    assert (store.sessions.read_payload(message["content"]), message["note"]) == (text, "short")


def test_errors_of_sessions_are_the_same(store, session):
    for call in (
        lambda: session.append({"type": 1}),
        lambda: store.sessions.create({"id": ""}),
        lambda: session.publish_head({"kind": 1}),
        lambda: store.sessions.peek_next_id(session.id, "other"),
    ):
        with pytest.raises(errors.InvalidInput):
            call()
    refused(
        errors.NotFound,
        f"session {session.id!r}: no event 99, the newest is 1",
        lambda: session.read(at=99),
    )


def test_leases_fence_writers(store, session):
    old = session.claim("one", 60)
    assert (old.session, old.holder) == (session.id, "one")
    assert store.sessions.find_lease(session.id) == old
    session.append({"type": "a/b"}, epoch=old.epoch)
    session.publish_head(events=[{"type": "a/b"}], epoch=old.epoch)
    refused(
        errors.AlreadyClaimed,
        f"session {session.id!r} is claimed by 'one' until {old.expires_at}",
        lambda: session.claim("two"),
    )
    new = session.claim("two", 60, steal=True)
    assert new.epoch > old.epoch
    edge = {"type": "invocation", "to_session": "t", "to_head": "sha256:" + "a" * 64}
    message = f"session {session.id!r}: no lease of epoch {old.epoch}, 'two' has claimed it"
    for write in (
        lambda: session.append({"type": "a/b"}, epoch=old.epoch),
        lambda: session.append_event({"type": "a/b"}, epoch=old.epoch, key="k"),
        lambda: session.append_events([{"type": "a/b"}], epoch=old.epoch),
        lambda: session.publish_head(epoch=old.epoch),
        lambda: store.sessions.append_lineage_edge(session.id, edge, epoch=old.epoch),
        lambda: session.renew(old.epoch),
        lambda: session.release(old.epoch),
        lambda: asyncio.run(session.append_async({"type": "a/b"}, epoch=old.epoch)),
        lambda: asyncio.run(store.sessions.renew_async(session.id, old.epoch)),
        lambda: asyncio.run(store.sessions.release_async(session.id, old.epoch)),
    ):
        refused(errors.LeaseLost, message, write)
    assert len(session) == 4
    renewed = session.renew(new.epoch, 3_600)
    assert (renewed.epoch, renewed.expires_at > new.expires_at) == (new.epoch, True)
    assert store.sessions.list_leases(prefix=session.id) == [renewed]
    session.release(new.epoch)
    session.release(new.epoch)
    assert store.sessions.find_lease(session.id) is None
    assert store.sessions.resumptions(session.id) == []
    session.append({"type": "turn/started", "turn": {"status": "running"}})
    resumed = session.claim("two again")
    (resumption,) = store.sessions.resumptions(session.id)
    assert (resumption.after, resumption.epoch) == (5, resumed.epoch)
    assert (resumption.holder, resumption.at <= resumed.expires_at) == ("two again", True)
    session.release(resumed.epoch)
    newest = asyncio.run(store.sessions.claim_async(session.id, "three"))
    assert newest.epoch > new.epoch


def test_lease_of_one_session_stands_for_another(store, name, session):
    other = store.sessions.create({"id": f"{name} 2".replace(" ", "-")})
    old = session.claim("one", 60)
    other.append({"type": "a/b"}, epoch=old)
    other.append({"type": "a/b"}, epoch=old, key="k")
    session.claim("two", 60, steal=True)
    message = f"session {session.id!r}: no lease of epoch {old.epoch}, 'two' has claimed it"
    for write in (
        lambda: other.append({"type": "a/b"}, epoch=old),
        lambda: other.append({"type": "a/b"}, epoch=old, key="k"),
        lambda: other.publish_head(epoch=old),
    ):
        refused(errors.LeaseLost, message, write)
    assert len(other) == 2


def test_session_may_require_ownership(store, name):
    session = store.sessions.create({"id": name, "ownership": "required"})
    refused(
        errors.Refused,
        f"session {name!r}: writes require an epoch, got none",
        lambda: session.append({"type": "a/b"}),
    )
    session.append({"type": "a/b"}, epoch=session.claim("one").epoch)


def test_retention_deletes_sessions_of_a_prefix(store, name):
    for index in range(4):
        store.sessions.create({"id": f"{name}-{index}"})
        store.sessions.append_event(f"{name}-{index}", {"type": "a/b"})
    store.sessions.fork(f"{name}-0", {"id": f"other-{name}"})
    store.sessions.claim(f"{name}-1", "worker")
    options = {"prefix": f"{name}-", "keep_latest": 0}
    planned = store.sessions.apply_retention(**options, dry_run=True)
    assert (planned.deleted, planned.kept) == (2, 2)
    assert len(store.sessions.list(prefix=f"{name}-")) == 4
    assert store.sessions.apply_retention(**options) == planned
    assert planned.sessions == [f"{name}-2", f"{name}-3"]
    assert [info.id for info in store.sessions.list(prefix=f"{name}-")] == [
        f"{name}-0",
        f"{name}-1",
    ]
    assert store.sessions.apply_retention(f"{name}-", max_age_s=3_600).deleted == 0
    refused(
        errors.InvalidInput,
        "retention: needs max_age_s or keep_latest, got neither",
        lambda: store.sessions.apply_retention(f"{name}-"),
    )


def test_leases_are_listed_in_pages(store, name):
    for index in range(5):
        store.sessions.create({"id": f"{name}-{index}"}).claim("one")
    listed = store.sessions.list_leases(prefix=f"{name}-", limit=3)
    assert [lease.session for lease in listed] == [f"{name}-{index}" for index in range(3)]
    rest = store.sessions.list_leases(prefix=f"{name}-", after=f"{name}-2")
    assert [lease.session for lease in rest] == [f"{name}-3", f"{name}-4"]


def test_coroutines_append_to_sessions(store, session):
    async def work():
        turn = {"type": "turn/started", "turn": {}}
        await asyncio.gather(*(session.append_async(turn) for _ in range(5)))
        with session.follow(after=0, timeout=30) as items:
            return [(await items.next_async(30)).id for _ in range(6)]

    assert asyncio.run(work()) == [1, 2, 3, 4, 5, 6]


def test_runtime_resumes_a_turn_with_large_values(store, name):
    """The runtime writes `Payload` values: small ones inside events, large ones on their own."""
    calls = []

    def ask(number):
        calls.append(number)
        if calls == [1, 2]:
            raise KeyboardInterrupt  # as when the process ends
        return f"{number}" * 2_000

    def step(turn):
        answer = turn.call("model", ask, turn.number)
        turn.say("assistant", answer)
        return fourfold.Final(answer) if turn.number == 2 else None

    runtime = fourfold.Runtime(store.sessions, step)
    runtime.start({"id": name})
    with pytest.raises(KeyboardInterrupt):
        runtime.run_turn(name, "x" * 2_000)
    assert runtime.interrupted(name) == 1
    result = fourfold.Runtime(store.sessions, step).resume(name)
    assert (result.status, result.value) == ("final", "2" * 2_000)
    assert calls == [1, 2, 2]
    assert [message["content"] for message in runtime.messages(name)] == [
        "x" * 2_000,
        "1" * 2_000,
        "2" * 2_000,
    ]
    message = store.sessions.current_view(name).messages[0]
    assert isinstance(message["content"], PayloadRef)


def test_transcripts_are_read_now_and_in_the_past(store, session):
    large = {"text": "x" * 1_500_000}
    for content in ("first", large, ["</pre>", 3]):
        message = {"role": "user", "content": Payload(content)}
        session.append({"type": "message/appended", "message": message})
    transcript = session.transcript()
    assert [entry.content for entry in transcript.entries[::2]] == ["first", ["</pre>", 3]]
    assert transcript.entries[1].content["ref"] == "payload"
    assert store.sessions.transcript(session.id, full=True).entries[1].content == large
    assert transcript.header.event_id == 4
    assert session.transcript(at=2).entries == transcript.entries[:1]
    newest = session.transcript(limit=1)
    assert (newest.entries, newest.complete) == (transcript.entries[-1:], False)
    assert session.transcript(limit=5_000) == transcript
    with pytest.raises(errors.InvalidInput, match="limit"):
        session.transcript(limit=0)
    refused(
        errors.NotFound,
        f"session '{session.id}': no event 9, the newest is 4",
        lambda: session.transcript(at=9),
    )


def test_bundles_are_exported_and_imported(store, session, tmp_path):
    large = {"text": "x" * 2_000_000}
    session.append({"type": "message/appended", "message": {"content": Payload(large)}})
    session.publish_head({"kind": "turn-final"})
    store.sessions.fork(session.id, {"id": f"{session.id}-fork"})
    lines = list(store.sessions.export_bundle(session.id))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    path = tmp_path / "bundle.ndjson"
    path.write_bytes(b"".join(lines))
    with fourfold.open(tmp_path / "other") as other:
        report = other.sessions.import_bundle(path)
        assert (report.sessions, report.payloads) == (2, 1)
        assert other.sessions[session.id].view() == store.sessions[session.id].view()
        assert b"".join(other.sessions.export_bundle(session.id)) == path.read_bytes()
        later = other.sessions[session.id]
        later.append({"type": "app/note"})
        path.write_bytes(b"".join(other.sessions.export_bundle(session.id)))
    # An existing session receives the events that it lacks, once.
    for _ in range(2):
        assert store.sessions.import_bundle(path).events == report.events + 1
        assert store.sessions[session.id].log()[-1].type == "app/note"
    missing = tmp_path / "missing"
    refused(
        *(errors.NotFound, f"{missing}: there is no such file"),
        lambda: store.sessions.import_bundle(missing),
    )
    with pytest.raises(errors.NotFound, match="there is no session 'none'"):
        list(store.sessions.export_bundle("none"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[" * 100_000,
        '{"kind": []}',
        '{"kind": "bundle", "version": 2}',
        '{"kind": "bundle", "version": 1}\n{"kind": "session"}',
        '{"kind": "bundle", "version": 1}\n{"kind": "session", "id": 1}\n{"kind": "end"}',
        '{"kind": "bundle", "version": 1}\n{"kind": "end"}',
    ],
    ids=range(8),
)
def test_invalid_bundles_are_refused(store, tmp_path, text):
    path = tmp_path / "bundle"
    path.write_text(text)
    with pytest.raises(errors.InvalidInput) as caught:
        store.sessions.import_bundle(path)
    assert type(caught.value) is errors.InvalidInput


def test_bundle_with_an_impossible_time_is_refused(store, session, tmp_path):
    lines = list(store.sessions.export_bundle(session.id))
    document = json.loads(lines[1])
    lines[1] = json.dumps({**document, "created_at": "2026-99-99T99:99:99.000Z"}).encode() + b"\n"
    end = json.loads(lines[-1])
    digest = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    lines[-1] = json.dumps({**end, "sha256": digest}).encode() + b"\n"
    path = tmp_path / "bundle"
    path.write_bytes(b"".join(lines))
    with pytest.raises(errors.InvalidInput, match="line 2"):
        store.sessions.import_bundle(path)


def test_sessions_are_searched_now_and_in_the_past(store, name, session):
    for content in ("first zebra", Payload("second zebra " + "x" * 2_000), {"type": "text"}):
        session.append(
            {"type": "message/appended", "message": {"role": "user", "content": content}}
        )
    other = store.sessions.create({"id": f"{name}-other"})
    other.append({"type": "message/appended", "message": {"role": "tool", "content": "zebra"}})

    def events(page):
        return sorted((hit.session, hit.event) for hit in page)

    mine = [(session.id, 2), (session.id, 3)]
    assert events(store.sessions.search("zebra", prefix=name)) == [*mine, (other.id, 1)]
    assert events(session.search("zeb*", order="newest")) == mine
    assert events(session.search('"first zebra"')) == mine[:1]
    assert events(session.search("zebra", at=2)) == mine[:1]
    assert events(session.search("zebra", kinds=["call", "turn"])) == []
    first = store.sessions.search("zebra", prefix=name, limit=2)
    rest = store.sessions.search("zebra", prefix=name, limit=2, after=first.next)
    assert events([*first, *rest]) == [*mine, (other.id, 1)]
    assert rest.next is None
    [hit] = session.search("first")
    assert (hit.kind, hit.title, hit.text, hit.highlights) == (
        *("message", "user", "first zebra"),
        ((0, 5),),
    )
    assert hit.score is not None
    time = datetime(2020, 1, 1, tzinfo=UTC)
    assert events(store.sessions.search("zebra", prefix=name, at=time)) == []
    refused(
        errors.InvalidInput,
        "text query '-zebra' has no word that must occur",
        lambda: store.sessions.search("-zebra"),
    )
    refused(
        errors.NotFound,
        f"session '{session.id}': no event 9, the newest is 4",
        lambda: session.search("zebra", at=9),
    )


def test_runtime_suspends_turns_and_resumes_them_when_due(store, name):
    now = [datetime(2026, 3, 1, tzinfo=UTC)]

    def step(turn):
        turn.sleep(60)
        return fourfold.Final(turn.wait_signal("go"))

    def runtime():
        return fourfold.Runtime(store.sessions, step, now=lambda: now[0], suspend_after_s=0)

    runtime().start({"id": name})
    assert runtime().run_turn(name, "wait", key="k").status == "suspended"
    assert runtime().run_due(prefix=name) == []
    now[0] += timedelta(seconds=60)
    assert [result.signal for result in runtime().run_due(prefix=name)] == ["go"]
    runtime().signal(name, "go", {"by": "a person"})
    assert [result.value for result in runtime().run_due(prefix=name)] == [{"by": "a person"}]
    assert store.sessions.info(name).turn_status == "final"


def test_retention_policies_are_stored(store, name):
    policy = store.sessions.set_retention(f"{name}/", max_age_s=60, keep_latest=2)
    assert (policy.prefix, policy.max_age_s, policy.keep_latest) == (f"{name}/", 60.0, 2)
    assert policy in store.sessions.list_retentions()
    store.sessions.delete_retention(f"{name}/")
    assert policy not in store.sessions.list_retentions()
    refused(
        errors.NotFound,
        f"no retention policy has the prefix '{name}/'",
        lambda: store.sessions.delete_retention(f"{name}/"),
    )
    refused(
        errors.InvalidInput,
        "retention: needs max_age_s or keep_latest, got neither",
        lambda: store.sessions.set_retention(name),
    )
