"""Health and metrics: states with their numbers, and no row data in either."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import apsw
import ledger
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fourfold import limits
from fourfold.errors import LockTimeout, StorageError
from fourfold.kernel import Options, Thresholds, prometheus_text
from fourfold.kernel.health import assess
from fourfold.kernel.metrics import BUSY_WINDOW_S, LATENCY_BUCKETS_MS

MIB = 1024 * 1024
GIB = 1024 * MIB


def test_thresholds_are_the_documented_numbers():
    assert Thresholds() == Thresholds(
        wal_degraded_bytes=64 * MIB,
        wal_failed_bytes=256 * MIB,
        busy_degraded_count=3,
        disk_degraded_bytes=1 * GIB,
        disk_failed_bytes=64 * MIB,
    )
    assert BUSY_WINDOW_S == 60
    assert limits.SLOW_TRANSACTION_MS == 250


def judged(tmp_path, monkeypatch, *, free=100 * GIB, **numbers):
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free))
    settings = {
        "wal_size_bytes": 0,
        "busy_count": 0,
        "failure": None,
        "integrity_errors": 0,
        "thresholds": Thresholds(),
        **numbers,
    }
    return assess(tmp_path, **settings)


@pytest.mark.parametrize(
    ("numbers", "state", "name"),
    [
        ({}, "ok", None),
        ({"wal_size_bytes": 64 * MIB - 1}, "ok", None),
        ({"wal_size_bytes": 64 * MIB}, "degraded", "wal_size_bytes"),
        ({"wal_size_bytes": 256 * MIB - 1}, "degraded", "wal_size_bytes"),
        ({"wal_size_bytes": 256 * MIB}, "failed", "wal_size_bytes"),
        ({"busy_count": 2}, "ok", None),
        ({"busy_count": 3}, "degraded", "busy_count"),
        ({"busy_count": 1_000}, "degraded", "busy_count"),
        ({"free": 1 * GIB}, "ok", None),
        ({"free": 1 * GIB - 1}, "degraded", "disk_free_bytes"),
        ({"free": 64 * MIB}, "degraded", "disk_free_bytes"),
        ({"free": 64 * MIB - 1}, "failed", "disk_free_bytes"),
        ({"integrity_errors": 1}, "failed", "integrity_errors"),
        ({"failure": StorageError("broken")}, "failed", "writer_failed"),
    ],
)
def test_each_threshold_changes_the_state_at_its_number(
    tmp_path, monkeypatch, numbers, state, name
):
    health = judged(tmp_path, monkeypatch, **numbers)
    assert health.state == state
    assert health.ready == (state != "failed")
    assert health.error is numbers.get("failure")
    found = {finding.name: finding for finding in health.findings}
    assert set(found) == {
        "wal_size_bytes",
        "busy_count",
        "disk_free_bytes",
        "integrity_errors",
        "writer_failed",
    }
    for finding in found.values():
        assert finding.state == (state if finding.name == name else "ok")
        assert bool(finding.hint) == (finding.name == name)


@pytest.mark.parametrize(
    ("numbers", "kind", "message"),
    [
        ({"wal_size_bytes": 256 * MIB}, "storage", "wal_size_bytes is 2.68435e+08"),
        ({"free": 1}, "disk_full", "disk_free_bytes is 1, fails at"),
        ({"integrity_errors": 2}, "corrupt_data", "integrity_errors is 2, fails at 1"),
        ({"failure": StorageError("broken"), "free": 1}, "storage", "broken"),
    ],
)
def test_failed_health_has_a_reason(tmp_path, monkeypatch, numbers, kind, message):
    reason = judged(tmp_path, monkeypatch, **numbers).reason()
    assert reason.kind == kind
    assert message in reason.message
    assert reason.hint


def test_ready_database_has_no_reason(tmp_path, monkeypatch):
    assert judged(tmp_path, monkeypatch, wal_size_bytes=64 * MIB).reason() is None


def test_worst_finding_decides(tmp_path, monkeypatch):
    health = judged(tmp_path, monkeypatch, wal_size_bytes=64 * MIB, free=1)
    assert health.state == "failed"


def test_database_that_works_is_ready(path):
    # Whatever the disk of this machine has left.
    options = Options(thresholds=Thresholds(disk_degraded_bytes=0, disk_failed_bytes=0))
    with ledger.open_ledger(path, options=options) as db:
        db.transact(ledger.put("x"))
        assert db.health().state == "ok"
        assert db.health().ready


def test_health_reports_log_that_cannot_be_checkpointed(path):
    options = Options(
        thresholds=Thresholds(
            wal_degraded_bytes=100_000,
            wal_failed_bytes=300_000,
            disk_degraded_bytes=0,
            disk_failed_bytes=0,
        )
    )
    with ledger.open_ledger(path, options=options) as db:
        db.transact(ledger.put("x"))
        with db.read():
            while db.metrics().wal_size_bytes < 100_000:
                db.transact(ledger.put(b"x" * 20_000))
            assert db.health().state == "degraded"
            while db.metrics().wal_size_bytes < 300_000:
                db.transact(ledger.put(b"x" * 20_000))
            assert db.health().state == "failed"
        db.checkpoint("TRUNCATE")
        assert db.health().state == "ok"


@pytest.mark.parametrize("count", [3, 5])
def test_health_reports_lock_timeouts(path, count):
    thresholds = Thresholds(busy_degraded_count=count, disk_degraded_bytes=0, disk_failed_bytes=0)
    profile = ledger.QUICK.with_(busy_timeout_ms=1)
    with ledger.open_ledger(path, profile=profile, options=Options(thresholds=thresholds)) as db:
        stranger = apsw.Connection(str(path))
        stranger.execute("BEGIN IMMEDIATE")
        for n in range(1, count + 1):
            with pytest.raises(LockTimeout):
                db.transact(ledger.put("x"))
            assert db.health().state == ("degraded" if n >= count else "ok")
        stranger.close()
        db.transact(ledger.put("x"))
        # It is still worth a look a moment later.
        assert db.health().state == "degraded"
        assert db.health().ready


def test_metrics_have_the_names_and_numbers_that_dashboards_need(path):
    with ledger.open_ledger(path) as db:
        for n in range(10):
            db.transact(ledger.put(n))
        with db.read(), db.read():
            reading = db.metrics()
        assert reading.database == "ledger.db"
        assert reading.db_size_bytes > 0
        assert reading.wal_size_bytes > 0
        assert reading.open_connections == 1
        assert reading.open_readers == 3
        assert reading.pending_checkpoint > 0
        assert reading.sequences == {"entry": 10}
        assert reading.counters["transactions"] == 10
        assert reading.counters["requests"] == 10
        assert 0 < reading.txn_latency_ms["p50"] <= reading.txn_latency_ms["p99"]
        assert sum(reading.latency_buckets) == 10
        assert len(reading.latency_buckets) == len(LATENCY_BUCKETS_MS) + 1
        with ledger.open_ledger(path, mode="r") as reader:
            assert reader.metrics().open_connections == 0
            assert reader.metrics().txn_latency_ms == {"p50": None, "p99": None}


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_text_parses_and_equals_metrics(path):
    other_path = path.with_name('other "odd" name\\.db')
    with ledger.open_ledger(path) as db, ledger.open_ledger(other_path) as other:
        for n in range(10):
            db.transact(ledger.put(n))
        reading = db.metrics()
        found = samples(prometheus_text([reading, other.metrics()]))
        mine = ("database", "ledger.db")
        for name in ("db_size_bytes", "wal_size_bytes", "open_connections", "open_readers"):
            assert found[f"fourfold_{name}", mine] == getattr(reading, name)
        for name in ("pending_checkpoint", "queued_requests", "queued_bytes"):
            assert found[f"fourfold_{name}", mine] == getattr(reading, name)
        for name, value in reading.counters.items():
            assert found[f"fourfold_{name.removesuffix('_total')}_total", mine] == value
        assert found["fourfold_sequence", mine, ("sequence", "entry")] == 10
        assert ("fourfold_sequence", ("database", other_path.name), ("sequence", "entry")) in found
        assert found["fourfold_txn_latency_seconds_count", mine] == 10
        assert found["fourfold_txn_latency_seconds_bucket", mine, ("le", "+Inf")] == 10


def test_buckets_for_prometheus_are_cumulative(db):
    for n in range(20):
        db.transact(ledger.put(n))
    families = text_string_to_metric_families(prometheus_text([db.metrics()]))
    latency = next(each for each in families if each.name == "fourfold_txn_latency_seconds")
    buckets = [sample.value for sample in latency.samples if sample.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert len(buckets) == len(LATENCY_BUCKETS_MS) + 1


def test_neither_metrics_nor_health_ever_show_row_data(path):
    secret = "a-secret-body"
    with ledger.open_ledger(path) as db:
        db.transact(ledger.put(secret))
        with pytest.raises(ZeroDivisionError):
            db.transact(lambda txn: [ledger.put(secret)(txn), 1 / 0])
        shown = prometheus_text([db.metrics()]) + repr(db.metrics()) + repr(db.health()) + repr(db)
        assert "entry" in shown
        assert secret not in shown
        assert "INSERT" not in shown


def test_prometheus_text_is_valid_without_databases():
    assert samples(prometheus_text([])) == {}
