"""Jobs of a server that maintain what it has published, and what all kinds of jobs share."""

from __future__ import annotations

import threading
from typing import get_args, get_type_hints

import pytest
from both_fronts import Front
from served_graphs import server_of
from test_jobs_over_http import ended, events_of, start

import fourfold
from fourfold.errors import CorruptData
from fourfold.explorer.jobs import KINDS, MODELS
from fourfold.models.streams.archive import compaction
from fourfold.models.streams.archive.maintenance import SegmentMaintenance
from fourfold.models.streams.records import RecordFilter
from fourfold.pipeline.jobs import job_names
from fourfold.pipeline.models import model_names
from fourfold.server import jobs as jobs_module
from fourfold.store import table_maintenance
from fourfold.wire.store import JobKind, MaterializeJob, StatsJob

ELSEWHERE = {"seal", "bootstrap", "components", "lineage", "delta-log"}
"""Jobs of the pipeline that a server does not start: publish seals; bootstrap creates a store; the
others write tables of their own, by a command."""
ON_SPARK = {"materialize": MaterializeJob, "stats": StatsJob}
OPTIONS = {"load": {"upload": "notes.ndjson", "space": "did:web:loaded.example"}}
SEARCH = {"text": ["message"], "columns": ["n"], "timestamp": "time"}
SMALL = {"archive.seal_rows": 2}
SEGMENTS = 24


@pytest.fixture
def front(tmp_path):
    """A server of a store with data of all models, published several times in small segments."""
    root = tmp_path / "store"
    with fourfold.open(root, settings=SMALL) as store:
        notes = store.graphs.create("notes")
        note = notes.register_type("parent", "note")
        store.sessions.create_session({"id": "s"})
        stream = store.streams.create("orders", "application/json")
        stream.set_schema(search=SEARCH)
        for number in range(3):
            store.space("did:web:shop.example").set("note", {"n": number})
            notes.insert("parent", [{"type_id": note, "owner_identity": 1}])
            store.sessions.append_event("s", {"type": "app/note"})
            for each in range(16):
                message = {"message": f"slow {each}", "n": each, "time": 100 * each}
                stream.append(message, key=f"k{each % 2}")
            store.publish().raise_if_failed()
    front = Front(root, fast=True, store_settings=SMALL)
    yield front
    front.protocol.stop()
    front.stop()


@pytest.fixture
def server(front):
    return server_of(front)


def done(server, kind, **options):
    job = ended(server, start(server, kind, **options))
    assert job["status"] == "succeeded", job
    return job["result"]


def segments_of(front):
    return front.store.streams.details("orders").archived.segments


def test_compact_merges_files_of_tables_and_segments(server, front):
    before = {table.name: table.files for table in front.store.archive_tables()}
    assert before["documents.revision"] == 3
    assert segments_of(front) == SEGMENTS
    found = done(server, "compact")
    assert found["tables"] > 1
    assert found["compacted_files"] < found["files"]
    assert (found["segments"], found["compacted_segments"], segments_of(front)) == (SEGMENTS, 1, 1)
    after = {table.name: table.files for table in front.store.archive_tables()}
    assert after["documents.revision"] == 1
    assert front.store.verify(objects=True).ok
    assert done(server, "compact") == dict.fromkeys(found, 0)


def test_index_finds_keys_in_published_segments(server, front):
    assert done(server, "index") == {"streams": 1, "segments": SEGMENTS, "runs": 2}
    _, chunk = front.store.streams.read("orders", "-1", sought=RecordFilter(b"k1", None))
    assert [record.offset for record in chunk.records] == list(range(1, 48, 2))
    assert done(server, "index") == {"streams": 0, "segments": 0, "runs": 0}


def test_companions_are_built_for_all_segments(server, front):
    assert done(server, "companions") == {"streams": 1, "companions": SEGMENTS}
    assert done(server, "companions") == {"streams": 0, "companions": 0}
    page = front.store.streams.open("orders").search("slow", total=True)
    assert page.total.value == 48


