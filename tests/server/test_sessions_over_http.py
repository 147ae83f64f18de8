"""Sessions over HTTP: lists, events, heads, views, forks, payloads and access."""

from __future__ import annotations

import json
from functools import partial

import pytest
from both_fronts import Front
from served_sessions import ServedSessions, message, together, turn

import fourfold
from fourfold.content import PayloadRef, content_id, decode, encode

JSON_VALUES = {
    "text": "é\u2028\x00~",
    "~key": 1,
    "big": 2**70,
    "float": -0.0,
    "nested": [[{"a": None}], 1.0, True],
}


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("sessions") / "store", fast=request.param)
    yield front
    front.stop()


@pytest.fixture
def sessions(front):
    return ServedSessions(front.port)


@pytest.fixture
def session(sessions):
    return sessions.create()


# Sessions


def test_session_is_created_once_and_deleted_for_good(sessions):
    path = "/v1/session/once/a"
    assert sessions.ask("GET", path).status == 404
    created = sessions.ask("PUT", path, {"model": "any"})
    assert (created.status, created.headers["location"], created.headers["etag"]) == (
        *(201, "/v1/session/once/a", '"1"'),
    )
    assert created.value["status"] == "running"
    again = sessions.ask("PUT", path, {"model": "other"})
    assert (again.status, again.value) == (200, created.value)
    assert sessions.ask("GET", path, if_none_match='"1"').status == 304
    assert sessions.ask("DELETE", path).status == 204
    assert sessions.ask("GET", path).status == sessions.ask("DELETE", path).status == 404
    gone = sessions.ask("PUT", path, {})
    assert (gone.status, gone.value["kind"]) == (409, "already_exists")


def test_posted_session_gets_an_id_or_keeps_its_own(sessions):
    made = sessions.ask("POST", "/v1/sessions", {})
    assert made.status == 201
    assert made.headers["location"] == f"/v1/session/{made.value['id']}"
    assert made.value["status"] is None
    named = sessions.ask("POST", "/v1/sessions", {"id": "posted:1", "n": 1})
    assert (named.status, named.value["id"], named.value["events"]) == (201, "posted:1", 1)
    assert sessions.ask("PUT", "/v1/session/posted:1", {"id": "other"}).status == 400


def test_sessions_are_listed_by_prefix_status_and_order(sessions):
    ids = [f"listed/{number}" for number in range(5)]
    for sid in ids:
        sessions.create(sid, model="any")
    stopped = sessions.create("listed/stopped")
    stopped.append({"type": "session/stopped"})
    failed = sessions.create("listed/failed", model="any")
    failed.append({"type": "session/error", "error": {"message": "no"}})

    def walk(query):
        found, cursor = [], ""
        while True:
            page = sessions.ask("GET", "/v1/sessions", query=f"prefix=listed/&{query}{cursor}")
            found += [row["id"] for row in page.value["items"]]
            if page.value["next_cursor"] is None:
                return found
            assert page.value["next_cursor"] in page.headers["link"]
            cursor = f"&cursor={page.value['next_cursor']}"

    everything = [*ids, "listed/stopped", "listed/failed"]
    assert walk("limit=2") == everything
    assert walk("limit=3&order=-created") == everything[::-1]
    assert walk("limit=1&status=running") == ids
    assert walk("limit=2&status=running&order=-created") == ids[::-1]
    assert walk("status=stopped") == ["listed/stopped"]
    assert walk("status=error") == ["listed/failed"]
    assert walk("status=unknown") == []
    sessions.ask("DELETE", "/v1/session/listed/0")
    assert walk("limit=2") == everything[1:]
    assert walk("limit=2&deleted=true") == everything
    lines = sessions.ask(
        "GET", "/v1/sessions", query="prefix=listed/", accept="application/x-ndjson"
    )
    assert [json.loads(line)["id"] for line in lines.text.splitlines()] == everything[1:]


