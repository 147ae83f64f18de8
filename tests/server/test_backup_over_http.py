"""A publishing server publishes all databases of its store, and reports failures."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner
from served_streams import Served

import fourfold
from fourfold.cli.main import app

DID = "did:key:one"
QUICK = {"FOURFOLD_ARCHIVE_PUBLISH_S": "0.05"}
SELDOM = {"FOURFOLD_ARCHIVE_PUBLISH_S": "3600"}


@pytest.fixture
def start(tmp_path):
    started = []

    def serve(environment=QUICK, name="store"):
        objects = ("--objects", str(tmp_path / "objects"))
        started.append(Served(tmp_path / name, options=objects, environment=environment))
        return started[-1]

    yield serve
    for server in started:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture
def filled(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        write(store, 1)
        store.graphs.upsert_setting("k", "v")
        store.sessions.create_session({"id": "s"})
    return tmp_path / "store"


def write(store, number):
    store.space(DID).set("a", {"n": number})


def rebuilt(tmp_path, name="again"):
    command = ["bootstrap", str(tmp_path / name), "--objects", str(tmp_path / "objects"), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    with fourfold.open(tmp_path / name, mode="r") as store:
        return json.loads(done.stdout), store.space(DID).read("a").document


def health(server):
    return json.loads(server.ask("GET", "/health").text)


def waited(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def metrics(server):
    text = server.ask("GET", "/metrics").text.decode()
    rows = (line.split() for line in text.splitlines() if line.startswith("fourfold_published_"))
    return {name: float(value) for name, value in rows}


def test_server_publishes_every_database_of_its_store(start, filled, tmp_path):
    server = start()
    waited(lambda: health(server)["databases"]["last_point"] is not None)
    server.kill()
    report, document = rebuilt(tmp_path)
    assert {item["name"] for item in report["databases"]} == {
        f"spaces/{DID}",
        "graphs",
        "sessions",
    }
    assert document == {"n": 1}


def test_server_publishes_writes_of_other_processes(start, filled, tmp_path):
    server = start()
    with fourfold.open(filled) as store:
        # The server may be publishing it just now.
        waited(lambda: _written(store))
        waited(lambda: f"spaces/{DID}" in health(server)["databases"]["unpublished"])
        response = health(server)
        assert response["ok"]
        assert response["databases"]["unpublished"] == {f"spaces/{DID}": "writer_locked"}
        assert metrics(server)["fourfold_published_databases_failing"] == 1
    assert server.stop() == 0
    assert rebuilt(tmp_path)[1] == {"n": 2}


def _written(store):
    try:
        write(store, 2)
    except fourfold.errors.WriterLocked:
        return False
    return True


def test_stopping_server_publishes_the_tail(start, filled, tmp_path):
    server = start(SELDOM)
    server.ask("PUT", "/v1/stream/orders", b"", {"content-type": "text/plain"})
    server.ask("POST", "/v1/stream/orders", b"one", {"content-type": "text/plain"})
    assert health(server)["databases"]["last_point"] is None
    assert server.stop() == 0
    report, document = rebuilt(tmp_path)
    assert document == {"n": 1}
    assert (report["streams"], report["records"], report["lost"]) == (1, 1, [])


def test_stopping_server_reports_what_is_unpublished(start, filled, tmp_path):
    server = start(SELDOM)
    with fourfold.open(filled) as store:
        write(store, 2)
        server.process.terminate()
        message = server.process.communicate(timeout=60)[0].decode()
    assert f"spaces/{DID} is not published" in message
    assert "writer_locked" in message
    assert "graphs is not published" not in message


def test_metrics_report_publication_progress(start, filled):
    server = start()
    waited(lambda: metrics(server)["fourfold_published_publications_total"] == 3)
    result = metrics(server)
    assert result["fourfold_published_databases"] == 3
    assert result["fourfold_published_databases_failing"] == 0
    assert result["fourfold_published_bytes_total"] > 1000
    assert result["fourfold_published_last_round_seconds"] > 1e9


def test_server_that_publishes_no_databases_opens_none(start, filled):
    server = start({"FOURFOLD_ARCHIVE_PUBLISH_S": "0"})
    with fourfold.open(filled) as store:
        write(store, 2)
    assert health(server)["databases"]["last_point"] is None
    assert server.stop() == 0
    assert not (filled.parent / "objects" / "manifests+").exists()
