"""Activity of a store: the newest entries of all models, without locks on their databases."""

from __future__ import annotations

import os
import time

import fourfold
from fourfold.store import activity, open_store


def fill(root):
    with fourfold.open(root) as store:
        space = store.space("did:web:shop.example")
        space.set("note", {"likes": 0})
        space.patch("note", [{"op": "increment", "path": "/likes", "by": 1}])
        space.branches.create("draft")
        space.patch("note", [{"op": "replace", "path": "/likes", "value": 7}], branch="draft")
        space.branches.merge("draft")
        orders = store.streams.create("orders", "application/json")
        for number in range(3):
            orders.append({"id": number})
        contacts = store.graphs.create("contacts", "Contacts")
        person = contacts.register_type("parent", "person")
        title = contacts.register_type("attr", "title")
        row = {"owner_identity": 1}
        with store.graphs.transaction():
            [made] = contacts.insert("parent", [{"type_id": person, **row}])
            value = {"type_id": title, "parent_id": made, "value_text": "Dr", **row}
            contacts.insert("attr", [value])
        session = store.sessions.create({"id": "s-1", "model": "any"})
        session.append({"type": "turn/started", "turn": {"status": "running"}})


def activity_of(root, now_ms=None):
    with open_store(root, mode="r") as store:
        return activity.read_activity(store, now_ms or time.time_ns() // 1_000_000)


def test_activity_has_the_newest_entries_of_every_model(tmp_path):
    fill(tmp_path)
    recent = activity_of(tmp_path).recent
    entries = {(entry.model, entry.name, entry.change) for entry in recent}
    assert ("documents", "did:web:shop.example", "patch /likes, on draft") in entries
    assert ("documents", "did:web:shop.example", "create branch draft") in entries
    assert ("documents", "did:web:shop.example", "merge draft") in entries
    assert ("streams", "orders", "append 3 records") in entries
    assert ("graphs", "contacts", "object, attribute") in entries
    assert "sessions" in {model for model, _, _ in entries}
    times = [entry.at_ms for entry in recent]
    assert times == sorted(times, reverse=True)


def test_activity_counts_entries_of_last_hour_by_minute(tmp_path):
    fill(tmp_path)
    now = time.time_ns() // 1_000_000
    counts = {name: sum(minutes) for name, minutes in activity_of(tmp_path, now).minutes.items()}
    assert [counts["documents"], counts["streams"]] == [5, 3]
    assert counts["graphs"] > 0
    assert counts["sessions"] > 0
    later = activity_of(tmp_path, now + 30 * 60_000).minutes["streams"]
    assert sum(later[:31]) == 3
    assert (
        sum(sum(minutes) for minutes in activity_of(tmp_path, now + 7_200_000).minutes.values())
        == 0
    )


def test_activity_at_a_time_has_what_was_newest_then(tmp_path):
    fill(tmp_path)
    then = activity_of(tmp_path)
    until = max(entry.at_ms for entry in then.recent)
    while time.time_ns() // 1_000_000 <= until:
        time.sleep(0.001)
    with fourfold.open(tmp_path) as store:
        for number in range(activity.RECENT_MAX + 8):
            store.space("did:web:shop.example").set("later", {"n": number})
            store.streams["orders"].append({"id": "later"})
            store.sessions.append_event("s-1", {"type": "later/event"})
        store.graphs["contacts"].insert("parent", [{"type_id": 1, "owner_identity": 1}])
    assert all(entry.at_ms > until for entry in activity_of(tmp_path).recent)

    with open_store(tmp_path, mode="r") as store:
        past = activity.read_activity(store, until + 99, until)
        before = activity.read_activity(store, until, 1)
    assert past.recent == then.recent
    counts = {name: sum(minutes) for name, minutes in past.minutes.items()}
    assert counts == {name: sum(minutes) for name, minutes in then.minutes.items()}
    assert before.recent == []


def test_activity_of_an_empty_store_is_empty(tmp_path):
    fourfold.open(tmp_path).close()
    assert activity_of(tmp_path).recent == []


def test_reading_it_does_not_keep_another_process_from_writing(tmp_path):
    fill(tmp_path)
    with open_store(tmp_path, mode="r") as reader:
        activity.read_activity(reader, 0)
        with fourfold.open(tmp_path) as writer:
            writer.space("did:web:shop.example").set("other", {})
            writer.sessions.create({"id": "s-2", "model": "any"})


def test_activity_has_the_newest_commits_of_many_spaces(tmp_path):
    """Spaces are chosen by their commits: the files of a copied store have other times."""
    with fourfold.open(tmp_path) as store:
        for number in range(10):
            store.space(f"did:web:s{number}.example").set("note", {"number": number})
    for number, path in enumerate(sorted(tmp_path.rglob("did*.sqlite"))):
        os.utime(path, (1_000_000_000 - number, 1_000_000_000 - number))
    recent = [entry.name for entry in activity_of(tmp_path).recent]
    assert recent[:3] == ["did:web:s9.example", "did:web:s8.example", "did:web:s7.example"]


def test_reading_space_does_not_change_time_of_its_last_change(tmp_path):
    did = "did:web:shop.example"
    with fourfold.open(tmp_path) as store:
        store.space(did).set("note", {"n": 1})
    with open_store(tmp_path, mode="r") as store:
        before = store.space_file(did)
        assert store.space(did)["note"] == {"n": 1}
        assert (tmp_path / "spaces" / f"{did}.sqlite-wal").stat().st_size == 0
        assert store.space_file(did) == before
    with fourfold.open(tmp_path) as store:
        store.space(did).set("note", {"n": 2})
        assert store.space_file(did)[1] > before[1]
