"""Schemas and profiles over HTTP: requests, errors, and what readers receive."""

from __future__ import annotations

import json
import sys
import threading
import uuid

import pytest
from both_fronts import Front
from ruled_streams import Area, Events, call, done

from fourfold.models.streams.validation import format_offset
from fourfold.server.stream_rules import HTTP_RULES_BODY_MAX

NAMED = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "team": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
TITLED = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "team": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}
TO_TITLED = {"ops": [{"op": "rename", "from": "name", "to": "title"}]}
SECRET = "hunter2-hunter2"


@pytest.fixture(scope="module", params=["fast", "plain"])
def server(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("ruled") / "store"
    made = Front(root, fast=request.param == "fast")
    yield made
    made.stop()


@pytest.fixture
def front(server):
    return Area(server, f"{uuid.uuid4().hex}-")


def two_versions(front, name):
    """Create a stream with two messages of version 1 and one of version 2."""
    done(front, "PUT", name)
    done(
        front, "POST", f"{name}/_schema", {"schema": NAMED, "routingKey": {"jsonPointer": "/team"}}
    )
    done(front, "POST", name, [{"name": "a", "team": "x"}, {"name": "b", "team": "y"}])
    done(front, "POST", f"{name}/_schema", {"schema": TITLED, "lens": TO_TITLED})
    done(front, "POST", name, {"title": "c", "team": "x"})


PROMOTED = [
    {"title": "a", "team": "x"},
    {"title": "b", "team": "y"},
    {"title": "c", "team": "x"},
]


# The registry


def test_registry_changes_by_compatible_versions(front):
    done(front, "PUT", "s")
    nothing = done(front, "GET", "s/_schema")
    assert nothing == {
        "currentVersion": 0,
        "schemas": {},
        "lenses": {},
        "boundaries": [],
        "routingKey": None,
        "search": None,
    }
    first = done(front, "POST", "s/_schema", {"schema": NAMED})
    assert (first["currentVersion"], first["schemas"]) == (1, {"1": NAMED})
    assert first["boundaries"] == [{"offset": format_offset(0), "version": 1}]
    done(front, "POST", "s", [{"name": "a"}, {"name": "b"}])

    status, _, response = call(front, "POST", "s/_schema", {"schema": TITLED})
    assert (status, "lens" in response["error"]["message"]) == (400, True)
    status, _, response = call(front, "POST", "s/_schema", {"schema": TITLED, "lens": {"ops": []}})
    assert (status, response["error"]["details"]["disproved"]) == (400, True)

    change = {"schema": TITLED, "lens": TO_TITLED, "routingKey": {"jsonPointer": "/team"}}
    second = done(front, "POST", "s/_schema", change)
    assert second["boundaries"][1] == {"offset": format_offset(2), "version": 2}
    assert second["lenses"] == {"1": TO_TITLED}
    assert second["routingKey"] == {"jsonPointer": "/team", "required": False}
    assert done(front, "GET", "s/_schema") == second
    assert done(front, "GET", "s/_details")["schema_version"] == 2


def test_appends_are_validated_against_the_current_version(front):
    done(front, "PUT", "s")
    assert done(front, "GET", "s/_details")["schema_version"] is None
    done(front, "POST", "s/_schema", {"schema": NAMED})
    # One that fits and one that does not: none of them is written.
    status, _, response = call(front, "POST", "s", [{"name": "a"}, {"name": 1}])
    assert (status, response["error"]["details"]) == (400, {"message": 2})
    assert "version 1" in response["error"]["message"]
    assert front.stored("s") == []
    done(front, "POST", "s", {"name": "a"})
    assert front.stored("s") == [b'{"name": "a"}']


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "must be JSON"),
        (b"", "must be JSON"),
        (b'{"schema": "\xff"}', "must be JSON"),
        (b"[" * 100_000, "got `array`"),
        (b"[]", "got `array`"),
        (b"{}", "no change of the registry"),
        (b'{"shema": {}}', "shema"),
        (b'{"routingKey": {"jsonPointer": "/a", "needed": true}}', "needed"),
        (b'{"routingKey": {"jsonPointer": "a"}}', "'a'"),
        (b'{"lens": {"ops": []}}', "lens"),
        (b'{"schema": {"type": "text"}}', "schema"),
        (b'{"schema": 7}', "schema"),
        (b'{"schema": {"not": ' * 3_000 + b"true" + b"}}" * 3_000, ""),
    ],
)
def test_invalid_registry_change_is_refused(front, body, message):
    done(front, "PUT", "s")
    status, _, response = call(front, "POST", "s/_schema", body)
    assert (status, response["error"]["kind"]) == (400, "invalid_input")
    assert message in response["error"]["message"]
    assert done(front, "GET", "s/_schema")["currentVersion"] == 0


