"""Object stores: one `ObjectStore` protocol for memory, a local folder and S3-compatible stores.

    with open_objects("s3://bucket/prefix") as store:
        info = store.put("manifest.json", b"{}", if_absent=True)
        store.put("manifest.json", b"[]", if_version=info.version)

S3 needs the package obstore, which is imported by the first S3 store: `pip install 'fourfold[s3]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports
from fourfold.objects.conditional_writes import ConditionalWrites, check_conditional_writes
from fourfold.objects.folder import FolderStore
from fourfold.objects.memory import MemoryStore
from fourfold.objects.protocol import Data, Object, ObjectInfo, ObjectStore
from fourfold.objects.request_counts import (
    AccountingStore,
    RequestCount,
    RequestCounter,
    RequestRecorder,
)
from fourfold.objects.url import open_objects
from fourfold.objects.validation import check_key, check_prefix

if TYPE_CHECKING:
    from fourfold.objects.s3 import S3Settings, S3Store
    from fourfold.testing.faulty_store import Fault, FaultyStore, Injection, StoreCall
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Fault": "fourfold.testing.faulty_store",
            "FaultyStore": "fourfold.testing.faulty_store",
            "Injection": "fourfold.testing.faulty_store",
            "S3Settings": "fourfold.objects.s3",
            "S3Store": "fourfold.objects.s3",
            "StoreCall": "fourfold.testing.faulty_store",
        },
    )

__all__ = [
    "AccountingStore",
    "ConditionalWrites",
    "Data",
    "Fault",
    "FaultyStore",
    "FolderStore",
    "Injection",
    "MemoryStore",
    "Object",
    "ObjectInfo",
    "ObjectStore",
    "RequestCount",
    "RequestCounter",
    "RequestRecorder",
    "S3Settings",
    "S3Store",
    "StoreCall",
    "check_conditional_writes",
    "check_key",
    "check_prefix",
    "open_objects",
]
