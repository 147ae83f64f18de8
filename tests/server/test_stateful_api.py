"""Sequences of requests that the OpenAPI document links: each uses what an earlier one created."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import schemathesis
from both_fronts import Front, store_protocol
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import fourfold
from support.fuzz_cases import fuzz_examples, record_case

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ENDLESS = r"/(live|feed|watch|events|wait)(/|$)|/jobs"
"""Feeds, and jobs that would take both processors; other tests request them."""

with fourfold.open(":memory:") as store:
    DOCUMENT = json.loads(store_protocol(store).openapi_document())


def machine():
    """Return the state machine of the links of the document, each run against a new server."""
    schema = schemathesis.openapi.from_dict(DOCUMENT).exclude(path_regex=ENDLESS)

    class Machine(schema.as_state_machine()):
        def setup(self):
            self.folder = TemporaryDirectory()
            self.front = Front(Path(self.folder.name) / "store", fast=True)

        def teardown(self):
            try:
                with self.front.connect() as connection:
                    connection.send(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert connection.answer()[0] == 200
            finally:
                self.front.stop()
                self.folder.cleanup()

        def before_call(self, case):
            if case.query and case.query.get("live"):
                case.query["live"] = "no"

        def get_call_kwargs(self, case):
            return {"timeout": 30, "base_url": f"http://127.0.0.1:{self.front.port}"}

        def validate_response(self, response, case, **options):
            case.validate_response(response, checks=CHECKS)
            record_case("sequences of requests", str(response.status_code))

    return Machine


def test_sequences_of_linked_requests_get_described_responses():
    tested = machine()
    assert len([name for name in vars(tested.__base__) if "___20" in name]) > 50
    tested.run(
        settings=settings(
            max_examples=fuzz_examples(15),
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
    )