def test_status_of_a_list_is_that_of_the_view(sessions):
    for number, events in enumerate(
        (
            [],
            [{"type": "session/started", "session": {"status": 7}}],
            [{"type": "session/started", "session": {"status": "custom"}}],
            [{"type": "session/stop-requested"}, message("later")],
            [{"type": "session/stopped"}, {"type": "session/started", "session": {}}],
        )
    ):
        session = sessions.create(f"status/{number}")
        for event in events:
            assert session.append(event).status == 200
        entity = session.get("view").value["session"] or {}
        status = entity.get("status")
        expected = status if isinstance(status, str) else None
        assert sessions.ask("GET", f"/v1/session/status/{number}").value["status"] == expected


# Events


def test_events_are_appended_and_listed_in_pages(session):
    first = session.append(turn(), message("a"))
    assert first.headers["etag"] == '"2"'
    assert [(event["id"], event["entity_id"]) for event in first.value["events"]] == [
        (1, 1),
        (2, 1),
    ]
    for number in range(8):
        session.append(message(number))
    found, query = [], "limit=3&after=1"
    while True:
        page = session.get("events", query).value
        found += [event["id"] for event in page["items"]]
        if page["next_cursor"] is None:
            break
        # New events do not appear in pages that were begun before.
        session.append(message("late"))
        query = f"limit=3&after=1&cursor={page['next_cursor']}"
    assert found == list(range(2, 11))
    assert [event["id"] for event in session.get("events", "after=4&until=6").value["items"]] == [
        5,
        6,
    ]
    assert session.get("events", "after=99").value["items"] == []
    lines = session.get("events", "until=2", accept="application/x-ndjson").text.splitlines()
    assert [json.loads(line)["data"] for line in lines] == [
        {"turn": {"id": 1, "status": "running"}},
        {"message": {"content": "a", "id": 1, "role": "user"}},
    ]


def test_values_come_back_as_they_were_sent(session, front):
    values = {**JSON_VALUES, "tagged": {"~bytes": "AAEC"}, "~~key": 1}
    del values["~key"]
    appended = session.append({"type": "app/note", "values": values})
    assert appended.status == 200, appended.text
    data = appended.text[appended.text.index(b'"data":') + 7 : -3]
    stored = front.store.sessions.open(session.sid).log()[0].data
    assert decode(data) == stored
    assert encode(stored) == data
    assert stored["values"]["tagged"] == b"\x00\x01\x02"
    assert stored["values"]["~key"] == 1
    assert stored["values"]["big"] == 2**70


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "delta/token"},
        {"type": "head/published", "head": {}},
        {"type": "turn/put", "turn": {}},
        {"type": "app/note", "id": 1},
        {"type": "app/note", "x": {"~unknown": 1}},
        {"type": "app/note", "x": {"~bytes": "!"}},
        {"type": "app/note", "x": {"~ref": {"id": 1, "kind": "x", "size": 1}}},
        {"type": "app/note", "x": {"~datetime": "2024-01-01T00:00:00"}},
        {"type": "app/note", "x": "\ud800"},
    ],
)
def test_invalid_event_is_refused_and_nothing_is_written(session, event):
    refused = session.append(message("a"), event)
    assert refused.status == 400, refused.text
    assert session.get("view").value["event_id"] == 0


def test_append_is_refused_if_others_came_first(session):
    session.append(message("a"))
    assert session.append(message("b"), if_match='"1"').status == 200
    for etag in ('"1"', '"99999999999999999999"', '"x"', 'W/"2"'):
        refused = session.append(message("c"), if_match=etag)
        assert (refused.status, refused.value["kind"]) == (412, "precondition_failed")
    assert session.append(message("c"), if_match='"2"').status == 200


def test_two_clients_append_at_one_event_and_one_wins(session):
    for round_number in range(10):
        results = together(
            *(partial(session.append, message(n), if_match=f'"{round_number}"') for n in range(4))
        )
        assert sorted(result.status for result in results) == [200, 412, 412, 412]
    assert session.get("view").value["counters"]["message"] == 10


# Idempotency


def test_repeated_request_has_one_effect(session, sessions):
    requests = (
        lambda key: session.append(message("a"), message("b"), idempotency_key=key),
        lambda key: session.publish({"note": "x"}, [message("c")], idempotency_key=key),
        lambda key: session.post(
            "forks", {"session": {"id": f"{session.sid}/f"}}, idempotency_key=key
        ),
        lambda key: sessions.ask("POST", "/v1/sessions", {"n": 1}, idempotency_key=key),
        lambda key: sessions.ask("DELETE", f"/v1/session/{session.sid}", idempotency_key=key),
    )
    for number, request in enumerate(requests):
        key = f"{session.sid}-{number}"
        first, again = request(key), request(key)
        assert (first.status, first.text) == (again.status, again.text)
        assert first.status < 300, first.text
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"


