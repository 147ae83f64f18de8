"""Blobs over HTTP: bytes by their hash, in ranges, immutable and in a sandbox."""

from __future__ import annotations

import hashlib

import pytest
from both_fronts import Front
from served_spaces import Spaces

from fourfold.server import ranges


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("spaces") / "store", fast=True)
    yield Spaces(front.port).create()
    front.stop()


def put(space, data, content_type="text/plain"):
    made = space.ask("POST", "/blobs", data, content_type=content_type)
    assert made.status == 201
    assert made.value["hash"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    return made


def get(space, made, **headers):
    return space.ask("GET", f"/blobs/{made.value['hash']}", **headers)


def test_blob_is_stored_once_and_read_whole(space):
    made = put(space, b"hello world")
    again = put(space, b"hello world", "text/html")
    assert made.value == again.value
    assert made.value["content_type"] == "text/plain"
    found = get(space, made)
    assert (found.status, found.text) == (200, b"hello world")
    assert found.headers["content-length"] == "11"
    assert "immutable" in found.headers["cache-control"]
    assert get(space, made, if_none_match=found.headers["etag"]).status == 304
    head = space.ask("HEAD", f"/blobs/{made.value['hash']}")
    assert (head.status, head.headers["content-length"], head.text) == (200, "11", b"")


@pytest.mark.parametrize(
    ("text", "status", "part"),
    [
        ("bytes=0-4", 206, b"hello"),
        ("bytes=6-", 206, b"world"),
        ("bytes=-5", 206, b"world"),
        ("bytes=-99", 200, b"hello world"),
        ("bytes=0-99", 200, b"hello world"),
        ("bytes=10-10", 206, b"d"),
        ("bytes=11-", 416, b""),
        ("bytes=-0", 416, b""),
        ("bytes=5-4", 200, b"hello world"),
        ("bytes=0-1,3-4", 200, b"hello world"),
        ("lines=0-1", 200, b"hello world"),
        ("bytes=-", 200, b"hello world"),
        ("bytes=99999999999999999999-", 200, b"hello world"),
    ],
)
def test_range_is_one_part(space, text, status, part):
    made = put(space, b"hello world")
    found = get(space, made, range=text)
    assert (found.status, found.text) == (status, part)
    if status == 206:
        first, last = (int(it) for it in found.headers["content-range"][6:-3].split("-"))
        assert b"hello world"[first : last + 1] == part
    if status == 416:
        assert found.headers["content-range"] == "bytes */11"


def test_range_of_another_version_is_ignored(space):
    made = put(space, b"hello world")
    etag = get(space, made).headers["etag"]
    assert get(space, made, range="bytes=0-4", if_range=etag).status == 206
    assert get(space, made, range="bytes=0-4", if_range='"other"').status == 200


def test_large_and_empty_blobs_are_sent_whole(space, monkeypatch):
    monkeypatch.setattr(ranges, "PIECE_BYTES", 1000)
    data = bytes(range(256)) * 100
    assert get(space, put(space, data)).text == data
    assert get(space, put(space, data), range="bytes=999-3001").text == data[999:3002]
    assert get(space, put(space, b"")).text == b""


def test_content_that_a_browser_might_run_is_in_a_sandbox(space):
    for content_type in ("text/html", "image/svg+xml", "application/xhtml+xml"):
        found = get(space, put(space, content_type.encode(), content_type))
        assert found.headers["content-type"] == content_type
        assert found.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert found.headers["x-content-type-options"] == "nosniff"


def test_unknown_or_invalid_hash(space):
    assert space.ask("GET", f"/blobs/sha256:{'0' * 64}").status == 404
    for text in ("x", "sha256:0", "..", "%2e%2e", f"sha256:{'0' * 63}%2f"):
        assert space.ask("GET", f"/blobs/{text}").status in {400, 404}


def test_blobs_are_listed_in_pages(space):
    made = {put(space, b"blob %d" % number).value["hash"] for number in range(5)}
    found, cursor = [], ""
    while True:
        page = space.ask("GET", "/blobs", query=f"limit=2{cursor}").value
        found += [row["hash"] for row in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == sorted(found)
    assert made <= set(found)
