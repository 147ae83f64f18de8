"""Documents over HTTP: states, versions, conditions, transactions and access."""

from __future__ import annotations

import json

import pytest
from both_fronts import Front
from served_spaces import DID, Spaces

import fourfold


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def spaces(request, tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("spaces") / "store", fast=request.param)
    yield Spaces(front.port)
    front.stop()


@pytest.fixture
def space(spaces):
    return spaces.create()


def test_space_is_created_once_and_listed(spaces):
    path = "/v1/spaces/did:web:shop.example"
    assert spaces.ask("GET", path).status == 404
    created = spaces.ask("PUT", path, query="history=facts")
    assert (created.status, created.headers["location"]) == (
        201,
        "/v1/spaces/did:web:shop.example",
    )
    assert created.value["history"] == "facts"
    assert spaces.ask("PUT", path).status == 200
    other = spaces.ask("PUT", path, query="history=revisions")
    assert (other.status, other.value["kind"]) == (409, "refused")
    listed = spaces.ask("GET", "/v1/spaces", query="prefix=did:web:").value["items"]
    assert [row["did"] for row in listed] == ["did:web:shop.example"]
    assert listed[0]["size_bytes"] > 0


def test_spaces_are_listed_in_pages(spaces):
    dids = [f"did:web:pages:{number}" for number in range(5)]
    for did in dids:
        assert spaces.ask("PUT", f"/v1/spaces/{did}").status == 201
    found = []
    page = spaces.ask("GET", "/v1/spaces", query="prefix=did:web:pages:&limit=2")
    while True:
        found += [row["did"] for row in page.value["items"]]
        if page.value["next_cursor"] is None:
            break
        link = page.headers["link"].removeprefix("<").removesuffix('>; rel="next"')
        page = spaces.ask("GET", *link.split("?")[:1], query=link.split("?")[1])
    assert found == dids


def test_document_is_set_patched_deleted_and_read_at_any_point(space):
    assert space.put("note", {"n": 1}).value["seq"] == 1
    assert space.patch("note", [{"op": "replace", "path": "/n", "value": 2}]).value["seq"] == 2
    assert space.delete("note").value["seq"] == 3
    states = [space.get("note", f"at={seq}").value for seq in (1, 2)]
    assert states == [
        {"id": "note", "seq": 1, "op": "set", "document": {"n": 1}},
        {"id": "note", "seq": 2, "op": "patch", "document": {"n": 2}},
    ]
    for query in ("", "at=3", "at=0"):
        assert space.get("note", query).status == 404
    gone = space.get("note").value
    assert (gone["kind"], gone["details"]["seq"], gone["details"]["deleted"]) == (
        *("not_found", 3, True),
    )
    assert space.get("note", "at=4").value["kind"] == "invalid_input"
    assert space.get("note", "at=2000-01-01T00:00:00Z").status == 404
    assert space.get("note", "at=2999-01-01T00:00:00%2B01:00").value["details"]["seq"] == 3


@pytest.mark.parametrize("at", ["-1", "01", "now", "2024-02-30T00:00:00Z", "2024-01-01", "1.0", ""])
def test_invalid_point_is_refused(space, at):
    space.put("note", {})
    response = space.get("note", f"at={at}")
    assert (response.status, response.value["kind"]) == (400, "invalid_input")


def test_etag_is_seq_and_known_version_is_not_sent(space):
    etag = space.put("note", {"n": 1}).headers["etag"]
    response = space.get("note")
    assert (etag, response.headers["etag"]) == ('"1"', '"1"')
    assert response.headers["cache-control"] == "private, no-cache"
    assert space.get("note", if_none_match=etag).status == 304
    space.put("note", {"n": 2})
    assert space.get("note", if_none_match=etag).status == 200


def test_write_with_a_stale_etag_is_refused(space):
    etag = space.put("note", {"n": 1}).headers["etag"]
    assert space.put("note", {"n": 2}, if_match=etag).status == 200
    for write in (
        space.put("note", {"n": 3}, if_match=etag),
        space.patch("note", [{"op": "remove", "path": "/n"}], if_match=etag),
        space.delete("note", if_match=etag),
        space.put("note", {"n": 3}, if_match='W/"2"'),
        space.put("note", {"n": 3}, if_match='"99999999999999999999"'),
        space.put("note", {"n": 3}, if_match='"other"'),
        space.put("note", {"n": 3}, if_none_match="*"),
        space.put("new", {"n": 3}, if_match="*"),
    ):
        assert (write.status, write.value["kind"]) == (412, "precondition_failed")
    assert space.get("note").value["document"] == {"n": 2}
    assert space.put("note", {"n": 3}, if_match="*").status == 200