def test_repeated_conditional_request_succeeds_and_another_one_is_refused(session):
    first = session.append(message("a"), if_match='"0"', idempotency_key=f"{session.sid}-c")
    again = session.append(message("a"), if_match='"0"', idempotency_key=f"{session.sid}-c")
    assert first.text == again.text
    for other in (
        session.append(message("b"), if_match='"0"', idempotency_key=f"{session.sid}-c"),
        session.append(message("a"), if_match='"1"', idempotency_key=f"{session.sid}-c"),
    ):
        assert (other.status, other.value["kind"]) == (422, "replay_mismatch")
    assert session.append(message("b"), idempotency_key="k k").status == 400
    assert session.get("view").value["event_id"] == 1


def test_key_in_the_body_is_stored_with_the_events(session):
    body = {"events": [message("a")], "key": "mine"}
    first, again = session.post("events", body), session.post("events", body)
    assert first.value == again.value
    assert first.value["events"][0]["key"] == "mine"
    assert session.post("events", {**body, "events": [message("b")]}).status == 422
    session.append(message("c"))
    assert session.get("events", "key=mine").value["items"] == first.value["events"]
    assert session.get("events", "key=other").value["items"] == []


def test_idempotency_survives_a_restart(tmp_path):
    front = Front(tmp_path / "store", fast=True)
    session = ServedSessions(front.port).create("s")
    first = session.append(message("a"), idempotency_key="k")
    front.stop()
    front = Front(tmp_path / "store", fast=True)
    session = ServedSessions(front.port).create("s")
    again = session.append(message("a"), idempotency_key="k")
    assert (again.text, again.headers["idempotency-replayed"]) == (first.text, "true")
    assert session.get("view").value["event_id"] == 1
    front.stop()


# Heads


def test_head_is_published_on_the_basis_that_the_client_knows(session):
    assert session.get("heads").headers["etag"] == '"none"'
    first = session.publish({"kind": "turn-final"}, [turn("final")], if_match='"none"')
    assert (first.status, first.value["event_range"], first.value["basis"]) == (201, [1, 1], None)
    etag = first.headers["etag"]
    assert session.get("heads").headers["etag"] == etag
    assert session.get("heads", if_none_match=etag).status == 304
    for stale in ('"none"', f'"sha256:{"0" * 64}"', f"W/{etag}"):
        moved = session.publish(None, [message("lost")], if_match=stale)
        assert (moved.status, moved.value["kind"]) == (412, "head_moved")
    second = session.publish({"vars_ref": {"n": 1}}, [message("b")], if_match=etag)
    assert second.value["basis"] == first.value["id"]
    listed = session.get("heads").value
    assert [head["id"] for head in listed["items"]] == [first.value["id"], second.value["id"]]
    assert listed["current_head"] == second.value["id"]
    page = session.get("heads", "limit=1").value
    rest = session.get("heads", f"limit=1&cursor={page['next_cursor']}").value
    assert page["items"] + rest["items"] == listed["items"]
    assert session.get("heads", "at=2").value["items"] == [first.value]
    by_id = session.sessions.ask("GET", f"/v1/sessions/head/{second.value['id']}")
    assert by_id.value == second.value
    # Nothing of the refused requests was written.
    assert session.get("view").value["counters"]["message"] == 1


def test_two_clients_publish_on_one_basis_and_one_wins(session):
    etag = '"none"'
    for _ in range(10):
        results = together(
            *(partial(session.publish, {"n": n}, [message(n)], if_match=etag) for n in range(4))
        )
        assert sorted(result.status for result in results) == [201, 412, 412, 412]
        etag = next(result.headers["etag"] for result in results if result.status == 201)
    heads = session.get("heads").value["items"]
    assert [head["basis"] for head in heads] == [None, *(head["id"] for head in heads[:-1])]
    assert len(heads) == 10


# Views


