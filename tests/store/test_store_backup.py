"""Backup, restore and verification of a whole store."""

from __future__ import annotations

import json
import shutil
import threading

import pytest

import fourfold
from fourfold import errors
from fourfold import store as stores
from fourfold.kernel import read_cut
from fourfold.kernel.read_cut import ReadCut


@pytest.fixture
def filled(root, open_log):
    """A store with two databases and some objects."""
    with fourfold.open(root) as store:
        for name in ("one", "two"):
            log = open_log(store, name)
            for text in "abc":
                log.add(f"{name}-{text}")
        store.objects.put("some/object", b"payload")
    return root


def contents(root, open_log):
    with fourfold.open(root) as store:
        return {name: open_log(store, name).entries() for name in ("one", "two")}


def test_a_restored_store_equals_the_one_that_was_backed_up(filled, open_log, tmp_path):
    before = contents(filled, open_log)
    with fourfold.open(filled) as store:
        report = store.backup(tmp_path / "copy")
    assert (report.databases, report.files >= 2) == (2, True)
    fourfold.restore(tmp_path / "copy", tmp_path / "again")
    assert contents(tmp_path / "again", open_log) == before
    with fourfold.open(tmp_path / "again") as store:
        assert store.objects.get("some/object").data == b"payload"
        assert open_log(store, "one").add("d") == 4


def test_backup_taken_during_writes_is_one_state_of_each_database(root, open_log, tmp_path):
    stop = threading.Event()
    with fourfold.open(root) as store:
        log = open_log(store)
        log.add("first")

        def write() -> None:
            while not stop.is_set():
                log.add("x")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for turn in range(3):
                store.backup(tmp_path / f"copy{turn}")
        finally:
            stop.set()
            writer.join()
    for turn in range(3):
        stores.verify_backup(tmp_path / f"copy{turn}").raise_if_bad()
        fourfold.restore(tmp_path / f"copy{turn}", tmp_path / f"again{turn}")
        with fourfold.open(tmp_path / f"again{turn}") as store:
            numbers = [number for number, _ in open_log(store).entries()]
            assert numbers == list(range(1, len(numbers) + 1))


def test_backup_of_a_point_excludes_concurrent_writes(filled, open_log, tmp_path):
    with fourfold.open(filled) as store:
        two = open_log(store, "two")

        def write_between(_name, _number, _total):
            two.add("later")

        apart = store.backup(tmp_path / "apart", write_between)
        point = store.backup(tmp_path / "point", write_between, one_point=True)
        expected = [text for _, text in two.entries()][: -point.databases - point.files]
    assert (apart.at, point.at != "") == ("", True)
    assert stores.backup.read_manifest(tmp_path / "point").at == point.at
    fourfold.restore(tmp_path / "point", tmp_path / "again")
    copied = [text for _, text in contents(tmp_path / "again", open_log)["two"]]
    assert copied == expected


def test_backup_of_a_point_preserves_order_across_databases(
    filled, open_log, tmp_path, monkeypatch
):
    read, writes = ReadCut._read, iter([True] * (1 + read_cut.UNLOCKED_PASSES))
    with fourfold.open(filled) as store:
        one, two = open_log(store, "one"), open_log(store, "two")

        def read_and_write(self, path, connection):
            changed = read(self, path, connection)
            if path.name == "one.sqlite" and next(writes, False):
                one.add("x")
                two.add("x")
            return changed

        monkeypatch.setattr(ReadCut, "_read", read_and_write)
        store.backup(tmp_path / "copy", one_point=True)
    fourfold.restore(tmp_path / "copy", tmp_path / "again")
    copied = contents(tmp_path / "again", open_log)
    assert len(copied["one"]) == len(copied["two"])
    assert next(writes, None) is None


def test_backup_of_one_point_is_refused_while_a_transaction_lasts(
    filled, open_log, tmp_path, monkeypatch
):
    written = filled / "databases" / "one.sqlite"
    passes = ReadCut._read_all
    monkeypatch.setattr(ReadCut, "_read_all", lambda self: passes(self) | {written})
    monkeypatch.setattr(read_cut, "LOCK_ROUNDS_MAX", 3)
    monkeypatch.setattr(read_cut, "LOCK_WAIT_MS", 1)
    with fourfold.open(filled) as store:
        one = open_log(store, "one")
        with one.database.write(), pytest.raises(errors.LockTimeout, match="transactions of writ"):
            store.backup(tmp_path / "copy", one_point=True)
    assert not (tmp_path / "copy").exists()


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("victim", ["databases/one.sqlite", "fourfold.toml"])
def test_a_flipped_bit_anywhere_is_found_and_stops_the_restore(filled, tmp_path, victim):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
    damage(tmp_path / "copy" / victim)
    report = stores.verify_backup(tmp_path / "copy")
    assert [check.path for check in report.checked if not check.ok] == [victim]
    with pytest.raises(errors.CorruptData):
        fourfold.restore(tmp_path / "copy", tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "victim", ["databases/two.sqlite", "databases/two.sqlite.json", "fourfold.toml"]
)
def test_a_missing_part_is_found(filled, tmp_path, victim):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
    (tmp_path / "copy" / victim).unlink()
    assert not stores.verify_backup(tmp_path / "copy").ok