def test_schema_is_refused_where_it_is_impossible(front):
    change = {"schema": NAMED}
    assert call(front, "GET", "none/_schema")[0] == 404
    assert call(front, "POST", "none/_schema", change)[0] == 404
    done(front, "PUT", "full", [1])
    status, _, response = call(front, "POST", "full/_schema", change)
    assert (status, response["error"]["kind"]) == (409, "refused")
    front.create("text", "text/plain")
    assert call(front, "POST", "text/_schema", change)[0] == 400
    done(front, "PUT", "fork", stream_forked_from="full")
    done(front, "DELETE", "full")
    for path in ("full/_schema", "full/_profile", "full/_touch"):
        assert call(front, "GET", path)[0] == 410, path
    assert call(front, "POST", "full/_schema", change)[0] == 410


def test_large_body_is_refused_before_decoding(front):
    done(front, "PUT", "s")
    body = b" " * (HTTP_RULES_BODY_MAX + 1)
    for path in ("_schema", "_profile", "_touch/wait", "_touch/templates"):
        status, _, response = call(front, "POST", f"s/{path}", body)
        assert (status, response["error"]["kind"]) == (413, "too_large"), path


def test_schema_without_its_extra_is_not_supported(front, monkeypatch):
    done(front, "PUT", "s")
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    status, _, response = call(
        front, "POST", "s/_schema", {"schema": {"title": "of no other test"}}
    )
    assert (status, response["error"]["kind"]) == (501, "missing_dependency")


def test_validation_error_names_the_location(front):
    """A location in a message looks like a file path, but is not redacted."""
    within = {"type": "object", "properties": {"at": NAMED}}
    done(front, "PUT", "s")
    done(front, "POST", "s/_schema", {"schema": within})
    _, _, response = call(front, "POST", "s", {"at": {"name": 1}})
    assert "/at/name" in response["error"]["message"]
    stricter = {"type": "object", "properties": {"at": {**NAMED, "required": ["name", "team"]}}}
    change = {"schema": stricter, "lens": {"ops": []}}
    _, _, response = call(front, "POST", "s/_schema", change)
    assert "/at/team" in response["error"]["message"]


# Reading in the current version


def test_every_kind_of_read_returns_the_current_version(front):
    two_versions(front, "s")
    assert json.loads(front.stored("s")[0]) == {"name": "a", "team": "x"}
    assert done(front, "GET", "s") == PROMOTED
    assert done(front, "GET", f"s?offset={format_offset(1)}") == PROMOTED[1:]
    assert done(front, "GET", "s?offset=-1&live=long-poll") == PROMOTED
    records = done(front, "GET", "s?format=records&limit=2")
    assert [json.loads(record["text"]) for record in records] == PROMOTED[:2]
    assert done(front, "GET", "s?key=x") == [PROMOTED[0], PROMOTED[2]]
    assert done(front, "GET", "s?key=y&offset=-1&live=long-poll") == [PROMOTED[1]]
    with Events(front, "s") as result:
        result.until(b"upToDate")
        assert result.messages() == PROMOTED
    with Events(front, "s", "&key=x") as result:
        result.until(b"upToDate")
        assert result.messages() == [PROMOTED[0], PROMOTED[2]]


def test_fork_continues_in_the_version_at_its_offset(front):
    two_versions(front, "s")
    done(front, "PUT", "late", stream_forked_from="s")
    assert done(front, "GET", "late") == PROMOTED
    forked = {"stream_forked_from": "s", "stream_fork_offset": format_offset(1)}
    done(front, "PUT", "early", **forked)
    assert done(front, "GET", "early/_schema")["currentVersion"] == 1
    assert done(front, "GET", "early") == [{"name": "a", "team": "x"}]
    assert call(front, "POST", "early", {"title": "c"})[0] == 400
    done(front, "POST", "early", {"name": "c"})
    assert call(front, "POST", "late", {"name": "c"})[0] == 400