def test_view_is_the_state_at_any_event_head_or_time(session):
    session.append({"type": "session/started", "session": {"model": "any"}}, turn())
    head = session.publish({"vars_ref": {"n": 1}}, [message("a")]).value
    session.append({"type": "turn/put", "turn": {"id": 1, "status": "final"}}, message("b"))
    view = session.get("view")
    assert (view.headers["etag"], view.value["event_id"]) == ('"6"', 6)
    assert view.value["counters"] == {"event": 6, "message": 2, "turn": 1, "step": 0, "eval": 0}
    assert view.value["current_head"] == head["id"]
    at = session.get("view", "at=2").value
    assert (at["counters"]["message"], at["current_head"]) == (0, None)
    assert session.get("view", f"at={head['id']}").value["event_id"] == 3
    assert session.get("view", "at=2999-01-01T00:00:00Z").value["event_id"] == 6
    assert session.get("view", "at=2000-01-01T00:00:00Z").value["event_id"] == 0
    assert session.get("view", "at=0").value["session"] is None
    for query, status in (
        ("at=7", 404),
        (f"at=sha256:{'0' * 64}", 404),
        ("at=x", 400),
        ("at=01", 400),
    ):
        assert session.get("view", query).status == status
    assert session.get("turns").value["items"] == [{"id": 1, "status": "final"}]
    assert session.get("turns", "at=5").value["items"][0]["status"] == "final"
    assert session.get("turns", "at=4").value["items"][0]["status"] == "running"


def test_entities_are_listed_in_pages_of_one_state(session):
    session.append(*(message(number) for number in range(5)))
    session.append(
        {"type": "step/started", "step": {"n": 1}}, {"type": "eval/added", "eval": {"n": 2}}
    )
    page = session.get("messages", "limit=2").value
    session.append(message("late"))
    found = page["items"]
    while page["next_cursor"] is not None:
        page = session.get("messages", f"limit=2&cursor={page['next_cursor']}").value
        assert page["event_id"] == 7
        found += page["items"]
    assert [item["content"] for item in found] == [0, 1, 2, 3, 4]
    assert [item["id"] for item in session.get("messages", "after=4").value["items"]] == [5, 6]
    assert session.get("steps").value["items"] == [{"id": 1, "n": 1}]
    assert session.get("evals").value["items"] == [{"id": 1, "n": 2}]


def test_page_ends_by_its_size(session, monkeypatch):
    monkeypatch.setattr("fourfold.limits.PAGE_BYTES", 3_000)
    for _ in range(4):
        session.append(message("x" * 1_400))
    sizes, query = [], ""
    while True:
        page = session.get("messages", query).value
        sizes.append(len(page["items"]))
        if page["next_cursor"] is None:
            break
        query = f"cursor={page['next_cursor']}"
    assert sizes == [3, 1]


def test_transcript_after_a_compaction_starts_at_kept_after(session, front):
    session.append(message("old"), message("older"))
    session.append(
        {"type": "session/compacted", "vars_ref": None, "message": {"content": "summary"}}
    )
    session.append(message("new"))
    kept_after = session.get("view").value["kept_after"]
    found = session.get("messages", f"after={kept_after}").value["items"]
    expected = list(front.store.sessions.open(session.sid).read().kept_messages())
    assert found == expected
    assert [item["content"] for item in found] == ["summary", "new"]


# Forks and lineage


def test_fork_continues_from_a_point_and_leaves_its_source(session, front):
    session.append({"type": "session/started", "session": {"model": "any"}}, message("a"))
    head = session.publish({"vars_ref": {"n": 1}}, [message("b")]).value
    session.append(message("c"))
    before = session.get("events").value
    made = session.post("forks", {"session": {"id": f"{session.sid}/fork"}, "at": head["id"]})
    assert (made.status, made.value["status"]) == (201, "running")
    fork = session.sessions.create(made.value["id"])
    view = fork.get("view").value
    assert view["session"]["model"] == "any"
    assert (view["session"]["source_session"], view["session"]["source_head"]) == (
        *(session.sid, head["id"]),
    )
    assert view["vars_ref"] == {"n": 1}
    assert [item["content"] for item in fork.get("messages").value["items"]] == ["a", "b"]
    assert session.get("events").value == before
    lineage = fork.get("lineage").value
    assert lineage["complete"]
    [edge] = lineage["edges"]
    assert (edge["type"], edge["from_session"], edge["to_session"]) == (
        *("derivation", session.sid, fork.sid),
    )
    assert edge["to_head"] == view["current_head"]
    assert edge["extra"]["from_event_id"] == 3
    assert session.get("lineage").value["edges"] == [edge]
    again = session.post("forks", {"session": {"id": fork.sid}})
    assert (again.status, again.value["kind"]) == (409, "already_exists")
    assert session.post("forks", {"at": 999}).status == 404
    assert front.store.sessions.verify() == []


