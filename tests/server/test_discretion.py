"""No answer tells where files lie on the server's disk, whatever went wrong."""

from __future__ import annotations

import asyncio
import json

import pytest

import fourfold
from fourfold.errors import FormatError, InvalidInput, NotFound, StorageError
from fourfold.server.auth import Access
from fourfold.server.errors import redact_paths
from fourfold.server.request import Request
from fourfold.server.streams import Protocol, refusal


@pytest.mark.parametrize(
    ("message", "told"),
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
def test_the_path_of_a_file_is_left_out(message, told):
    found = redact_paths(
        StorageError(message, hint="Look: `fuser /srv/s/locks/1`.", details={"n": 1})
    )
    assert found.message == told
    assert found.hint == "Look: `fuser a file of the server`."
    assert (type(found), found.details) == (StorageError, {"n": 1})


@pytest.mark.parametrize(
    "message",
    [
        "there is nothing at '/v2/a/b'",
        "there is no stream '/srv/a: b'",
        "the stream 'a/b' holds application/json, not text/plain: no",
        "object 'streams/ab/cd.parquet' is missing",
        "https://s3.example/bucket/key: 503",
        "live is long-poll or sse, not 'x'",
    ],
)
def test_what_a_client_said_and_knows_stays(message):
    assert redact_paths(NotFound(message)).message == message


def test_every_refusal_goes_that_way():
    for control in (False, True):
        answer = refusal(InvalidInput("/srv/s/wal.sqlite: no"), control=control)
        assert json.loads(answer.body)["error"]["message"] == "no"


def test_a_server_whose_store_is_closed_or_broken_does_not_say_where_it_is(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        streams = store.streams
        streams.create("s", "text/plain")
        broken = Access(root)
        broken._path.write_text("{")
        guarded = Protocol(streams, access=broken)
        answers = [asyncio.run(guarded.answer(Request("GET", "/v1/stream/s")))]
        streams.sweep_failure = FormatError(f"{streams.database.path}: is no database")
        answers.append(asyncio.run(Protocol(streams).answer(Request("GET", "/health"))))
    for method, path in (("GET", "/v1/stream/s"), ("GET", "/v1/stream/__ds/subscriptions/s")):
        answers.append(asyncio.run(Protocol(streams).answer(Request(method, path))))
    for answer in answers:
        assert answer.status == 503
        assert str(tmp_path) not in answer.body.decode()
        assert json.loads(answer.body)["error"]["message"]
