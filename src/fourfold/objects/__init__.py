"""Object stores: one `ObjectStore` protocol for memory, a local folder and S3-compatible stores.

    with open_objects("s3://bucket/prefix") as store:
        info = store.put("manifest.json", b"{}", if_absent=True)
        store.put("manifest.json", b"[]", if_version=info.version)

S3 needs the package obstore, which is imported by the first S3 store: `pip install 'fourfold[s3]'`.
"""

from __future__ import annotations

from fourfold.objects.conditional_writes import ConditionalWrites, check_conditional_writes
from fourfold.objects.folder import FolderStore
from fourfold.objects.memory import MemoryStore
from fourfold.objects.protocol import Data, Object, ObjectInfo, ObjectStore
from fourfold.objects.request_counts import AccountingStore, Recorder, RequestCount, RequestCounter
from fourfold.objects.s3 import S3Settings, S3Store
from fourfold.objects.url import open_objects
from fourfold.objects.validation import check_key, check_prefix
from fourfold.testing.faulty_store import Call, Fault, FaultyStore, Injection

__all__ = [
    "AccountingStore",
    "Call",
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
    "Recorder",
    "RequestCount",
    "RequestCounter",
    "S3Settings",
    "S3Store",
    "check_conditional_writes",
    "check_key",
    "check_prefix",
    "open_objects",
]