def test_edge_is_appended_and_lineage_is_limited(session):
    head = session.publish(None, [message("a")]).value
    edge = {"type": "derivation", "to_session": "elsewhere", "to_head": head["id"]}
    added = session.post("lineage", edge)
    assert (added.status, added.value["data"]["edge"]["from_session"]) == (200, session.sid)
    assert session.post("lineage", edge).value["id"] == added.value["id"]
    assert session.post("lineage", {"type": "derivation"}).status == 400
    graph = session.get("lineage").value
    assert (len(graph["heads"]), len(graph["edges"]), graph["complete"]) == (1, 1, True)
    part = session.get("lineage", "limit=1").value
    assert (len(part["heads"]) + len(part["edges"]), part["complete"]) == (1, False)


def test_heads_are_compared(session):
    first = session.publish({"vars_ref": {"a": 1, "b": 1}}, [message("a")]).value["id"]
    second = session.publish({"vars_ref": {"b": 2, "c": 3}}, [message("b")]).value["id"]
    found = session.sessions.ask("GET", f"/v1/sessions/compare/{first}/{second}")
    assert {name: found.value[name] for name in ("common", "added", "removed", "changed")} == {
        "common": first,
        "added": ["c"],
        "removed": ["a"],
        "changed": ["b"],
    }
    assert [item["content"] for item in found.value["new_messages"]] == ["b"]
    assert found.value["gone_messages"] == []
    assert session.sessions.ask("GET", f"/v1/sessions/compare/{first}/x").status == 400


# Payloads


@pytest.mark.parametrize("size", [600, 100_000])
def test_payload_is_stored_by_its_hash_and_read_in_ranges(sessions, session, size):
    value = {"text": "x" * size}
    data = encode(value)
    stored = sessions.ask("POST", "/v1/sessions/payloads", value, query="kind=vars")
    assert (stored.status, stored.value) == (
        201,
        {"id": content_id(data), "kind": "vars", "size": len(data)},
    )
    path = stored.headers["location"]
    assert sessions.ask("PUT", path, data).status == 201
    whole = sessions.ask("GET", path)
    assert (whole.status, whole.text) == (200, data)
    assert whole.headers["cache-control"] == "private, max-age=31536000, immutable"
    part = sessions.ask("GET", path, range="bytes=5-9")
    assert (part.status, part.text) == (206, data[5:10])
    assert part.headers["content-range"] == f"bytes 5-9/{len(data)}"
    assert sessions.ask("GET", path, range="bytes=-3").text == data[-3:]
    assert sessions.ask("GET", path, range=f"bytes={len(data)}-").status == 416
    assert sessions.ask("GET", path, if_none_match=whole.headers["etag"]).status == 304
    ref = {"~ref": {"id": stored.value["id"], "kind": "vars", "size": len(data)}}
    appended = session.append({"type": "session/vars-snapshotted", "vars_ref": ref})
    assert appended.value["events"][0]["data"]["vars_ref"] == ref


def test_payload_that_does_not_match_or_is_missing_is_refused(sessions, session):
    absent = content_id(b"absent")
    assert sessions.ask("GET", f"/v1/sessions/payloads/{absent}").value["kind"] == "payload_missing"
    assert sessions.ask("GET", "/v1/sessions/payloads/x").status == 400
    assert sessions.ask("PUT", f"/v1/sessions/payloads/{absent}", b'{"a":1}').status == 400
    loose = b'{"a": 1}'
    assert sessions.ask("PUT", f"/v1/sessions/payloads/{content_id(loose)}", loose).status == 400
    ref = {"~ref": {"id": absent, "kind": "vars", "size": 6}}
    missing = session.append({"type": "app/note", "x": ref})
    assert (missing.status, missing.value["kind"]) == (404, "payload_missing")


