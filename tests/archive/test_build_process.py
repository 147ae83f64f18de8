"""Files of the archive that a process of their own builds."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from build_steps import fail, kill, process_id, read_all, wait_forever
from test_companions import LOGS, POLICY, publish, rows, verify

from fourfold.archive.build_process import BuildProcess
from fourfold.archive.child_process import ChildStopped
from fourfold.archive.segment_reader import SegmentRequest
from fourfold.errors import CorruptData, FourfoldError, StorageError
from fourfold.models.streams.archive import archiver
from fourfold.models.streams.archive.maintenance import MaintenanceTurn
from support import naive_search as naive


@pytest.fixture
def logs(make):
    node = make(policy=POLICY)
    stream = node.streams.create("logs", "application/json")
    stream.set_schema(search=naive.DECLARATION)
    stream.append(LOGS)
    publish(node)
    stream.node = node
    return stream


@pytest.fixture(autouse=True)
def _importable_steps(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.fixture
def process(logs):
    with BuildProcess(logs.node.archive.segments, lambda: False) as process:
        yield process


def requests(node):
    with node.database.read() as snapshot:
        found = snapshot.all("SELECT segment_id, size_bytes, digest FROM segments ORDER BY 1")
    return [SegmentRequest(*row) for row in found]


def test_process_is_reused_and_another_one(process):
    first = process.run(process_id)
    assert first == process.run(process_id)
    assert first != os.getpid()


def test_process_reads_segments_of_cache_and_object_store(logs, process):
    segments = logs.node.archive.segments
    request = requests(logs.node)[0]
    expected = read_all(segments, request)
    assert expected
    assert segments.cache.find(request.segment)
    assert process.run(read_all, request) == expected
    segments.cache.drop(request.segment)
    assert process.run(read_all, request) == expected


def test_damaged_copy_is_dropped_from_the_cache_of_the_node(logs, process):
    segments = logs.node.archive.segments
    request = requests(logs.node)[0]
    path = segments.cache.find(request.segment)
    path.write_bytes(b"damaged")
    with pytest.raises(CorruptData):
        process.run(read_all, request)
    assert segments.cache.find(request.segment) is None
    assert process.run(read_all, request)


def test_missing_object_is_corrupt_data(logs, process):
    segments = logs.node.archive.segments
    request = requests(logs.node)[0]
    segments.cache.drop(request.segment)
    logs.node.objects.delete(request.object_key)
    with pytest.raises(CorruptData, match="missing"):
        process.run(read_all, request)


def test_errors_of_a_build_are_raised_and_end_nothing(process):
    first = process.run(process_id)
    with pytest.raises(CorruptData, match="damaged"):
        process.run(fail, CorruptData("damaged"))
    with pytest.raises(StorageError, match="ZeroDivisionError"):
        process.run(fail, ZeroDivisionError("no"))
    assert process.run(process_id) == first


def test_killed_process_is_error_and_next_build_starts_another(process):
    first = process.run(process_id)
    with pytest.raises(StorageError, match="ended"):
        process.run(kill)
    assert process.run(process_id) != first


def test_build_is_stopped_with_its_node(logs):
    stop = threading.Event()
    with BuildProcess(logs.node.archive.segments, stop.is_set) as process:
        child = process.run(process_id)
        stop.set()
        with pytest.raises(ChildStopped):
            process.run(wait_forever)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_maintenance_in_a_process_equals_maintenance_in_the_thread(logs):
    node = logs.node
    with BuildProcess(node.archive.segments, lambda: False) as process:
        turn = MaintenanceTurn(process)
        for done in (
            node.archive.upkeep.build_companions(turn),
            node.archive.upkeep.index(turn=turn),
            node.archive.upkeep.compact(turn),
            node.archive.upkeep.build_companions(turn),
        ):
            assert not done.failures
        assert done.companions
    again = node.archive
    assert again.build_companions().companions == again.index().runs == 0
    naive.check_search(logs, "slow", None, (None, None), 3)
    assert logs.search("slow").coverage.segments_scanned == 0
    verify(node)


def test_background_builds_in_a_process(make, monkeypatch):
    monkeypatch.setattr(archiver, "ARCHIVE_UPKEEP_S", 0.01)
    node = make(policy=replace(POLICY, companions=True))
    stream = node.streams.create("logs", "application/json")
    stream.set_schema(search=naive.DECLARATION)
    stream.append(LOGS)
    publish(node)
    built = threading.Event()
    builds = []
    run = BuildProcess.run

    def watched(self, build, /, *args, **kwargs):
        try:
            result = run(self, build, *args, **kwargs)
        except FourfoldError:
            built.set()
            raise
        builds.append((self, result))
        if len(builds) == 8:
            built.set()
        return result

    monkeypatch.setattr(BuildProcess, "run", watched)
    with node.archive.running():
        assert built.wait(60)
    assert not node.archive.failures
    assert len(rows(node, "SELECT 1 FROM search_segment_companions")) >= 7
    verify(node)
