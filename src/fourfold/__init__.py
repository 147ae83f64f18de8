"""Fourfold: application state as append-only logs in SQLite files that you own.

    import fourfold

    with fourfold.open("my-store") as store:
        space = store.space("did:web:notes.example")
        space.set("note-1", {"title": "Hello"})
        store.streams.create("clicks", "application/json")

`fourfold.open` returns a `Store`: spaces of documents (`store.documents`), streams
(`store.streams`), graphs (`store.graphs`) and agent sessions (`store.sessions`). Every error
derives from `FourfoldError`. Optional parts are imported by name: `fourfold.client`,
`fourfold.pipeline`, `fourfold.adapters.langgraph`, `fourfold.adapters.openai_agents`,
`fourfold.testing`.

A name is loaded when it is first used, so importing the package loads no database driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports
from fourfold._version import __version__
from fourfold.errors import (
    Busy,
    Conflict,
    CorruptData,
    FormatError,
    FourfoldError,
    HistoryTruncated,
    InvalidInput,
    MergeConflicted,
    MissingDependency,
    NotFound,
    Refused,
    StaleRead,
    StorageError,
)

if TYPE_CHECKING:
    from fourfold.client import RemoteStore, connect
    from fourfold.kernel import Database, Migration, ReadTransaction, Sequence, Transaction
    from fourfold.models.documents import (
        Branch,
        Change,
        Commit,
        Documents,
        GcPolicy,
        MergeConflict,
        MergeResult,
        Space,
        State,
    )
    from fourfold.models.graphs import Graph, Graphs
    from fourfold.models.graphs.sync.package import Ed25519Signer
    from fourfold.models.problem import Problem
    from fourfold.models.sessions import Event, Head, Payload, Session, Sessions, SessionView
    from fourfold.models.sessions.runtime import Final, Runtime
    from fourfold.models.streams import (
        AppendResult,
        Chunk,
        Fork,
        Offset,
        Producer,
        Record,
        Stream,
        StreamInfo,
        Streams,
    )
    from fourfold.models.streams.subscriptions import Ack, Subscribe
    from fourfold.models.streams.subscriptions.leases import Fence
    from fourfold.models.streams.touch import Rows, Template
    from fourfold.store import Store, restore
    from fourfold.store import open_store as open  # noqa: A004
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Ack": "fourfold.models.streams.subscriptions",
            "AppendResult": "fourfold.models.streams.records",
            "Branch": "fourfold.models.documents.records",
            "Change": "fourfold.models.documents.comparison",
            "Chunk": "fourfold.models.streams.records",
            "Commit": "fourfold.models.documents.records",
            "Database": "fourfold.kernel",
            "Documents": "fourfold.models.documents.documents",
            "Ed25519Signer": "fourfold.models.graphs.sync.package",
            "Event": "fourfold.models.sessions.records",
            "Fence": "fourfold.models.streams.subscriptions.leases",
            "Final": "fourfold.models.sessions.runtime",
            "Fork": "fourfold.models.streams.writer",
            "GcPolicy": "fourfold.models.documents.gc.policy",
            "Graph": "fourfold.models.graphs.graph",
            "Graphs": "fourfold.models.graphs.graphs",
            "Head": "fourfold.models.sessions.records",
            "MergeConflict": "fourfold.models.documents.merge",
            "MergeResult": "fourfold.models.documents.merge",
            "Migration": "fourfold.kernel",
            "Offset": "fourfold.models.streams.validation",
            "Payload": "fourfold.models.sessions",
            "Problem": "fourfold.models.problem",
            "Producer": "fourfold.models.streams.records",
            "ReadTransaction": "fourfold.kernel",
            "RemoteStore": "fourfold.client",
            "Record": "fourfold.models.streams.records",
            "Rows": "fourfold.models.streams.touch",
            "Runtime": "fourfold.models.sessions.runtime",
            "Sequence": "fourfold.kernel",
            "Session": "fourfold.models.sessions.session",
            "SessionView": "fourfold.models.sessions.reader",
            "Sessions": "fourfold.models.sessions.sessions",
            "Space": "fourfold.models.documents.space",
            "State": "fourfold.models.documents.records",
            "Store": "fourfold.store",
            "Stream": "fourfold.models.streams.stream",
            "StreamInfo": "fourfold.models.streams.records",
            "Streams": "fourfold.models.streams.streams",
            "Subscribe": "fourfold.models.streams.subscriptions",
            "Template": "fourfold.models.streams.touch",
            "Transaction": "fourfold.kernel",
            "connect": "fourfold.client",
            "open": "fourfold.store:open_store",
            "restore": "fourfold.store",
        },
    )

__all__ = [
    "Ack",
    "AppendResult",
    "Branch",
    "Busy",
    "Change",
    "Chunk",
    "Commit",
    "Conflict",
    "CorruptData",
    "Database",
    "Documents",
    "Ed25519Signer",
    "Event",
    "Fence",
    "Final",
    "Fork",
    "FormatError",
    "FourfoldError",
    "GcPolicy",
    "Graph",
    "Graphs",
    "Head",
    "HistoryTruncated",
    "InvalidInput",
    "MergeConflict",
    "MergeConflicted",
    "MergeResult",
    "Migration",
    "MissingDependency",
    "NotFound",
    "Offset",
    "Payload",
    "Problem",
    "Producer",
    "ReadTransaction",
    "Record",
    "Refused",
    "RemoteStore",
    "Rows",
    "Runtime",
    "Sequence",
    "Session",
    "SessionView",
    "Sessions",
    "Space",
    "StaleRead",
    "State",
    "StorageError",
    "Store",
    "Stream",
    "StreamInfo",
    "Streams",
    "Subscribe",
    "Template",
    "Transaction",
    "__version__",
    "connect",
    "open",
    "restore",
]
