"""One contract, three backends."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from fourfold import limits
from fourfold.objects import FolderStore, MemoryStore
from fourfold.testing.object_contract import ObjectStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fourfold.objects import ObjectStore
    from support.s3_server import S3Server

S3_PREFIX_BYTES = len(f"tests/{uuid.uuid4().hex}/")


class TestMemory(ObjectStoreContract):
    uploads_in_bounded_memory = False

    @pytest.fixture
    def make_store(self) -> Callable[[], ObjectStore]:
        return MemoryStore


class TestFolder(ObjectStoreContract):
    histories = 10

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Callable[[], ObjectStore]:
        return lambda: FolderStore(tmp_path / uuid.uuid4().hex)


class TestS3(ObjectStoreContract):
    # The ETag of S3 is made from the bytes, so equal bytes have equal versions.
    versions_never_repeat = False
    keys_to_list = 1_060
    histories = 5

    @pytest.fixture
    def make_store(self, s3_server: S3Server) -> Callable[[], ObjectStore]:
        return lambda: s3_server.store(f"tests/{uuid.uuid4().hex}")

    def accepts(self, key: str) -> bool:
        return len(key.encode()) + S3_PREFIX_BYTES <= limits.OBJECT_KEY_BYTES_MAX