def paused(monkeypatch, module, name):
    """Let a function wait until a job is cancelled; return when it is reached."""
    reached, cancelled = threading.Event(), threading.Event()
    original, interrupt = getattr(module, name), jobs_module._interrupt

    def pausing(*arguments, **options):
        reached.set()
        assert cancelled.wait(30)
        return original(*arguments, **options)

    def interrupting(running):
        interrupt(running)
        cancelled.set()

    monkeypatch.setattr(module, name, pausing)
    monkeypatch.setattr(jobs_module, "_interrupt", interrupting)
    return reached


@pytest.mark.parametrize(
    ("module", "name"),
    [(table_maintenance, "due_compaction"), (compaction, "due")],
    ids=["tables", "segments"],
)
def test_compact_that_is_cancelled_can_be_repeated(server, front, monkeypatch, module, name):
    reached = paused(monkeypatch, module, name)
    job = start(server, "compact")
    assert reached.wait(30)
    assert server.ask("DELETE", f"/v1/jobs/{job['id']}").value["status"] == "cancelled"
    assert ended(server, job)["status"] == "cancelled"
    assert segments_of(front) == SEGMENTS
    assert done(server, "compact")["compacted_segments"] == 1
    assert front.store.verify(objects=True).ok


def test_error_of_one_stream_fails_the_job_after_the_others(server, front, monkeypatch):
    def broken(*_arguments):
        raise CorruptData(f"{front.store.root}/x: damaged")

    monkeypatch.setattr(SegmentMaintenance, "adopt_segment", broken)
    job = ended(server, start(server, "compact"))
    assert (job["status"], job["error"]["kind"]) == ("failed", "corrupt_data"), job
    assert job["result"]["tables"] > 1
    assert str(front.store.root) not in str(job)


# All kinds


def test_every_kind_is_one_of_pipeline_or_store():
    kinds = set(get_args(JobKind))
    assert set(KINDS) == kinds
    assert kinds == {*job_names()} - ELSEWHERE | {"backup", "publish"}
    for kind, body in ON_SPARK.items():
        models = set(get_args(get_type_hints(body)["model"]))
        assert models == set(model_names(kind)) == {*MODELS[kind]}


@pytest.mark.parametrize("kind", [kind for kind in get_args(JobKind) if kind not in ON_SPARK])
def test_every_kind_has_progress_history_and_an_end(server, front, kind):
    data = b'{"id": "one", "n": 1}\n'
    assert server.ask("PUT", "/v1/uploads/notes.ndjson", data).status in {200, 201}
    job = start(server, kind, **OPTIONS.get(kind, {}))
    events = list(events_of(server, job))
    name, last = events[-1]
    assert (name, last["status"], last["started_by"]) == ("end", "succeeded", "server")
    assert last["result"]
    assert last["progress"]["done"] == last["progress"]["total"]
    assert server.ask("GET", f"/v1/jobs/{job['id']}").value == last
    listed = server.ask("GET", "/v1/jobs", query=f"kind={kind}&status=succeeded").value["items"]
    assert listed == [last]
    # One that has ended stays as it is.
    assert server.ask("DELETE", f"/v1/jobs/{job['id']}").value == last
    assert str(front.store.root.parent) not in str(last)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model"), [(kind, model) for kind in ON_SPARK for model in model_names(kind)]
)
def test_every_kind_on_spark_has_a_run_for_each_model(server, kind, model):
    job = ended(server, start(server, kind, model=model))
    assert job["status"] == "succeeded", job
    assert job["result"]["rows_in"] > 0
    assert job["progress"]["total"] == job["progress"]["done"]
    shown = server.ask("GET", f"/v1/jobs/{job['id']}").value
    assert shown["run"]["id"] == job["result"]["run"]
    runs = server.ask("GET", "/v1/pipeline/runs", query=f"job={kind}").value["items"]
    assert [(run["model"], run["state"], run["job_id"]) for run in runs] == [
        (model, "done", job["id"])
    ]
