"""Blobs in an object store: keys, foreign objects, requests, and writers that meet."""

from __future__ import annotations

import pytest

from fourfold import limits
from fourfold.blobs import BlobUsage, FolderBlobs, ObjectBlobs
from fourfold.content import content_id, parse_content_id
from fourfold.errors import InvalidInput, NotFound
from fourfold.objects import FolderStore, MemoryStore


@pytest.fixture
def objects():
    with MemoryStore() as opened:
        yield opened


def test_keys_are_the_paths_of_the_folder_of_blobs(objects, tmp_path):
    folder = FolderBlobs(tmp_path)
    store = ObjectBlobs(objects)
    blob_id = store.put(b"abc")
    digits = parse_content_id(blob_id)
    assert store.key(blob_id) == f"blobs/{digits[:2]}/{digits}.blob"
    assert store.key(blob_id) == f"blobs/{folder.path(blob_id).relative_to(tmp_path)}"


@pytest.mark.parametrize("prefix", ["", "blobs/", "a/b/c-"])
def test_stores_with_different_prefixes_share_an_object_store(objects, prefix):
    store, other = ObjectBlobs(objects, prefix), ObjectBlobs(objects, "elsewhere/")
    blob_id = store.put(b"abc")
    other.put(b"xyz")
    assert list(store.ids()) == [blob_id]
    assert other.usage() == BlobUsage(1, 3)
    assert not other.has(blob_id)


def test_a_prefix_that_no_key_can_have_is_refused(objects):
    for prefix in ("/", "a//", "../"):
        with pytest.raises(InvalidInput):
            ObjectBlobs(objects, prefix)


def test_objects_of_others_are_not_blobs(objects):
    store = ObjectBlobs(objects)
    blob_id = store.put(b"abc")
    digits = parse_content_id(blob_id)
    for name in (f"{digits}.blob", f"00/{digits}.blob", f"{digits[:2]}/{digits}", "README"):
        objects.put(f"blobs/{name}", b"stranger")
    objects.put(f"blobs/11/11{'0' * 62}.blob", b"")
    assert list(store.ids()) == [blob_id]
    assert store.usage() == BlobUsage(1, 3)
    assert not store.has(f"sha256:11{'0' * 62}")
    with pytest.raises(NotFound):
        store.get(f"sha256:11{'0' * 62}")


def test_a_blob_that_is_there_is_not_written_again(objects):
    store = ObjectBlobs(objects)
    for data in (b"small", bytes(limits.BLOB_CHUNK_BYTES + 1)):
        key = store.key(store.put(data))
        version = objects.get(key).info.version
        store.put(data)
        store.put_stream([data])
        assert objects.get(key).info.version == version


def test_blob_that_another_writer_stores_meanwhile_is_same_blob(objects):
    store, other = ObjectBlobs(objects), ObjectBlobs(objects)

    def pieces():
        yield b"ab"
        other.put(b"abc")
        yield b"c"

    assert store.put_stream(pieces()) == content_id(b"abc")
    assert store.get(content_id(b"abc")) == b"abc"


def test_a_large_stream_reaches_a_real_object_store_in_pieces(tmp_path):
    with FolderStore(tmp_path) as objects:
        store = ObjectBlobs(objects)
        piece = bytes(range(256)) * 4096
        blob_id = store.put_stream(piece for _ in range(5))
        assert store.size(blob_id) == 5 * len(piece)
        assert b"".join(store.chunks(blob_id)) == piece * 5
