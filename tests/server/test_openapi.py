"""The OpenAPI document is correct: its requests work, and responses match it."""

from __future__ import annotations

import hashlib
import json
import re
import uuid

import pytest
import schemathesis
from both_fronts import store_protocol
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served_streams import Served

import fourfold
from fourfold.content import content_id, encode
from fourfold.server.stream_rules import RESERVED
from support.properties import examples

with fourfold.open(":memory:") as store:
    TABLE = store_protocol(store).routes
    DOCUMENT = json.loads(store_protocol(store).openapi_document())
NAMES = {
    "name": "a",
    "subscription": "s",
    "kind": "not_found",
    "point": "20300101T000000.000Z-0000",
    "did": "did:key:known",
    "entity": "known",
    "branch": "known",
    "index": "known",
    "app": "known",
    "domain": "known",
    "object_id": "1",
    "job_id": "1",
    "key_id": "unknown",
    "upload": "known",
    "sid": "known/s",
    "head": f"sha256:{'0' * 64}",
    "other": f"sha256:{'1' * 64}",
    "hash": f"sha256:{hashlib.sha256(b'known').hexdigest()}",
}
PAYLOAD = content_id(encode({"text": "known"}))


def whole_response_schema_conformance(context, response, case):
    """Check a body against its schema, unless it is a range of the bytes of a document."""
    if response.status_code != 206:
        return response_schema_conformance(context, response, case)
    return None


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    whole_response_schema_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
# A feed never ends: its first event is checked.
SCHEMA.config.max_stream_events = 1
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    # Requests create keys, and later ones have none.
    server = Served(tmp_path_factory.mktemp("served") / "store", options=("--open",))
    yield server
    server.kill()


def test_too_long_url_is_a_described_response(served):
    answer = served.ask("GET", "/v1/sessions?cursor=" + "x" * 100_000)
    assert answer.status == 431
    described = DOCUMENT["paths"]["/v1/sessions"]["get"]["responses"]["431"]["headers"]
    assert {name.lower() for name in described} <= {name.lower() for name in answer.headers}