def test_page_cached_in_one_version_is_not_used_for_another(front):
    done(front, "PUT", "s")
    done(front, "POST", "s/_schema", {"schema": NAMED})
    done(front, "POST", "s", {"name": "a"})
    first = call(front, "GET", "s")[1]["etag"]
    assert call(front, "GET", "s", if_none_match=first)[0] == 304
    done(front, "POST", "s/_schema", {"schema": TITLED, "lens": TO_TITLED})
    status, response, page = call(front, "GET", "s", if_none_match=first)
    assert (status, page) == (200, [{"title": "a"}])
    assert response["etag"] != first
    assert call(front, "GET", "s", if_none_match=response["etag"])[0] == 304
    # Other changes do not affect reads.
    done(front, "POST", "s/_schema", {"search": {"fields": ["title"]}})
    assert call(front, "GET", "s", if_none_match=response["etag"])[0] == 304


def test_waiting_reader_gets_messages_in_the_new_version(front):
    done(front, "PUT", "s")
    done(front, "POST", "s/_schema", {"schema": NAMED})
    done(front, "POST", "s", {"name": "a"})
    with Events(front, "s") as result:
        result.until(format_offset(1).encode())
        done(front, "POST", "s", {"name": "b"})
        result.until(format_offset(2).encode())
        done(front, "POST", "s/_schema", {"schema": TITLED, "lens": TO_TITLED})
        done(front, "POST", "s", {"title": "c"})
        result.until(format_offset(3).encode())
        assert result.messages() == [{"name": "a"}, {"name": "b"}, {"title": "c"}]


# Profiles


def test_profile_is_shown_with_its_defaults(front):
    done(front, "PUT", "s")
    assert done(front, "GET", "s/_profile") == {"kind": "generic"}
    result = done(front, "POST", "s/_profile", {"kind": "state-protocol"})
    assert result == {"kind": "state-protocol", "touch": {"enabled": False}}
    assert done(front, "GET", "s/_profile") == result
    assert done(front, "GET", "s/_details")["profile"] == "state-protocol"
    status, _, response = call(front, "POST", "s", {"type": "user"})
    assert (status, "state-protocol" in response["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'{"kind": "other"}',
        b'{"kind": 1}',
        b'{"kind": "evlog", "redcat": ["iban"]}',
        b'{"kind": "state-protocol", "touch": {"enabled": 1}}',
        b'{"kind": "state-protocol", "touch": {"on": true}}',
    ],
)
def test_invalid_profile_changes_nothing(front, body):
    done(front, "PUT", "s")
    assert call(front, "POST", "s/_profile", body)[0] == 400
    assert done(front, "GET", "s/_profile") == {"kind": "generic"}


def test_event_log_must_begin_empty(front):
    done(front, "PUT", "s", [{"password": SECRET}])
    status, _, response = call(front, "POST", "s/_profile", {"kind": "evlog"})
    assert (status, response["error"]["kind"]) == (409, "refused")
    assert call(front, "POST", "none/_profile", {"kind": "evlog"})[0] == 404
    assert call(front, "GET", "none/_profile")[0] == 404


def test_readers_of_an_event_log_see_no_secret(front):
    """This includes readers that wait at the end and receive records without reading the log."""
    done(front, "PUT", "s")
    with Events(front, "s") as result:
        result.until(b"upToDate")
        done(front, "POST", "s/_profile", {"kind": "evlog", "redact": ["iban"]})
        polled = []

        def poll():
            for at in range(3):
                path = f"s?offset={format_offset(at)}&live=long-poll"
                while (answer := call(front, "GET", path))[0] == 204:
                    pass
                polled.append(answer)

        reader = threading.Thread(target=poll)
        reader.start()
        for number in range(3):
            done(front, "POST", "s", {"n": number, "deep": [{"Pass-Word": SECRET}], "iban": SECRET})
            result.until(format_offset(number + 1).encode())
        reader.join(30)
        seen = result.messages()
    assert [item["n"] for item in seen] == [0, 1, 2]
    assert len(polled) == 3
    assert [item for item in seen if SECRET in json.dumps(item)] == []
    assert seen[0]["iban"] == seen[0]["deep"][0]["Pass-Word"] == "[REDACTED]"
    assert SECRET not in json.dumps([page for _, _, page in polled])
    assert SECRET.encode() not in b"".join(front.stored("s"))
    for query in ("", "?format=records", "?offset=-1&live=long-poll"):
        assert SECRET not in json.dumps(done(front, "GET", f"s{query}"))
