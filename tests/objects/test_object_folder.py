"""What only the local folder promises: readable files, durable versions, tidy temp files."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import time
from typing import TYPE_CHECKING

import pytest

from fourfold.errors import (
    DiskFull,
    InvalidConfig,
    InvalidInput,
    LockTimeout,
    NotFound,
    PreconditionFailed,
    ReadOnly,
    StorageError,
)
from fourfold.objects import FolderStore
from fourfold.objects.folder import FolderLocks, storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FolderStore]:
    with FolderStore(tmp_path / "objects") as opened:
        yield opened


def test_file_holds_bytes_of_its_object_and_nothing_else(store: FolderStore) -> None:
    store.put("streams/ab12/0001.parquet", b"PAR1")
    path = store.root / "streams+" / "ab12+" / "0001.parquet"
    assert path.read_bytes() == b"PAR1"
    assert store.path("streams/ab12/0001.parquet") == path


def test_log_of_delta_table_is_in_folder_of_its_name(store: FolderStore) -> None:
    store.put("tables/a/_delta_log/0.json", b"{}")
    store.put("tables/a/_delta_log", b"a file")
    assert (store.root / "tables+" / "a+" / "_delta_log" / "0.json").read_bytes() == b"{}"
    keys = [info.key for info in store.list("tables/")]
    assert keys == ["tables/a/_delta_log", "tables/a/_delta_log/0.json"]


def test_files_and_folders_are_private(store: FolderStore) -> None:
    previous = os.umask(0)
    try:
        store.put("a/b/c", b"x")
        store.upload("a/d", [b"x"], if_absent=True)
    finally:
        os.umask(previous)
    for path in [store.root, *store.root.rglob("*")]:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_versions_outlive_the_process_and_never_return(store: FolderStore) -> None:
    first = store.put("k", b"A")
    with FolderStore(store.root) as other:
        assert other.head("k") == first
        second = other.put("k", b"B", if_version=first.version)
        third = other.put("k", b"A", if_version=second.version)
    assert len({first.version, second.version, third.version}) == 3
    with pytest.raises(PreconditionFailed):
        store.put("k", b"C", if_version=first.version)


def test_versions_grow_although_the_clock_stands_or_steps_back(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [store.put("k", b"A").version]
    for now in (2**60, 2**60, 1_000, 1_000):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        versions.append(store.put("k", b"A").version)
        store.delete("k")
        versions.append(store.put("k", b"A").version)
    assert len(set(versions)) == len(versions)


def test_a_lost_lock_file_does_not_repeat_a_version(store: FolderStore) -> None:
    far = time.time_ns() + 3_600 * 10**9
    store.put("k", b"A")
    os.utime(store.path("k"), ns=(far, far))
    ahead = store.get("k").info
    for lock in (store.root / ".fourfold" / "locks").iterdir():
        lock.unlink()
    after = store.put("k", b"A", if_version=ahead.version)
    assert after.version != ahead.version
    assert after.modified > ahead.modified


def test_known_folder_is_not_synced_with_each_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def note_fsync(fd: int) -> None:
        fsync(fd)
        synced.append(os.fstat(fd).st_ino)

    with FolderStore(tmp_path) as store:
        store.put("a/b/one", b"x")
        monkeypatch.setattr(os, "fsync", note_fsync)
        store.put("a/c/two", b"x")
        above = store.path("a/c/two").parent.parent
        assert synced.count(above.stat().st_ino) == 1
        assert tmp_path.stat().st_ino not in synced


def test_removed_folders_are_created_again_for_a_new_object(
    tmp_path: Path,
) -> None:
    with FolderStore(tmp_path) as store:
        store.put("a/b/one", b"x")
        shutil.rmtree(store.path("a/b/one").parent.parent)
        store.put("a/c/two", b"y")
        assert [info.key for info in store.list()] == ["a/c/two"]


@pytest.mark.parametrize("if_absent", [False, True])
def test_bytes_reach_disk_before_their_name_and_name_before_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, if_absent: bool
) -> None:
    events: list[tuple[str, int]] = []
    fsync, link, rename, mkdir = os.fsync, os.link, type(tmp_path).rename, type(tmp_path).mkdir

    def note_fsync(fd: int) -> None:
        fsync(fd)
        events.append(("fsync", os.fstat(fd).st_ino))

    def note_link(source: Path, target: Path) -> None:
        events.append(("move", source.stat().st_ino))
        link(source, target)

    def note_rename(source: Path, target: Path) -> None:
        events.append(("move", source.stat().st_ino))
        rename(source, target)

    def note_mkdir(path: Path, mode: int) -> None:
        mkdir(path, mode)
        events.append(("mkdir", path.parent.stat().st_ino))

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", note_link)
    monkeypatch.setattr(type(tmp_path), "rename", note_rename)
    monkeypatch.setattr(type(tmp_path), "mkdir", note_mkdir)
    with FolderStore(tmp_path / "new" / "root") as store:
        store.put("a/b/c", b"x", if_absent=if_absent)
        path = store.path("a/b/c")
    file = path.stat().st_ino
    assert events.index(("fsync", file)) < events.index(("move", file))
    assert ("fsync", path.parent.stat().st_ino) in events[events.index(("move", file)) :]
    for at, (event, above) in enumerate(events):
        assert event != "mkdir" or ("fsync", above) in events[at:]
    assert sum(event == "mkdir" for event, _ in events) == 7


def test_a_file_edited_by_hand_has_another_version(store: FolderStore) -> None:
    info = store.put("k", b"before")
    store.path("k").write_bytes(b"edited")
    with pytest.raises(PreconditionFailed):
        store.put("k", b"after", if_version=info.version)
    assert store.get("k").data == b"edited"


def test_files_of_other_programs_are_not_objects(store: FolderStore) -> None:
    store.put("mine", b"x")
    for name in (".DS_Store", "UPPER", "sp ace", "%41%", "%zz", "%61", "~", "ü", "%00", "%5c", "%"):
        (store.root / name).write_bytes(b"foreign")
    for name in ("folder", "+", "short%", "UP+", ".git"):
        (store.root / name).mkdir()
        (store.root / name / "file").write_bytes(b"foreign")
    (store.root / "link").symlink_to(store.path("mine"))
    os.mkfifo(store.root / "pipe")
    assert [info.key for info in store.list()] == ["mine"]
    for key in ("link", "pipe"):
        assert store.head(key) is None
        with pytest.raises(NotFound):
            store.get(key)


def test_a_sweep_takes_old_temp_files_of_dead_writers_only(store: FolderStore) -> None:
    assert store.sweep() == 0
    store.put("k", b"x")
    dead = store.temp_folder / "dead"
    dead.write_bytes(b"half")
    assert store.sweep() == 0
    hours_ago = time.time() - 7_200
    os.utime(dead, (hours_ago, hours_ago))

    def chunks() -> Iterator[bytes]:
        yield b"a"
        alive = next(path for path in store.temp_folder.iterdir() if path != dead)
        os.utime(alive, (hours_ago, hours_ago))
        assert store.sweep() == 1
        assert store.sweep(older_than_s=0) == 0
        yield b"b"

    store.upload("k", chunks())
    assert store.get("k").data == b"ab"
    assert list(store.temp_folder.iterdir()) == []
    for age in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput):
            store.sweep(older_than_s=age)


def test_a_folder_that_vanished_is_made_again(store: FolderStore) -> None:
    store.put("a/b/c", b"x")
    store.delete("a/b/c")
    (store.root / "a+" / "b+").rmdir()
    store.put("a/b/c", b"y", if_absent=True)
    assert store.get("a/b/c").data == b"y"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidConfig, match="file"):
        FolderStore(tmp_path / "file")


def test_opening_and_reading_leave_no_trace(tmp_path: Path) -> None:
    with FolderStore(tmp_path) as store:
        assert list(store.list()) == []
        assert store.head("k") is None
        assert store.delete("k") is False
    assert list(tmp_path.iterdir()) == []


def test_lock_that_is_never_released_is_error_with_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fourfold.objects.folder.OBJECT_LOCK_WAIT_S", 0.05)
    locks, others = FolderLocks(tmp_path), FolderLocks(tmp_path)
    with locks.hold("k"):
        with pytest.raises(LockTimeout, match=str(tmp_path)), others.hold("k"):
            pass
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                with locks.hold("k"):
                    pass
            except LockTimeout as exc:
                failures.append(exc)

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        assert len(failures) == 1
    with others.hold("k"):
        pass


@pytest.mark.parametrize(
    ("number", "writing", "expected"),
    [
        (errno.ENOSPC, True, DiskFull),
        (errno.EDQUOT, True, DiskFull),
        (errno.EROFS, True, ReadOnly),
        (errno.EACCES, True, ReadOnly),
        (errno.EACCES, False, StorageError),
        (errno.EIO, True, StorageError),
        (errno.ENAMETOOLONG, True, StorageError),
    ],
)
def test_every_failure_of_the_disk_is_named(
    number: int, expected: type[Exception], *, writing: bool
) -> None:
    with pytest.raises(expected) as caught, storage_errors("write object 'k'", writing=writing):
        raise OSError(number, os.strerror(number))
    assert type(caught.value) is expected
    assert "object 'k'" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_can_be_read(store: FolderStore) -> None:
    store.put("k", b"x")
    for path in sorted(store.root.rglob("*"), reverse=True):
        if path.is_dir():
            path.chmod(0o500)
    store.root.chmod(0o500)
    try:
        with FolderStore(store.root) as reader:
            assert reader.get("k").data == b"x"
            assert [info.key for info in reader.list()] == ["k"]
            with pytest.raises(ReadOnly):
                reader.put("new", b"y")
            with pytest.raises(ReadOnly):
                reader.delete("k")
    finally:
        store.root.chmod(0o700)
        for path in sorted(store.root.rglob("*")):
            if path.is_dir():
                path.chmod(0o700)


def test_a_write_that_the_disk_refuses_leaves_the_old_object(store: FolderStore) -> None:
    store.put("k", b"old")
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StorageError, match="'k'"):
            store.put("k", b"x" * 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert store.get("k").data == b"old"
    assert list(store.temp_folder.iterdir()) == []
