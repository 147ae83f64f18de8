"""The checkpointer passes LangGraph's conformance suite completely."""

from __future__ import annotations

import asyncio

import pytest
from served_streams import Served

import fourfold
from fourfold.models.sessions import Sessions

adapter = pytest.importorskip(
    "fourfold.adapters.langgraph.saver", reason="LangGraph is not installed", exc_type=ImportError
)
conformance = pytest.importorskip(
    "langgraph.checkpoint.conformance", reason="langgraph-checkpoint-conformance is not installed"
)
TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


def report_of(factory):
    registered = conformance.checkpointer_test(name="Fourfold")(factory)
    return asyncio.run(conformance.validate(registered))


def check(report):
    for name, result in report.results.items():
        assert result.failures == [], name
    assert {name: result.tests_passed for name, result in report.results.items()} == TESTS
    assert sum(TESTS.values()) == 81
    assert report.passed_all()


def test_conformance_suite_passes_on_a_store(tmp_path):
    number = iter(range(100))

    async def saver():
        with fourfold.open(tmp_path / str(next(number))) as store:
            yield adapter.FourfoldSaver(store.sessions)
            assert store.sessions.verify() == []
            assert store.sessions.verify_no_dangling_refs() == []

    check(report_of(saver))


def test_conformance_suite_passes_on_a_server(tmp_path):
    number = iter(range(100))

    async def saver():
        server = Served(tmp_path / str(next(number)))
        try:
            with fourfold.connect(f"http://127.0.0.1:{server.port}") as store:
                yield adapter.FourfoldSaver(store.sessions)
        finally:
            server.kill()

    check(report_of(saver))


def test_conformance_suite_passes_on_sessions_in_memory():
    async def saver():
        sessions = Sessions()
        yield adapter.FourfoldSaver(sessions)
        sessions.close()

    check(report_of(saver))
