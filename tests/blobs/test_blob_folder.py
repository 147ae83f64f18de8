"""The folder of blobs: what lies on the disk, who may read it, and when it is made safe."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fourfold.blobs import BlobUsage, FolderBlobs
from fourfold.content import EMPTY_ID, content_id
from fourfold.errors import CorruptData, NotFound, StorageError

DATA = b"some bytes" * 100
DIGITS = content_id(DATA).removeprefix("sha256:")


@pytest.fixture
def store(tmp_path):
    return FolderBlobs(tmp_path / "a" / "blobs")


def files(store: FolderBlobs) -> list[str]:
    return sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*.*"))


def test_a_blob_lies_under_its_digits(store):
    store.put(DATA)
    assert files(store) == [f"{DIGITS[:2]}/{DIGITS}.blob"]
    assert store.path(content_id(DATA)).read_bytes() == DATA


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_may_read_files_and_folders(store, umask):
    before = os.umask(umask)
    try:
        path = store.path(store.put(DATA))
        streamed = store.path(store.put_stream([b"other"]))
    finally:
        os.umask(before)
    for file in (path, streamed):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700


def test_reading_an_absent_folder_creates_nothing(store):
    assert list(store.ids()) == []
    assert store.usage() == BlobUsage(0, 0)
    assert not store.has(EMPTY_ID)
    assert store.sweep(0) == 0
    with pytest.raises(NotFound):
        store.get(EMPTY_ID)
    assert not store.root.exists()


@pytest.mark.parametrize("stream", [False, True])
def test_file_is_synced_before_its_rename_and_the_folder_after(store, monkeypatch, stream):
    steps = []
    fsync, replace = os.fsync, Path.replace

    def spied_fsync(fd):
        steps.append(("sync", Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    def spied_replace(self, target):
        steps.append(("name", Path(target)))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", spied_fsync)
    monkeypatch.setattr(Path, "replace", spied_replace)
    path = store.path(store.put_stream([DATA]) if stream else store.put(DATA))
    named = steps.index(("name", path))
    assert steps[named - 1][0] == "sync"
    assert steps[named - 1][1].suffix == ".tmp"
    assert steps[named + 1 :] == [("sync", path.parent)]
    # The shard, the root and the folder above were new, and their names are safe too.
    for folder in (store.root, store.root.parent, store.root.parent.parent):
        assert ("sync", folder) in steps[:named]
    steps.clear()
    FolderBlobs(store.root).put(DATA)
    assert steps == [("sync", path.parent)]


def test_a_blob_that_is_there_is_not_written_again(store):
    path = store.path(store.put(DATA))
    before = path.stat()
    store.put(DATA)
    store.put_stream([DATA])
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_corrupt_bytes_are_reported_with_the_path_of_the_file(store):
    blob_id = store.put(DATA)
    path = store.path(blob_id)
    for at in (0, 500, len(DATA) - 1):
        changed = bytearray(DATA)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(CorruptData) as caught:
            store.get(blob_id)
        assert str(path) in str(caught.value)
        assert blob_id in str(caught.value)


def test_an_empty_leftover_counts_as_absent_everywhere(store):
    blob_id = store.put(DATA)
    store.path(blob_id).write_bytes(b"")
    assert not store.has(blob_id)
    assert list(store.ids()) == []
    assert store.usage() == BlobUsage(0, 0)
    for read in (store.get, store.size, lambda name: list(store.chunks(name))):
        with pytest.raises(NotFound):
            read(blob_id)
    assert store.delete(blob_id) is False
    assert not store.path(blob_id).exists()
    store.put(DATA)
    assert store.get(blob_id) == DATA


def test_files_of_other_programs_are_left_alone(store):
    blob_id = store.put(DATA)
    shard = store.path(blob_id).parent
    strangers = [
        store.root / "README",
        store.root / "zz",
        store.root / f"{DIGITS}.blob",
        shard / "notes.txt",
        shard / f"{DIGITS}.blob.bak",
        shard / f"{'0' * 64}.blob".replace("00", "ff", 1) if shard.name != "ff" else shard / "x",
        shard / f"{DIGITS.upper()}.blob",
        shard / "other.tmp",
    ]
    for stranger in strangers:
        stranger.write_bytes(b"not ours")
        os.utime(stranger, (0, 0))
    (shard / f"{DIGITS[:2]}{'e' * 62}.blob").mkdir()
    (shard / f"{DIGITS[:2]}{'d' * 62}.blob").symlink_to(store.path(blob_id))
    assert list(store.ids()) == [blob_id]
    assert not store.has(f"sha256:{DIGITS[:2]}{'e' * 62}")
    assert not store.has(f"sha256:{DIGITS[:2]}{'d' * 62}")
    with pytest.raises(NotFound):
        store.get(f"sha256:{DIGITS[:2]}{'d' * 62}")
    with pytest.raises(NotFound):
        store.get(f"sha256:{DIGITS[:2]}{'e' * 62}")
    assert store.sweep(0) == 0
    assert all(stranger.read_bytes() == b"not ours" for stranger in strangers)


def test_leftovers_of_dead_writers_are_swept_once_they_are_old(store):
    path = store.path(store.put(DATA))
    leftovers = [folder / f"blob-{'a' * 32}.tmp" for folder in (store.root, path.parent)]
    for leftover in leftovers:
        leftover.write_bytes(b"half")
    assert store.sweep() == 0
    for leftover in leftovers:
        os.utime(leftover, (0, 0))
    assert list(store.ids()) == [content_id(DATA)]
    assert store.sweep() == 2
    assert files(store) == [f"{DIGITS[:2]}/{DIGITS}.blob"]


def test_the_temp_file_of_a_living_writer_is_not_swept(store):
    def slow():
        yield b"first"
        assert store.sweep(0) == 0
        assert len(files(store)) == 1
        yield b"second"

    assert store.get(store.put_stream(slow())) == b"firstsecond"
    leftover = store.root / f"blob-{'b' * 32}.tmp"
    leftover.write_bytes(b"held")
    os.utime(leftover, (0, 0))
    with leftover.open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert store.sweep(0) == 0
    assert store.sweep(0) == 1


def test_a_stream_that_fails_leaves_no_file(store):
    def broken():
        yield b"x"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.put_stream(broken())
    assert files(store) == []


def test_a_folder_that_was_removed_is_made_again(store):
    path = store.path(store.put(DATA))
    path.unlink()
    path.parent.rmdir()
    assert store.get(store.put(DATA)) == DATA
    path.unlink()
    path.parent.rmdir()
    store.root.rmdir()
    assert store.get(store.put(DATA)) == DATA
    assert store.get(store.put_stream([b"more"])) == b"more"


def test_file_where_folder_should_be_is_clear_error(tmp_path):
    (tmp_path / "taken").write_bytes(b"a file")
    store = FolderBlobs(tmp_path / "taken")
    for put in (lambda: store.put(DATA), lambda: store.put_stream([DATA])):
        with pytest.raises(StorageError, match="taken"):
            put()
    assert not store.has(content_id(DATA))
    assert list(store.ids()) == []
    assert (tmp_path / "taken").read_bytes() == b"a file"


def test_a_write_that_the_system_cuts_short_leaves_nothing(store):
    # The limit on file sizes makes the kernel refuse a write half-way, as a full disk does.
    script = """
import resource, sys
from fourfold.blobs import FolderBlobs
from fourfold.errors import StorageError
store = FolderBlobs(sys.argv[1])
small = store.put(b"small")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for put in (lambda: store.put(b"x" * 1_000_000), lambda: store.put_stream([b"y" * 60_000] * 9)):
    try:
        put()
    except StorageError as error:
        print(error.kind)
assert list(store.ids()) == [small]
"""
    child = subprocess.run(
        [sys.executable, "-c", script, store.root],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert child.stdout.split() == ["storage", "storage"]
    assert len(files(store)) == 1
