"""The three backends under the one contract; the object store over memory and over a folder."""

from __future__ import annotations

import pytest

from fourfold.blobs import MIGRATION, FolderBlobs, ObjectBlobs, TableBlobs
from fourfold.content import parse_content_id
from fourfold.kernel import Database
from fourfold.objects import FolderStore, MemoryStore
from fourfold.testing.blob_contract import BlobStoreContract

DAMAGE = "UPDATE blob_store SET data = ?2 WHERE hash = ?1"


class TestFolderBlobs(BlobStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return FolderBlobs(tmp_path / "blobs")

    def damage(self, store, blob_id, data):
        store.path(blob_id).write_bytes(data)


class TestTableBlobs(BlobStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        with Database.open(tmp_path / "blobs.sqlite", migrations=[MIGRATION]) as database:
            yield TableBlobs(database)

    def damage(self, store, blob_id, data):
        store.database.transact(lambda txn: txn.execute(DAMAGE, (parse_content_id(blob_id), data)))


class TestObjectBlobsInMemory(BlobStoreContract):
    @pytest.fixture
    def store(self):
        with MemoryStore() as objects:
            yield ObjectBlobs(objects)

    def damage(self, store, blob_id, data):
        store.objects.put(store.key(blob_id), data)


class TestObjectBlobsInAFolder(TestObjectBlobsInMemory):
    @pytest.fixture
    def store(self, tmp_path):
        with FolderStore(tmp_path / "objects") as objects:
            yield ObjectBlobs(objects)

    def damage(self, store, blob_id, data):
        store.objects.path(store.key(blob_id)).write_bytes(data)