def test_a_manifest_cannot_point_outside_the_backup(filled, tmp_path):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
    path = tmp_path / "copy" / "backup.json"
    manifest = json.loads(path.read_text())
    manifest["files"][0]["path"] = "../../escape"
    path.write_text(json.dumps(manifest))
    with pytest.raises(errors.CorruptData, match="outside"):
        fourfold.restore(tmp_path / "copy", tmp_path / "again")


def test_restore_that_would_go_back_in_one_database_changes_none(filled, open_log, tmp_path):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
        open_log(store, "two").add("later")
    before = contents(filled, open_log)
    names = sorted(p.name for p in (filled / "databases").iterdir())
    with pytest.raises(errors.SequenceRegression):
        fourfold.restore(tmp_path / "copy", filled)
    assert contents(filled, open_log) == before
    assert sorted(p.name for p in (filled / "databases").iterdir()) == names


def test_advance_restores_the_data_and_goes_on_above(filled, open_log, tmp_path):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
        assert open_log(store, "two").add("later") == 4
    fourfold.restore(tmp_path / "copy", filled, advance=True)
    with fourfold.open(filled) as store:
        log = open_log(store, "two")
        assert len(log.entries()) == 3
        assert log.add("new") == 5


def test_a_restore_over_a_store_in_use_is_refused(filled, open_log, tmp_path):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
        open_log(store, "one")
        with pytest.raises(errors.WriterLocked):
            fourfold.restore(tmp_path / "copy", filled)


def test_a_backup_never_overwrites_and_never_lands_inside_the_store(filled, tmp_path):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
        with pytest.raises(errors.AlreadyExists):
            store.backup(tmp_path / "copy")
        with pytest.raises(errors.InvalidInput):
            store.backup(filled / "copy")


def test_a_failed_backup_leaves_nothing_that_looks_like_one(filled, tmp_path):
    database = filled / "databases" / "one.sqlite"
    data = bytearray(database.read_bytes())
    data[4096 * 3 : 4096 * 3 + 64] = b"\xff" * 64
    database.write_bytes(data)
    with fourfold.open(filled) as store, pytest.raises(errors.CorruptData):
        store.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*.partial"))


def test_verify_finds_a_damaged_database_and_a_damaged_blob(filled):
    blob = filled / "sessions" / "blobs" / "aa" / ("aa" * 32 + ".blob")
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"not what its name says")
    database = filled / "databases" / "one.sqlite"
    data = bytearray(database.read_bytes())
    data[4096 * 3 : 4096 * 3 + 64] = b"\xff" * 64
    database.write_bytes(data)
    with fourfold.open(filled) as store:
        report = store.verify()
    bad = {check.path: check.what for check in report.checked if not check.ok}
    assert bad == {
        "databases/one.sqlite": "database",
        str(blob.relative_to(filled)): "blob",
    }


def test_a_damaged_store_comes_back_from_its_backup(filled, open_log, tmp_path):
    before = contents(filled, open_log)
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
    database = filled / "databases" / "one.sqlite"
    database.write_bytes(database.read_bytes()[:5000])
    with pytest.raises(errors.CorruptData, match="cannot be read"):
        fourfold.restore(tmp_path / "copy", filled)
    fourfold.restore(tmp_path / "copy", filled, replace_unreadable=True)
    assert contents(filled, open_log) == before


def test_a_restore_cut_short_can_be_done_again(filled, open_log, tmp_path):
    with fourfold.open(filled) as store:
        store.backup(tmp_path / "copy")
    leftover = tmp_path / ".again.restoring"
    shutil.copytree(tmp_path / "copy", leftover)
    fourfold.restore(tmp_path / "copy", tmp_path / "again")
    assert not leftover.exists()
    assert contents(tmp_path / "again", open_log) == contents(filled, open_log)


def test_incarnation_numbers_of_streams_are_not_reused_after_a_restore(root, tmp_path):
    """A reader of a stream that the backup does not have must not go on in the next one."""
    with fourfold.open(root) as store:
        store.streams.create("old", "text/plain").append([b"1"])
        store.backup(tmp_path / "copy")
        store.streams.delete("old")
        at = {}
        for name in ("old", "new"):
            at[name] = store.streams.create(name, "text/plain").append([b"lost"]).offset
    fourfold.restore(tmp_path / "copy", tmp_path / "again")
    with fourfold.open(tmp_path / "again") as store:
        assert store.streams.open("old").read(1).records == ()
        store.streams.delete("old")
        for name in ("old", "new"):
            stream = store.streams.create(name, "text/plain")
            stream.append([b"found"])
            with pytest.raises(errors.StreamRecreated):
                stream.read(at[name])
        assert store.verify().ok
