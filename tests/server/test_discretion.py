"""Error responses never reveal file paths of the server."""

from __future__ import annotations

import asyncio
import json

import pytest

import fourfold
from fourfold.errors import FormatError, InvalidInput, NotFound, StorageError
from fourfold.server.auth import Access
from fourfold.server.errors import redact_paths
from fourfold.server.request import Request
from fourfold.server.streams import StreamProtocol, error_response


@pytest.mark.parametrize(
    ("message", "response"),
    [
        ("/srv/s/streams/wal.sqlite: the database is closed", "the database is closed"),
        ("/srv/my shop/streams/wal.sqlite: disk I/O error", "disk I/O error"),
        ("shop/keys.json: is not a list of keys", "is not a list of keys"),
        ("/srv/s/keys.json does not hold keys", "a file of the server does not hold keys"),
        (
            "/srv/c/ab: cannot be written: [Errno 13] Permission denied: '/srv/c/ab'",
            "cannot be written: [Errno 13] Permission denied",
        ),
        ("it failed: OSError(/srv/s/x) again", "it failed: OSError(a file of the server again"),
    ],
)
def test_path_of_a_file_is_redacted(message, response):
    result = redact_paths(
        StorageError(message, hint="Look: `fuser /srv/s/locks/1`.", details={"n": 1})
    )
    assert result.message == response
    assert result.hint == "Look: `fuser a file of the server`."
    assert (type(result), result.details) == (StorageError, {"n": 1})


@pytest.mark.parametrize(
    "message",
    [
        "unknown path '/v2/a/b'",
        "there is no stream '/srv/a: b'",
        "the stream 'a/b' holds application/json, not text/plain: no",
        "object 'streams/ab/cd.parquet' is missing",
        "https://s3.example/bucket/key: 503",
        "live: must be long-poll or sse, got 'x'",
    ],
)
def test_values_of_the_client_are_not_redacted(message):
    assert redact_paths(NotFound(message)).message == message


def test_every_error_response_is_redacted():
    for control in (False, True):
        path = "/v1/stream/__ds/subscriptions/a" if control else "/v1/stream/a"
        request = Request("GET", path)
        answer = error_response(InvalidInput("/srv/s/wal.sqlite: no"), request)
        assert json.loads(answer.body)["error"]["message"] == "no"


def test_closed_or_broken_store_does_not_reveal_its_path(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        streams = store.streams
        streams.create("s", "text/plain")
        broken = Access(root)
        (root / "access.json").write_text("{")
        guarded = StreamProtocol(streams, access=broken)
        answers = [asyncio.run(guarded.handle(Request("GET", "/v1/stream/s")))]
        streams.sweep_failure = FormatError(f"{streams.database.path}: is no database")
        answers.append(asyncio.run(StreamProtocol(streams).handle(Request("GET", "/health"))))
    for method, path in (("GET", "/v1/stream/s"), ("GET", "/v1/stream/__ds/subscriptions/s")):
        answers.append(asyncio.run(StreamProtocol(streams).handle(Request(method, path))))
    for answer in answers:
        assert answer.status == 503
        assert str(tmp_path) not in answer.body.decode()
        assert json.loads(answer.body)["error"]["message"]
