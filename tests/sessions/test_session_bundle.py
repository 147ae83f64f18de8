"""Bundles: a subtree goes to another store as it is, or not at all."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from itertools import count

import pytest

import fourfold
from fourfold.content import content_id, encode
from fourfold.errors import (
    AlreadyExists,
    InvalidInput,
    NotFound,
    PayloadMissing,
    ReadOnly,
)
from fourfold.models.sessions import Payload, Sessions, bundle
from fourfold.models.sessions.runtime import Final, Runtime
from fourfold.models.sessions.stamps import header_of, next_digest


def step(turn):
    turn.vars["text"] = "ü" * 70_000
    turn.vars[turn.task] = {"nested": [1, 1.0, True, None, b"\x00"]}
    turn.call("tool", lambda: "r" * 700)
    turn.say("assistant", "a\nb")
    if "/" not in turn.session:
        turn.map_children(["x", "y"])
    return Final(turn.task)


@pytest.fixture
def source():
    sessions = Sessions()
    runtime = Runtime(sessions, step)
    runtime.start({"id": "root", "model": "any"})
    runtime.start({"id": "unrelated", "model": "any"})
    first = runtime.run_turn("root", "one", key="k")
    runtime.run_turn("root", "two")
    runtime.attach(first.head, "three", sid="fork")
    yield sessions
    sessions.close()


@pytest.fixture(params=["memory", "store"])
def target(request, tmp_path):
    if request.param == "memory":
        found = Sessions()
        yield found
        found.close()
    else:
        with fourfold.open(tmp_path / "target") as store:
            yield store.sessions


@pytest.fixture
def file(tmp_path, source):
    path = tmp_path / "bundle.ndjson"
    path.write_bytes(b"".join(source.export_bundle("root")))
    return path


def same(one, other, sid):
    return [(event, event.key, event.digest) for event in one.events_since(sid)] == [
        (event, event.key, event.digest) for event in other.events_since(sid)
    ]


def test_a_subtree_arrives_with_the_same_heads_events_and_payloads(source, target, file):
    target.create_session({"id": "before"})
    assert target.import_bundle(file).sessions == 8
    sids = ["root", "root/1.1.1", "root/1.1.2", "root/2.2.1", "root/2.2.2", "fork"]
    sids += ["fork/1.1.1", "fork/1.1.2"]
    for info in target.list_sessions()[1:]:
        assert same(source, target, info.id)
        assert source.open_session(info.id).created_at == info.created_at
    assert {info.id for info in target.list_sessions()} == {"before", *sids}
    assert target.lineage_graph("root").heads == source.lineage_graph("root").heads
    assert target.verify() == []
    assert target.verify_no_dangling_refs() == []
    assert Runtime(target, step).vars("fork")["text"] == "ü" * 70_000
    with pytest.raises(NotFound):
        target.open_session("unrelated")
    # Both go on from there, each by itself.
    assert not Runtime(target, step).run_turn("root", "four").failed
    assert target.verify() == []


def test_repeated_import_adds_only_missing_events(source, target, file):
    target.import_bundle(file)
    position = target.position()
    assert target.import_bundle(file).sessions == 8
    assert target.position() == position
    heard = []
    subscription = target.subscribe("root", heard.append)
    source.append_event("root", {"type": "message/appended", "message": {"content": Payload("n")}})
    file.write_bytes(b"".join(source.export_bundle("root")))
    target.import_bundle(file)
    assert target.position() == position + 1
    assert same(source, target, "root")
    while subscription.cursor < target.peek_next_id("root") - 1:
        assert subscription.active
    subscription()
    assert [event.type for event in heard] == ["message/appended"]
    # The store may be ahead of the bundle, too.
    target.append_event("root", {"type": "a/b"})
    target.import_bundle(file)
    assert target.verify() == []


def test_other_history_of_the_same_id_is_refused(target, file):
    target.create_session({"id": "fork", "model": "another"})
    before = target.position()
    with pytest.raises(AlreadyExists, match="another history"):
        target.import_bundle(file)
    target.delete_session("fork")
    with pytest.raises(AlreadyExists, match="deleted"):
        target.import_bundle(file)
    assert target.position() == before
    assert target.list_sessions() == []
    with target.log.read() as reading:
        assert reading.payloads(b"", 10) == []


def test_another_history_that_is_longer_than_bundle_is_refused_too(source, target, tmp_path):
    path = tmp_path / "short.ndjson"
    path.write_bytes(b"".join(source.export_bundle("unrelated")))
    target.create_session({"id": "unrelated", "model": "another"})
    target.append_events("unrelated", [{"type": "a/b"}] * 3)
    with pytest.raises(AlreadyExists, match="another history"):
        target.import_bundle(path)


def test_import_does_not_overwrite_a_concurrently_created_session(tmp_path, file, monkeypatch):
    check = bundle._BundleCheck.run

    def late(self, path):
        done = check(self, path)
        target.create_session({"id": "root", "model": "another"})
        return done

    monkeypatch.setattr(bundle._BundleCheck, "run", late)
    with fourfold.open(tmp_path / "target") as store:
        target = store.sessions
        with pytest.raises(AlreadyExists, match="another history"):
            target.import_bundle(file)
        assert [info.id for info in target.list_sessions()] == ["root"]
        assert target.verify() == []


@pytest.fixture
def pages(target, monkeypatch):
    """Numbers of events that transactions of the target wrote."""
    numbers = []
    alone = target.log.transact_alone

    def counting(work):
        before = target.position()
        result = alone(work)
        numbers.append(target.position() - before)
        return result

    monkeypatch.setattr(target.log, "transact_alone", counting)
    return numbers


def write_long(tmp_path, events, batch=1):
    ticks = count()
    source = Sessions(clock=lambda: datetime.fromtimestamp(1e9 + next(ticks), UTC))
    source.create_session({"id": "long"})
    for first in range(0, events, batch):
        source.append_events("long", [{"type": "a/b", "n": first + n} for n in range(batch)])
    path = tmp_path / "long.ndjson"
    path.write_bytes(b"".join(source.export_bundle("long")))
    return source, path


def test_import_writes_a_few_events_in_each_transaction(target, pages, tmp_path):
    source, path = write_long(tmp_path, 3_000)
    feed = target.follow_all(after=target.position(), timeout=0)
    assert target.import_bundle(path).events == 3_000
    heard = [event.id for event in feed]
    assert heard == list(range(1, 3_001))
    assert sum(pages) == 3_000
    assert pages == [bundle.IMPORT_PAGE_EVENTS] * 15
    assert same(source, target, "long")
    del pages[:]
    target.import_bundle(path)
    assert pages == []


def test_events_of_one_request_are_imported_together(target, pages, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "IMPORT_PAGE_EVENTS", 7)
    _, path = write_long(tmp_path, 120, batch=30)
    target.import_bundle(path)
    assert pages == [30] * 4


def test_events_of_one_time_are_imported_in_bounded_transactions(
    target, pages, tmp_path, monkeypatch
):
    monkeypatch.setattr(bundle, "IMPORT_PAGE_EVENTS_MAX", 50)
    _, path = write_long(tmp_path, 120, batch=120)
    target.import_bundle(path)
    assert pages == [50, 50, 20]


def test_pages_of_import_never_separate_head_from_its_events(
    source, target, pages, tmp_path, file, monkeypatch
):
    monkeypatch.setattr(bundle, "IMPORT_PAGE_EVENTS", 1)
    states = []
    alone = target.log.transact_alone

    def looking(work):
        result = alone(work)
        states.append({info.id: target.peek_next_id(info.id) for info in target.list_sessions()})
        return result

    monkeypatch.setattr(target.log, "transact_alone", looking)
    target.import_bundle(file)
    assert len(states) > 8
    for state in states:
        for sid, next_id in state.items():
            following = source.events_since(sid, next_id - 1, limit=1)
            assert [event.type for event in following] != ["head/published"]


def test_events_that_others_append_during_an_import_end_it(target, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "IMPORT_PAGE_EVENTS", 10)
    monkeypatch.setattr(bundle, "IMPORT_PAGE_EVENTS_MAX", 10)
    _, path = write_long(tmp_path, 100)
    alone = target.log.transact_alone
    calls = []

    def interrupting(work):
        result = alone(work)
        calls.append(work)
        if len(calls) == 3:
            target.append_event("long", {"type": "a/foreign"})
        return result

    monkeypatch.setattr(target.log, "transact_alone", interrupting)
    with pytest.raises(AlreadyExists, match="another history"):
        target.import_bundle(path)
    assert target.verify() == []
    types = [event.type for event in target.events_since("long")]
    assert types[-1] == "a/foreign"
    assert types.count("a/foreign") == 1


def test_two_imports_of_one_bundle_at_time_write_it_once(target, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "IMPORT_PAGE_EVENTS", 10)
    monkeypatch.setattr(bundle, "IMPORT_PAGE_EVENTS_MAX", 10)
    source, path = write_long(tmp_path, 100)
    alone = target.log.transact_alone
    calls = []

    def nested(work):
        result = alone(work)
        calls.append(work)
        if len(calls) == 3:
            target.import_bundle(path)
        return result

    monkeypatch.setattr(target.log, "transact_alone", nested)
    assert target.import_bundle(path).events == 100
    assert same(source, target, "long")
    assert target.verify() == []


def refused(target, file, lines, *, sealed):
    """Import changed lines; with `sealed` the last line vouches for them."""
    if sealed:
        *body, end = lines
        checksum = hashlib.sha256(b"".join(body)).hexdigest()
        lines = [*body, json.dumps({**json.loads(end), "sha256": checksum}).encode() + b"\n"]
    file.write_bytes(b"".join(lines))
    with pytest.raises((InvalidInput, PayloadMissing)):
        target.import_bundle(file)
    assert target.list_sessions() == []
    with target.log.read() as reading:
        assert reading.payloads(b"", 10) == []


def test_one_changed_byte_anywhere_is_found_before_anything_is_written(file):
    target = Sessions()
    data = file.read_bytes()
    for at in range(0, len(data), max(1, len(data) // 150)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        refused(target, file, [changed], sealed=False)
    for at in range(0, len(data), max(1, len(data) // 30)):
        refused(target, file, [data[:at]], sealed=False)
    target.close()


def test_every_single_byte_of_a_small_bundle_counts(tmp_path, source):
    file, target = tmp_path / "small", Sessions()
    data = b"".join(source.export_bundle("unrelated"))
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        refused(target, file, [changed], sealed=False)
    target.close()


def test_a_forged_bundle_is_found_out_by_its_digests(target, file):
    lines = file.read_bytes().splitlines(keepends=True)
    documents = [json.loads(line) for line in lines]

    def changed(number, **fields):
        forged = json.dumps({**documents[number], **fields}, ensure_ascii=False).encode() + b"\n"
        return [*lines[:number], forged, *lines[number + 1 :]]

    events = [at for at, each in enumerate(documents) if each["kind"] == "event"]
    payloads = [at for at, each in enumerate(documents) if each["kind"] == "payload"]
    for at in events[:12]:
        refused(target, file, changed(at, at="2026-01-01T00:00:00.000Z"), sealed=True)
        refused(target, file, changed(at, key="forged"), sealed=True)
        refused(target, file, changed(at, body='{"a":1}'), sealed=True)
        refused(target, file, changed(at, id=99), sealed=True)
        refused(target, file, [*lines[:at], *lines[at + 1 :]], sealed=True)
    for at in payloads:
        refused(target, file, changed(at, data='"x"'), sealed=True)
        refused(target, file, [*lines[:at], *lines[at + 1 :]], sealed=True)
    refused(target, file, changed(1, created_at="yesterday"), sealed=True)
    refused(target, file, changed(1, id="\n"), sealed=True)
    refused(target, file, changed(0, version=2), sealed=True)
    refused(target, file, [*lines, lines[1]], sealed=False)
    refused(target, file, [b"[]\n"], sealed=False)


@pytest.mark.parametrize(
    "forged",
    [
        {"events_digest": "sha256:" + "0" * 64},
        {"event_range": [1, 2]},
        {"basis": "sha256:" + "0" * 64},
        {"session": "another"},
        {"id": "sha256:" + "0" * 64},
    ],
)
def test_wrong_head_is_found_despite_valid_digests(tmp_path, target, forged):
    """A forged head can have a right id and digests, but not what it covers."""
    forger = Sessions()
    forger.create_session({"id": "root", "model": "any"})
    forger.publish_head("root")
    lines = b"".join(forger.export_bundle("root")).splitlines(keepends=True)
    before, line = json.loads(lines[2]), json.loads(lines[3])
    head = {**json.loads(line["body"])["head"], **forged}
    rest = {name: value for name, value in head.items() if name != "id"}
    body = encode({"head": {"id": content_id(encode(rest)), **rest, **forged}}).decode()
    header = header_of(line["id"], line["type"], line["at"], None, None)
    digest = next_digest(bytes.fromhex(before["digest"]), header, body).hex()
    changed = json.dumps({**line, "body": body, "digest": digest}).encode() + b"\n"
    refused(target, tmp_path / "forged", [*lines[:3], changed, lines[4]], sealed=True)
    (tmp_path / "honest").write_bytes(b"".join(lines))
    assert target.import_bundle(tmp_path / "honest").events == 2
    forger.close()


def test_a_store_that_is_read_only_takes_nothing_in(tmp_path, file):
    with fourfold.open(tmp_path / "s") as store:
        store.sessions.create_session({"id": "s"})
    with fourfold.open(tmp_path / "s", mode="r") as store, pytest.raises(ReadOnly):
        store.sessions.import_bundle(file)


def test_a_session_that_does_not_exist_is_no_bundle(source):
    with pytest.raises(NotFound):
        list(source.export_bundle("unknown"))


def test_import_refuses_a_missing_file_and_a_folder(sessions, tmp_path):
    with pytest.raises(NotFound, match="no such file"):
        sessions.import_bundle(tmp_path / "missing")
    with pytest.raises(InvalidInput, match="must be a file"):
        sessions.import_bundle(tmp_path)
    assert sessions.position() == 0