def test_openapi_document_is_valid_and_served(served):
    answer = served.ask("GET", "/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.text) == DOCUMENT
    validate(DOCUMENT)


def test_every_route_is_found_and_documented():
    names = NAMES | {"name": "a/b", "entity": "a/b"}
    for route in TABLE.routes:
        path = re.sub(r"\{(\w+):?\w*\}", r"{\1}", route.path)
        assert TABLE.find(route.method, path.format(**names)).route is route
        assert DOCUMENT["paths"][path][route.method.lower()]["operationId"] == route.operation
    assert len({route.operation for route in TABLE.routes}) == len(TABLE.routes)
    assert sum(map(len, DOCUMENT["paths"].values())) == len(TABLE.routes)


@pytest.mark.parametrize("path", sorted(DOCUMENT["paths"]))
def test_unsupported_method_lists_allowed_methods(served, path):
    real = path.format(**NAMES)
    described = {method.upper() for method in DOCUMENT["paths"][path]}
    answered = described | ({"HEAD"} if "GET" in described else set())
    for method in {"GET", "PUT", "POST", "DELETE", "PATCH"} - described:
        answer = served.ask(method, real)
        if path.endswith(RESERVED):
            # Such a stream could be there; it is only never made.
            assert answer.status in {400, 404, 405}
            continue
        assert answer.status == 405, method
        assert set(answer.headers["allow"].split(", ")) == answered | {"OPTIONS"}


@pytest.fixture(scope="module")
def fuzzed(served):
    """Return a server with some of the resources that are requested."""
    sent_headers = {"content-type": "application/json"}
    served.ask("PUT", "/v1/stream/known", b"[1,2,3]", sent_headers)
    body = {"type": "pull-wake", "pattern": "**", "wake_stream": "wakes"}
    path = "/v1/stream/__ds/subscriptions/known"
    assert served.ask("PUT", path, json.dumps(body).encode(), sent_headers).status == 201
    touched = json.dumps({"kind": "state-protocol", "touch": {"enabled": True}}).encode()
    for name in ("ruled", "touched"):
        served.ask("PUT", f"/v1/stream/{name}", None, sent_headers)
    assert served.ask("POST", "/v1/stream/touched/_profile", touched, sent_headers).status == 200
    assert served.ask("PUT", f"/v1/spaces/{NAMES['did']}").status == 201
    assert served.ask("PUT", "/v1/spaces/did:memory:known/memory").status == 201
    for number in range(3):
        document = json.dumps({"n": number}).encode()
        assert (
            served.ask("PUT", f"/v1/spaces/{NAMES['did']}/documents/known", document).status == 200
        )
    assert served.ask("PUT", "/v1/apps/known").status == 201
    for kind in ("parent", "attr"):
        new_type = json.dumps({"kind": kind, "type_key": "known"}).encode()
        assert served.ask("POST", "/v1/apps/known/types", new_type).status == 201
    operations = [
        {"op": "parent_create", "type_key": "known"},
        {"op": "attr_create", "type_key": "known", "payload": {"parent_id": {"$op": 0}}},
    ]
    envelope = json.dumps({"owner": 1, "operations": operations}).encode()
    assert served.ask("POST", "/v1/apps/known/envelopes", envelope).status == 200
    assert served.ask("POST", "/v1/jobs", b'{"kind": "gc"}').status == 202
    assert served.ask("PUT", "/v1/uploads/known", b'{"id": "a"}').status == 201
    assert served.ask("POST", "/v1/keys", b'{"scopes": ["admin"]}').status == 201
    for path, body in (
        ("/v1/sessions", {"id": NAMES["sid"], "model": "any"}),
        (f"/v1/sessions/heads/{NAMES['sid']}", {"events": [{"type": "a/b"}] * 3}),
        ("/v1/sessions/payloads", {"text": "known"}),
    ):
        assert served.ask("POST", path, json.dumps(body).encode()).status == 201
    return served


def known_name(path, parameter):
    """Return an existing object for a request; requests that change a stream have their own."""
    if parameter == "hash" and "/sessions/" in path:
        return PAYLOAD
    if parameter == "did" and "{did}/memory" in path:
        return "did:memory:known"
    if parameter in NAMES.keys() - {"name", "subscription", "kind"}:
        return NAMES[parameter]
    if "/_touch" in path:
        return "touched"
    return "ruled" if path.endswith(("/_schema", "/_profile")) else "known"


def fuzz(served, operation, examples):
    base = f"http://127.0.0.1:{served.port}"
    cases = st.one_of(
        operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
    )

    @given(cases, st.booleans())
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def ask(case, known):
        if case.query and str(case.query.get("live")) in {"sse", "long-poll"}:
            # A reader that waits would wait here too; it is asked for elsewhere.
            case.query["live"] = "no"
        if operation.path.endswith("/wait") and isinstance(case.body, dict):
            # So would a wait for a change.
            case.body["timeout_ms"] = 0
        if operation.path == "/v1/sessions/live":
            # It has events at its start, and would wait at its end.
            case.query = {"after": 0}
            case.headers.pop("Last-Event-ID", None)
        if operation.path == "/v1/streams/live":
            # From the start there are events, and an unknown cursor is refused at once.
            case.query = {"after": "-1" if known else "unknown"}
            case.headers.pop("Last-Event-ID", None)
        if operation.path == "/v1/sessions/live/{sid}":
            # It waits for events, too, unless it starts after all that there can be.
            case.query = {**(case.query or {}), "after": 2**40}
            case.headers.pop("Last-Event-ID", None)
        if operation.path.endswith("/watch"):
            # So would a feed; one that cannot start answers at once.
            case.query = {**(case.query or {}), "branch": "unknown"}
        if operation.path.endswith("/feed"):
            case.query = {**(case.query or {}), "until": 0}
        is_job = operation.path == "/v1/jobs" and isinstance(case.body, dict)
        if is_job and (not known or case.body.get("kind") in {"materialize", "stats"}):
            # A job in this process is short, and one on Spark takes both processors.
            case.body = {"kind": "gc"}
        if known and operation.method != "delete":
            for name in case.path_parameters or ():
                case.path_parameters[name] = known_name(operation.path, name)
        case.call_and_validate(base_url=base, checks=CHECKS, timeout=30)

    ask()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.label)
def test_any_request_gets_a_described_response(fuzzed, operation):
    fuzz(fuzzed, operation, examples=4)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.label)
def test_any_request_gets_a_described_response_for_long(fuzzed, operation):
    fuzz(fuzzed, operation, examples=examples(120))
    assert fuzzed.ask("GET", "/health").status == 200


