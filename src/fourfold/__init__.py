"""Fourfold: application state as append-only logs in SQLite files that you own.

    import fourfold

    with fourfold.open("my-store") as store:
        space = store.space("did:web:notes.example")
        space.set("note-1", {"title": "Hello"})
        store.streams.create("clicks", "application/json")

`fourfold.open` returns a `Store`: spaces of documents (`store.documents`), streams
(`store.streams`), graphs (`store.graphs`) and agent sessions (`store.sessions`).
`fourfold.connect` opens a store of a server, with the same calls.

Here are the names that most programs need. Import the others from these modules:

    fourfold.errors      all errors; each derives from `FourfoldError`
    fourfold.kernel      databases of your own: `Database`, `Migration`, `Sequence`, `Transaction`
    fourfold.client      `RemoteStore`, and the clients for coroutines
    fourfold.pipeline    Spark: reads, SQL, jobs
    fourfold.adapters    LangGraph, OpenAI Agents, Pydantic AI, MCP, OpenTelemetry
    fourfold.models      all records of `documents`, `streams`, `graphs` and `sessions`
    fourfold.testing     contract tests for backends of your own

A name is loaded when it is first used, so importing the package loads no database driver.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if sys.platform == "win32":
    raise ImportError("Fourfold runs on Linux and macOS; on Windows, install it inside WSL 2.")

from fourfold._lazy import exports
from fourfold._version import __version__
from fourfold.errors import (
    Busy,
    Conflict,
    CorruptData,
    FormatError,
    FourfoldError,
    InvalidInput,
    MissingDependency,
    NotFound,
    Refused,
    StorageError,
)

if TYPE_CHECKING:
    from fourfold.client import connect
    from fourfold.models.documents import (
        Branch,
        Commit,
        Documents,
        GcPolicy,
        MergeResult,
        Space,
        State,
    )
    from fourfold.models.graphs import Graph, Graphs
    from fourfold.models.graphs.sync.keys import Ed25519Signer
    from fourfold.models.problem import Problem
    from fourfold.models.sessions import Event, Head, Payload, Session, Sessions, SessionView
    from fourfold.models.sessions.runtime import Final, Question, Runtime
    from fourfold.models.streams import (
        AppendResult,
        Chunk,
        Offset,
        Producer,
        Record,
        Stream,
        StreamInfo,
        Streams,
    )
    from fourfold.models.streams.subscriptions import Ack, Subscribe
    from fourfold.models.streams.touch import Template
    from fourfold.store import Store, restore
    from fourfold.store import open_store as open  # noqa: A004
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Ack": "fourfold.models.streams.subscriptions",
            "AppendResult": "fourfold.models.streams.records",
            "Branch": "fourfold.models.documents.records",
            "Chunk": "fourfold.models.streams.records",
            "Commit": "fourfold.models.documents.records",
            "Documents": "fourfold.models.documents.documents",
            "Ed25519Signer": "fourfold.models.graphs.sync.keys",
            "Event": "fourfold.models.sessions.records",
            "Final": "fourfold.models.sessions.runtime",
            "GcPolicy": "fourfold.models.documents.gc.policy",
            "Graph": "fourfold.models.graphs.graph",
            "Graphs": "fourfold.models.graphs.graphs",
            "Head": "fourfold.models.sessions.records",
            "MergeResult": "fourfold.models.documents.merge",
            "Offset": "fourfold.models.streams.validation",
            "Payload": "fourfold.models.sessions",
            "Problem": "fourfold.models.problem",
            "Producer": "fourfold.models.streams.records",
            "Question": "fourfold.models.sessions.runtime",
            "Record": "fourfold.models.streams.records",
            "Runtime": "fourfold.models.sessions.runtime",
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
    "Chunk",
    "Commit",
    "Conflict",
    "CorruptData",
    "Documents",
    "Ed25519Signer",
    "Event",
    "Final",
    "FormatError",
    "FourfoldError",
    "GcPolicy",
    "Graph",
    "Graphs",
    "Head",
    "InvalidInput",
    "MergeResult",
    "MissingDependency",
    "NotFound",
    "Offset",
    "Payload",
    "Problem",
    "Producer",
    "Question",
    "Record",
    "Refused",
    "Runtime",
    "Session",
    "SessionView",
    "Sessions",
    "Space",
    "State",
    "StorageError",
    "Store",
    "Stream",
    "StreamInfo",
    "Streams",
    "Subscribe",
    "Template",
    "__version__",
    "connect",
    "open",
    "restore",
]