def test_deleted_document_does_not_exist(space):
    """`If-None-Match: *` succeeds after a deletion, and `If-Match: *` does not."""
    assert space.put("note", {"n": 1}, if_none_match="*").status == 200
    space.delete("note")
    assert space.put("note", {"n": 2}, if_match="*").status == 412
    assert space.put("note", {"n": 2}, if_none_match="*").status == 200
    # The tombstone has a version like every other state.
    seq = space.delete("note").value["seq"]
    assert space.put("note", {"n": 3}, if_match=f'"{seq}"').status == 200


def test_idempotency_key_commits_once(space):
    first = space.put("note", {"n": 1}, if_none_match="*", idempotency_key="k")
    again = space.put("note", {"n": 1}, if_none_match="*", idempotency_key="k")
    assert (first.value["replayed"], again.value["replayed"]) == (False, True)
    assert first.value["seq"] == again.value["seq"] == 1
    other = space.put("note", {"n": 2}, if_none_match="*", idempotency_key="k")
    assert (other.status, other.value["kind"]) == (422, "replay_mismatch")
    assert space.put("note", {"n": 2}, idempotency_key="k k").status == 400


def test_transaction_commits_everything_or_nothing(space):
    operations = [
        {"op": "set", "id": "a", "value": {"n": 1}},
        {"op": "patch", "id": "b", "patches": [{"op": "add", "path": "/n", "value": 2}]},
    ]
    assert space.transact(operations).value["seq"] == 1
    refused = space.transact(
        [{"op": "delete", "id": "a"}], preconditions=[{"kind": "seq", "id": "b", "seq": 7}]
    )
    assert (refused.status, refused.value["details"]["conflict_seq"]) == (412, 1)
    stale = space.transact(
        [{"op": "delete", "id": "a"}], reads={"confirmed": [{"id": "b", "seq": 0}]}
    )
    assert (stale.status, stale.value["kind"]) == (409, "stale_read")
    assert space.get("a").value["document"] == {"n": 1}
    assert (
        space.transact(
            [{"op": "delete", "id": "a"}], preconditions=[{"kind": "exists", "id": "a"}]
        ).value["seq"]
        == 2
    )


def test_transaction_is_identified_by_its_session_or_by_a_key(space):
    operations = [{"op": "set", "id": "a", "value": {}}]
    for replayed in (False, True):
        value = space.transact(operations, session="phone", local_seq=1).value
        assert (value["seq"], value["session"], value["replayed"]) == (1, "phone", replayed)
    for body, headers in (
        ({"session": "phone", "local_seq": 2}, {"idempotency_key": "k"}),
        ({"session": "idem:x:k", "local_seq": 1}, {}),
        ({"session": "phone"}, {}),
    ):
        refused = space.transact(operations, **body, headers=headers)
        assert (refused.status, refused.value["kind"]) == (400, "invalid_input")


def test_head_has_no_body_and_unknown_method_lists_allowed_ones(space):
    space.put("note", {"n": 1})
    head = space.ask("HEAD", "/documents/note")
    assert (head.status, head.headers["etag"], head.text) == (200, '"1"', b"")
    wrong = space.ask("POST", "/documents/note", b"{}")
    assert (wrong.status, wrong.headers["allow"]) == (
        405,
        "GET, PUT, PATCH, DELETE, HEAD, OPTIONS",
    )


def test_large_response_is_compressed_if_the_client_accepts_it(space):
    space.put("note", {"text": "abc" * 1000})
    plain, packed = (space.get("note", accept_encoding=it) for it in ("identity", "gzip"))
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.text) < len(plain.text) / 10
    assert "content-encoding" not in plain.headers
    space.put("small", {})
    assert "content-encoding" not in space.get("small", accept_encoding="gzip").headers


def test_document_is_the_one_in_the_store(tmp_path):
    front = Front(tmp_path / "store", fast=True)
    space = Spaces(front.port).create(DID)
    document = {"big": 2**70, "text": "é\u2028", "nested": [[{"a": None}], 0.1, -0.0, True]}
    space.put("a/b", document)
    front.stop()
    with fourfold.open(tmp_path / "store") as store:
        state = store.space(DID).read("a/b")
        assert json.dumps(state.document, sort_keys=True) == json.dumps(document, sort_keys=True)