def test_payload_is_the_one_in_the_store(sessions, front):
    stored = sessions.ask("POST", "/v1/sessions/payloads", JSON_VALUES | {"~~key": 1}).status
    assert stored == 400, "a key that starts with ~ is a tag"
    values = {name: value for name, value in JSON_VALUES.items() if name != "~key"}
    ref = sessions.ask("POST", "/v1/sessions/payloads", values).value
    found = front.store.sessions.read_payload(PayloadRef(ref["id"], ref["kind"], ref["size"]))
    assert found == values


# Names


@pytest.mark.parametrize(
    "sid",
    ["events/x", "a//b", "a/", "live/live/x", "A.b_c:d@e+f=g-h", "sessions", "a/../b", "a" * 200],
)
def test_names_with_slashes_and_verbs_are_their_own(sessions, sid):
    session = sessions.create(sid)
    session.append(message(sid))
    assert sessions.ask("GET", f"/v1/session/{sid}").value["id"] == sid
    assert session.get("messages").value["items"][0]["content"] == sid
    assert sessions.ask("DELETE", f"/v1/session/{sid}").status == 204


@pytest.mark.parametrize(
    "sid", ["%2e%2e", "%00", "a%0ab", "%ff", "-a", "a b", "é", "a" * 201, "%25"]
)
@pytest.mark.parametrize("path", ["/v1/session/", "/v1/sessions/events/", "/v1/sessions/live/"])
def test_hostile_names_are_refused(front, path, sid):
    from both_fronts import Connection  # noqa: PLC0415

    with Connection(front.port) as connection:
        name = sid.replace(" ", "%20").replace("é", "%C3%A9")
        connection.send(f"GET {path}{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode("latin-1"))
        status, _, body = connection.answer()
    assert (status, json.loads(body)["kind"]) in {(400, "invalid_input"), (404, "not_found")}
    assert status == 400


# Access


def test_key_is_for_its_prefix_and_scope(tmp_path):
    front = Front(tmp_path / "store", fast=True, access=True)
    ServedSessions(front.port).create("team-b/secret").publish(None, [message("b")])
    _, writer = front.access.add(("read", "write"), "team-a/", models=("sessions",))
    _, reader = front.access.add(("read",), "team-a/", models=("sessions",))
    _, other = front.access.add(("read", "write"), "", models=("documents",))
    _, admin = front.access.add(("read", "write"), "", models=("sessions",))
    asks = {
        name: ServedSessions(front.port, authorization=f"Bearer {secret}").ask
        for name, secret in zip(
            ("writer", "reader", "other", "admin"), (writer, reader, other, admin), strict=True
        )
    }
    body = {"events": [message("a")]}
    assert ServedSessions(front.port).ask("GET", "/v1/sessions").status == 401
    assert asks["writer"]("PUT", "/v1/session/team-a/s", {}).status == 201
    made = asks["writer"]("POST", "/v1/sessions", {}).value["id"]
    assert made.startswith("team-a/")
    assert asks["writer"]("POST", "/v1/sessions", {"id": "team-b/s"}).status == 403
    assert asks["writer"]("PUT", "/v1/session/team-b/s", {}).status == 403
    assert asks["reader"]("POST", "/v1/sessions", {"id": "team-a/x"}).status == 403
    assert asks["reader"]("POST", "/v1/sessions/events/team-a/s", body).status == 403
    assert asks["writer"]("POST", "/v1/sessions/events/team-a/s", body).status == 200
    lease = asks["admin"]("POST", "/v1/sessions/lease/team-b/secret", {"holder": "b"}).value
    leased = {"fourfold_epoch": str(lease["epoch"]), "fourfold_lease": "team-b/secret"}
    assert asks["writer"]("POST", "/v1/sessions/events/team-a/s", body, **leased).status == 403
    assert asks["admin"]("POST", "/v1/sessions/events/team-a/s", body, **leased).status == 200
    lone = {"fourfold_lease": "team-b/secret"}
    assert asks["admin"]("POST", "/v1/sessions/events/team-a/s", body, **lone).status == 400
    old = {"keep_latest": 0, "dry_run": True}
    for name, query, status in (
        ("writer", "prefix=team-a/", 200),
        ("writer", "prefix=team-b/", 403),
        ("writer", "", 403),
        ("reader", "prefix=team-a/", 403),
    ):
        answer = asks[name]("POST", "/v1/sessions/retention", old, query=query)
        assert answer.status == status, (name, query)
    fork = {"session": {"id": "team-b/fork"}}
    assert asks["writer"]("POST", "/v1/sessions/forks/team-a/s", fork).status == 403
    assert asks["writer"]("POST", "/v1/sessions/forks/team-b/secret", {}).status == 403
    for verb in ("events", "view", "heads", "turns", "lineage", "live"):
        assert asks["reader"]("GET", f"/v1/sessions/{verb}/team-b/secret").status == 403
        assert asks["other"]("GET", f"/v1/sessions/{verb}/team-a/s").status == 403
    assert asks["reader"]("GET", "/v1/sessions").status == 403
    assert asks["reader"]("GET", "/v1/sessions", query="prefix=team-a/").status == 200
    head = asks["admin"]("GET", "/v1/sessions/heads/team-b/secret").value["current_head"]
    assert asks["reader"]("GET", f"/v1/sessions/head/{head}").status == 404
    assert asks["admin"]("GET", f"/v1/sessions/head/{head}").status == 200
    compared = {
        name: ask("GET", f"/v1/sessions/compare/{head}/{head}").status for name, ask in asks.items()
    }
    assert compared == {"writer": 404, "reader": 404, "other": 403, "admin": 200}
    # An edge to another team's session does not show that session.
    edge = {"type": "derivation", "to_session": "team-b/secret", "to_head": head}
    assert asks["admin"]("POST", "/v1/sessions/lineage/team-a/s", edge).status == 200
    assert asks["reader"]("GET", "/v1/sessions/lineage/team-a/s").value == {
        "heads": [],
        "edges": [],
        "complete": True,
    }
    for name, status in (("writer", 201), ("reader", 403), ("other", 403)):
        assert asks[name]("POST", "/v1/sessions/payloads", {"a": 1}).status == status
    keyed = {"idempotency_key": "same"}
    assert asks["writer"]("POST", "/v1/sessions/events/team-a/s", body, **keyed).status == 200
    again = asks["admin"]("POST", "/v1/sessions/events/team-a/s", body, **keyed)
    assert "idempotency-replayed" not in again.headers
    front.stop()


def test_sessions_are_those_of_the_store(tmp_path):
    front = Front(tmp_path / "store", fast=False)
    session = ServedSessions(front.port).create("a/b", model="any")
    session.publish({"vars_ref": {"n": 1}}, [message("é")])
    records = session.get("events").value["items"]
    front.stop()
    with fourfold.open(tmp_path / "store") as store:
        events = store.sessions.open("a/b").log()
        assert [event.digest.hex() for event in events] == [record["digest"] for record in records]
        assert [event.as_dict() for event in events] == [
            {"id": record["id"], "type": record["type"], "at": record["at"], **record["data"]}
            for record in records
        ]
        assert store.sessions.verify() == []


def test_transcript_is_sent_in_the_requested_format(sessions, session):
    for content in ("one <b>", "two"):
        session.append(message(content))
    response = session.get("transcript")
    assert response.headers["content-type"] == "application/x-ndjson"
    header, *entries, end = map(json.loads, response.text.splitlines())
    assert (header["id"], end) == (session.sid, {"entries": 2, "complete": True})
    assert [entry["content"] for entry in entries] == ["one <b>", "two"]
    page = session.get("transcript", f"format=html&at={entries[0]['event']}")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "sandbox" in page.headers["content-security-policy"]
    assert b"one &lt;b&gt;" in page.text
    assert b"two" not in page.text
    markdown = session.get("transcript", "format=markdown&limit=1")
    assert b"> two" in markdown.text
    assert b"> one" not in markdown.text
    chat = json.loads(session.get("transcript", "format=openai").text)
    assert [entry["content"] for entry in chat["messages"]] == ["one <b>", "two"]
    assert session.get("transcript", "format=pdf").status == 400
    assert session.get("transcript", "at=99").status == 404
    assert sessions.ask("GET", "/v1/sessions/transcript/unknown").status == 404