def test_life_of_a_stream_is_as_described(served):
    """Responses that random requests do not reach."""
    base = f"http://127.0.0.1:{served.port}"
    name = uuid.uuid4().hex
    document = {"Content-Type": "application/json"}
    producer = {**document, "Producer-Id": "p", "Producer-Epoch": "0"}
    seen = set()

    def ask(method, path="/v1/stream/{name}", body=None, query=None, **headers):
        operation = SCHEMA[path][method.upper()]
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        case = operation.Case(
            path_parameters={"name": name} if "{name}" in path else {},
            headers={**document, **named} if method != "head" else named,
            query=query or {},
            **({} if body is None else {"body": body, "media_type": "application/json"}),
        )
        response = case.call_and_validate(base_url=base, checks=CHECKS, timeout=30)
        seen.add((method, response.status_code))
        return response

    ask("put")
    ask("put")
    ask("put", Stream_TTL="60")
    ask("post", body=[1, 2])
    ask("post", body=[3], **{**producer, "Producer_Seq": "0"})
    ask("post", body=[3], **{**producer, "Producer_Seq": "0"})
    ask("post", body=[3], **{**producer, "Producer_Seq": "7"})
    etag = ask("get").headers["etag"][0]
    ask("get", If_None_Match=etag)
    ask("get", query={"offset": "now", "live": "long-poll"})
    ask("get", query={"offset": "-1", "format": "records"})
    ask("head")
    ask("get", "/v1/stream/{name}/_details")
    ask("get", "/v1/streams", query={"prefix": name})
    ask("post", Stream_Closed="true")
    ask("post", body=[4])
    ask("delete")
    ask("delete")
    assert seen >= {
        *(("put", status) for status in (200, 201, 409)),
        *(("post", status) for status in (200, 204, 409)),
        *(("get", status) for status in (200, 204, 304)),
        *(("delete", status) for status in (204, 404)),
        ("head", 200),
    }


def test_rules_of_a_stream_are_as_described(served):
    """Responses that random requests do not reach: two versions, a template, a touch."""
    base = f"http://127.0.0.1:{served.port}"
    name = uuid.uuid4().hex

    def ask(method, suffix, body=None):
        operation = SCHEMA[f"/v1/stream/{{name}}{suffix}"][method]
        given = {} if body is None else {"body": body, "media_type": "application/json"}
        case = operation.Case(path_parameters={"name": name}, **given)
        return case.call_and_validate(base_url=base, checks=CHECKS, timeout=30)

    sent_headers = {"content-type": "application/json"}
    assert served.ask("PUT", f"/v1/stream/{name}", None, sent_headers).status == 201
    full = {
        "schema": {"type": "object"},
        "routingKey": {"jsonPointer": "/key"},
        "search": {"fields": ["type"]},
    }
    assert ask("POST", "/_schema", full).status_code == 200
    second = {"schema": True, "lens": {"ops": []}}
    assert ask("POST", "/_schema", second).json()["currentVersion"] == 2
    assert ask("POST", "/_schema", {"schema": False, "lens": []}).status_code == 400
    assert ask("GET", "/_schema").json()["lenses"] == {"1": {"ops": []}}
    for profile in ({"kind": "evlog"}, {"kind": "state-protocol", "touch": {"enabled": True}}):
        assert ask("POST", "/_profile", profile).status_code == 200
        assert ask("GET", "/_profile").json()["kind"] == profile["kind"]
    expected = {"templates": [{"entity": "todo", "fields": {"list": "string"}}]}
    (template,) = ask("POST", "/_touch/templates", expected).json()["templates"]
    where = ask("GET", "/_touch").json()
    assert where["templates"] == [template]
    change = {"type": "todo", "key": "7", "value": {}, "headers": {"operation": "insert"}}
    served.ask("POST", f"/v1/stream/{name}", json.dumps(change).encode(), sent_headers)
    keys = [{"entity": "todo"}, {"template": template["id"], "values": {"list": None}}]
    result = ask("POST", "/_touch/wait", {"cursor": where["cursor"], "keys": keys, "timeout_ms": 0})
    assert result.json()["keys"] == [0, 1]
    assert ask("GET", "/_details").json()["schema_version"] == 2


def test_a_range_of_a_document_is_a_described_response(fuzzed):
    operation = SCHEMA["/v1/sessions/payloads/{hash}"]["GET"]
    case = operation.Case(path_parameters={"hash": PAYLOAD}, headers={"Range": "bytes=-1"})
    response = case.call_and_validate(
        base_url=f"http://127.0.0.1:{fuzzed.port}", checks=CHECKS, timeout=30
    )
    assert (response.status_code, response.content) == (206, b"}")


@pytest.mark.parametrize("path", ["/v1/sessions/live", "/v1/sessions/live/{sid}"])
def test_first_event_of_a_feed_is_a_described_response(fuzzed, path):
    parameters = {"sid": NAMES["sid"]} if "{sid}" in path else {}
    case = SCHEMA[path]["GET"].Case(path_parameters=parameters, query={"after": 0})
    response = case.call_and_validate(
        base_url=f"http://127.0.0.1:{fuzzed.port}", checks=CHECKS, timeout=30
    )
    assert b"event: event" in response.content
