"""Verification of a store takes as long as it needs: no deadline of transactions ends it."""

from __future__ import annotations

import pytest

import fourfold
from fourfold.kernel import reader_pool


@pytest.fixture
def root(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        space = store.space("did:web:a.example")
        for number in range(50):
            space.set(f"entity-{number}", {"n": number})
        store.streams.create("s", "text/plain")
        store.sessions.create_session({"id": "session"})
        for number in range(50):
            store.sessions.append_event("session", {"type": "app/note", "n": number})
        payload = store.sessions.intern_payload({"role": "user", "content": "in a payload"})
        for content in ("in the event", payload):
            message = {"role": "user", "content": content}
            store.sessions.append_event("session", {"type": "message/appended", "message": message})
        assert store.sessions.index_texts().left == 0
        app = store.graphs.register_app("app", "App").app_id
        kind = store.graphs.register_type(app, "parent", "thing")
        store.graphs.insert_many_parents(app, [{"type_id": kind, "owner_identity": 1}] * 50)
    return tmp_path / "store"


def verify_space(store):
    return store.space("did:web:a.example").verify()


def verify_graphs(store):
    return store.graphs.verify()


@pytest.mark.parametrize(
    "verify",
    [
        verify_space,
        verify_graphs,
        lambda store: store.streams.verify(),
        lambda store: store.sessions.verify(),
        lambda store: store.verify().problems,
    ],
    ids=["documents", "graphs", "streams", "sessions", "store"],
)
def test_verify_outlasts_the_deadline_of_transactions(root, verify, monkeypatch):
    # Each step of a query asks for the time, and every default deadline has passed.
    monkeypatch.setattr(reader_pool, "DEADLINE_CHECK_STEPS", 1)
    with fourfold.open(root) as store:
        for database in opened(store):
            database._deadline_s = -1.0
        assert not verify(store)


def opened(store):
    return [
        store.space("did:web:a.example").database,
        store.streams.database,
        store.sessions.log.database,
        store.graphs.database,
    ]
