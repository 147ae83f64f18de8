"""Problem documents: the same errors as by default, for clients that accept them."""

from __future__ import annotations

import json

import msgspec
import pytest
from both_fronts import JSON, Front, append, request

from fourfold import errors
from fourfold.server.errors import status_of
from fourfold.wire.errors import ErrorBody, Problem, ProblemKind

ACCEPT = "text/html, application/problem+json;q=0.9"


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path_factory):
    made = Front(tmp_path_factory.mktemp("problems") / "store", fast=request.param)
    made.streams.create("s", JSON)
    made.streams.create("closed", JSON, closed=True)
    yield made
    made.stop()


REQUESTS = [
    request("GET", "unknown"),
    request("GET", "s?limit=0"),
    append("unknown"),
    append("s", b"{"),
    append("s", kind="text/plain"),
    append("closed"),
    request("GET", "__ds/subscriptions/unknown"),
    request("PUT", "__ds/subscriptions/a", b"{}"),
    request("GET", "%FF"),
]


@pytest.mark.parametrize("sent", REQUESTS)
def test_problem_document_has_what_the_error_has(front, sent):
    # Twice each: remembered heads change nothing.
    for _ in range(2):
        [(status, headers, body)] = front.ask(sent)
        assert dict(headers)["content-type"] == JSON
        error = msgspec.json.decode(body, type=ErrorBody).error
        accepting = sent.replace(b"Host: x", f"Host: x\r\nAccept: {ACCEPT}".encode())
        [(problem_status, problem_headers, problem_body)] = front.ask(accepting)
        assert dict(problem_headers)["content-type"] == "application/problem+json"
        problem = msgspec.json.decode(problem_body, type=Problem)
        assert problem_status == status == problem.status
        assert problem.type == f"/problems/{error.kind}"
        assert (problem.kind, problem.detail, problem.hint, problem.retryable, problem.code) == (
            *(error.kind, error.message, error.hint, error.retryable),
            error.code,
        )
        assert problem.details == (error.details or {})
        changing = {"content-type", "content-length", "date"}
        assert [item for item in headers if item[0] not in changing] == [
            item for item in problem_headers if item[0] not in changing
        ]


def test_every_kind_has_a_page(front):
    for cls in errors.tree():
        sent = f"GET /problems/{cls.kind} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        [(status, _, body)] = front.ask(sent)
        assert status == 200, cls
        kind = msgspec.json.decode(body, type=ProblemKind)
        assert (kind.kind, kind.retryable, kind.status) == (
            cls.kind,
            cls.retryable,
            status_of(cls),
        )
        assert kind.title
    [(status, _, body)] = front.ask(b"GET /problems/unknown HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, json.loads(body)["error"]["kind"]) == (404, "not_found")
