"""Hostile requests about documents: names, bodies, types and keys that must not pass."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from both_fronts import Front
from served_spaces import DID, Spaces
from served_streams import Served

import fourfold
from fourfold import limits


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("hostile") / "store", fast=request.param)
    yield front
    front.stop()


@pytest.fixture
def space(front):
    return Spaces(front.port).create()


IDS = [
    *("a/b", "a//b", "a/", "/a", "/", "//", ".", "..", "../a", "a/../b", "a/./b", "a\n", "a\r\nb"),
    *("a?b", "a#b", "a%b", "%2F", "a%2Fb", "a+b", "a b", " ", "é", "e\u0301", "\u2028", "a\\b"),
    *("documents/a", "history", "a.json", "a;b=c", "*", "~", ":", "did:key:x", "A", "a"),
    *("\x01", "\x7f", "\U0001f600", "x" * limits.ENTITY_ID_BYTES_MAX),
]


def test_every_id_is_its_own_document(front, space):
    """No two ids meet, however they are encoded, and each is the id in the store."""
    for number, entity in enumerate(IDS):
        assert space.put(entity, {"n": number}).status == 200, entity
    for number, entity in enumerate(IDS):
        assert space.get(entity).value["document"] == {"n": number}, entity
        whole = f"/documents/{quote(entity, safe='')}"
        assert space.ask("GET", whole).value["document"] == {"n": number}, entity
        assert len(space.ask("GET", f"/history/{quote(entity)}").value["items"]) == 1
    stored = front.store.space(space.did)
    assert stored.ids() == sorted(IDS, key=str.encode)
    assert space.ask("GET", "/ids", query="limit=1000").value["items"] == stored.ids()


@pytest.mark.parametrize(
    "path",
    [
        "/documents/",
        f"/documents/{'x' * (limits.ENTITY_ID_BYTES_MAX + 1)}",
        f"/documents/{quote('é') * (limits.ENTITY_ID_BYTES_MAX // 2 + 1)}",
        "/documents/a%00b",
        "/documents/%FF",
        "/documents/%ED%A0%80",
        "/history/",
        "/transact/",
        "/ids/",
        "/branches/",
        "/branches/..",
        "/branches/%2E%2E/x",
        "/unknown",
        "//documents/a",
    ],
)
def test_invalid_path_is_refused(space, path):
    for method in ("GET", "PUT", "DELETE"):
        response = space.ask(method, path, {} if method == "PUT" else None)
        assert response.status in {400, 404, 405}, method
        if response.text:
            assert response.headers["content-type"] == "application/problem+json"
            assert response.value["status"] == response.status
    assert space.ask("GET", "").value["seq"] == 0


@pytest.mark.parametrize(
    "did",
    [
        *(
            "did:key:..",
            "did:key:a%2F..%2Fb",
            "..",
            "%2E%2E",
            "did:key:%2E%2E%2F%2E%2E",
            "did:key:",
        ),
        *("DID:key:a", "did:key:a%00", "did:key:a%0A", "did:key:a.sqlite%2F", "x"),
        f"did:key:{'a' * 300}",
    ],
)
def test_name_that_is_not_a_did_makes_no_file(front, did):
    root = front.store.root
    before = sorted(root.parent.glob("**/*"))
    spaces = Spaces(front.port)
    for method in ("PUT", "GET"):
        for path in ("", "/documents/a"):
            body = b"{}" if path and method == "PUT" else None
            assert spaces.ask(method, f"/v1/spaces/{did}{path}", body).status in {400, 404}
    assert before == sorted(root.parent.glob("**/*"))


def test_request_for_an_unknown_space_does_not_create_it(front):
    spaces = Spaces(front.port)
    path = "/v1/spaces/did:key:never"
    for method, suffix, body in (
        ("GET", "", None),
        ("PUT", "/documents/a", b"{}"),
        ("POST", "/transact", b'{"operations": [{"op": "delete", "id": "a"}]}'),
        ("POST", "/branches", b'{"name": "w"}'),
        ("POST", "/blobs", b"x"),
        ("GET", "/watch", None),
    ):
        assert spaces.ask(method, path + suffix, body).status == 404
    assert not front.store.has_space("did:key:never")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        *(("PUT", "/documents/a", body) for body in (b"", b"{", b"[]", b"1", b"null", b'"x"')),
        *(("PUT", "/documents/a", body) for body in (b"\xff", b'{"a": NaN}', b'{"\\ud800": 1}')),
        ("PUT", "/documents/a", b'{"a":' * 5000 + b"1" + b"}" * 5000),
        ("PUT", "/documents/a", b'{"a": ' + b"9" * 5000 + b"}"),
        *(("PATCH", "/documents/a", body) for body in (b"{}", b"[1]", b'[{"op": "x"}]')),
        ("PATCH", "/documents/a", b'[{"op": "remove", "path": "/never"}]'),
        *(("POST", "/transact", body) for body in (b"{}", b'{"operations": []}', b"[]")),
        ("POST", "/transact", b'{"operations": [{"op": "set", "id": "a"}]}'),
        ("POST", "/transact", b'{"operations": [{"op": "drop", "id": "a"}]}'),
        ("POST", "/transact", b'{"operations": [{"op": "delete", "id": ""}]}'),
        ("POST", "/transact", b'{"operations": [{"op": "delete", "id": 7}]}'),
        ("POST", "/transact", b'{"operations": [{"op": "delete", "id": "a"}], "x": 1}'),
        (
            *("POST", "/transact"),
            b'{"operations": [{"op": "delete", "id": "a"}], "local_seq": -1, "session": "s"}',
        ),
        *(("POST", "/read", body) for body in (b"{}", b'{"ids": "a"}', b'{"ids": [null]}')),
        *(("POST", "/merges", body) for body in (b"{}", b'{"source": 1}', b'{"source": ""}')),
    ],
)
def test_body_of_a_wrong_type_is_refused(space, method, path, body):
    response = space.ask(method, path, body)
    assert (response.status, response.value["kind"]) in {
        (400, "invalid_input"),
        (400, "content"),
    }, response.text
    assert space.ask("GET", "").value["seq"] == 0


def test_body_that_is_too_large_is_refused(space):
    response = space.put("a", b'{"a": "' + b"x" * limits.HTTP_BODY_MAX + b'"}')
    assert response.status == 413
    assert space.ask("GET", "").value["seq"] == 0
    compressed = space.put("a", b"{}", content_encoding="gzip")
    assert (compressed.status, compressed.value["kind"]) == (415, "unsupported_encoding")


def test_large_document_is_written_and_read(space):
    """Its body is decoded, and its document encoded, by a worker."""
    document = {"text": "x" * (4 * limits.HTTP_LOOP_BYTES)}
    assert space.put("a", document).status == 200
    assert space.get("a").value["document"] == document
    operations = [{"op": "set", "id": "b", "value": document}]
    assert space.transact(operations).status == 200
    assert space.get("b").value["document"] == document


# Access


def keyed(root, *grants):
    """Return secrets of new keys, each for some scopes, a model and a prefix."""
    with fourfold.open(root) as store:
        store.space(DID).set("a", {"n": 1})
        store.space("did:key:other").set("a", {"n": 1})
    front = Front(root, fast=True, access=True)
    secrets = [
        front.access.add(scopes, prefix, models=(model,))[1] for scopes, model, prefix in grants
    ]
    return front, [Spaces(front.port, authorization=f"Bearer {secret}") for secret in secrets]


def test_key_is_for_its_model_its_prefix_and_its_scopes(tmp_path):
    front, (reader, writer, streams) = keyed(
        tmp_path / "store",
        (("read",), "documents", "did:key:z6Mk"),
        (("read", "write"), "documents", "did:key:z6Mk"),
        (("read", "write", "admin"), "streams", ""),
    )
    mine, others = f"/v1/spaces/{DID}", "/v1/spaces/did:key:other"
    reads = [
        *(("GET", path, None) for path in ("", "/documents/a", "/ids", "/log", "/diff")),
        *(("GET", path, None) for path in ("/history/a", "/branches", "/blobs")),
        ("POST", "/read", b'{"ids": ["a"]}'),
    ]
    writes = [
        ("PUT", "/documents/a", b"{}"),
        ("PATCH", "/documents/a", b"[]"),
        ("DELETE", "/documents/a", None),
        ("POST", "/transact", b'{"operations": [{"op": "set", "id": "a", "value": {}}]}'),
        ("POST", "/branches", b'{"name": "w"}'),
        ("POST", "/merges", b'{"source": "w"}'),
        ("DELETE", "/branches/w", None),
        ("POST", "/blobs", b"x"),
        ("PUT", "", None),
    ]
    anonymous = Spaces(front.port)
    try:
        for method, path, body in reads + writes:
            is_read = (method, path, body) in reads
            assert anonymous.ask(method, mine + path, body).status == 401, path
            assert streams.ask(method, mine + path, body).status == 403, path
            assert (reader.ask(method, mine + path, body).status == 200) == is_read, path
            assert writer.ask(method, mine + path, body).status in {200, 201}, path
            for client in (reader, writer):
                refused = client.ask(method, others + path, body)
                assert (refused.status, refused.value["kind"]) == (403, "forbidden"), path
        assert reader.ask("GET", "/v1/spaces").status == 403
        listed = reader.ask("GET", "/v1/spaces", query="prefix=did:key:z6Mk").value["items"]
        assert [row["did"] for row in listed] == [DID]
        # What does not exist is refused like what does.
        assert writer.ask("GET", "/v1/spaces/did:key:unknown").status == 403
        assert writer.ask("GET", f"{mine}/unknown").status == 403
        assert streams.ask("GET", "/v1/streams").status == 200
        assert writer.ask("GET", "/v1/streams").status == 403
    finally:
        front.stop()


def test_idempotency_key_of_another_api_key_is_another(tmp_path):
    front, (one, other) = keyed(tmp_path / "store", *[(("read", "write"), "documents", "")] * 2)
    path = f"/v1/spaces/{DID}/documents/b"
    try:
        first = one.ask("PUT", path, b'{"n": 1}', idempotency_key="k").value
        second = other.ask("PUT", path, b'{"n": 2}', idempotency_key="k").value
        assert (first["replayed"], second["replayed"]) == (False, False)
        assert first["session"] != second["session"]
    finally:
        front.stop()


def test_idempotent_request_is_known_after_a_restart(tmp_path):
    served = Served(tmp_path / "store")
    spaces = Spaces(served.port)
    space = spaces.create(DID)
    body = {"operations": [{"op": "set", "id": "a", "value": {"n": 1}}]}
    requests = [
        ("POST", "/transact", body),
        ("POST", "/branches", {"name": "w"}),
        ("PUT", "/documents/b", {"n": 2}),
        ("DELETE", "/branches/w", None),
    ]

    def send():
        return [
            space.ask(method, path, sent, idempotency_key=f"{method}{path}")
            for method, path, sent in requests
        ]

    try:
        first = send()
        assert [answer.status for answer in first] == [200, 201, 200, 200]
        assert served.stop() == 0
        served.start()
        again = send()
        assert [answer.status for answer in again] == [200, 201, 200, 200]
        assert [answer.value.get("seq") for answer in again] == [
            answer.value.get("seq") for answer in first
        ]
        assert space.ask("GET", "").value["seq"] == 4
        assert spaces.ask("GET", "/v1/spaces").value["items"][0]["did"] == DID
    finally:
        served.kill()
    with fourfold.open(tmp_path / "store") as store:
        assert json.loads(json.dumps(store.space(DID)["a"])) == {"n": 1}
