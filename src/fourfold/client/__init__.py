"""Clients of a server: its store as a local one, and streams of the Durable Streams protocol.

    with StreamClient("http://127.0.0.1:4437") as client:
        orders = client.create("orders")
        orders.append_json([{"id": 1}])
        for order in orders.items(): ...

Nothing is sent twice unless that is safe, and every error is one of `fourfold.errors`. It requires
the extra `client` when the first client is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports

if TYPE_CHECKING:
    from fourfold.client.coroutines.store import AsyncRemoteStore
    from fourfold.client.coroutines.streams import AsyncFollower, AsyncStream, AsyncStreamClient
    from fourfold.client.producer import AsyncProducer, BatchOptions, StreamProducer
    from fourfold.client.remote import connect
    from fourfold.client.responses import AppendResult, Part, StreamFacts, StreamListing
    from fourfold.client.rules import (
        Boundary,
        LiveTemplate,
        RoutingKey,
        SchemaRegistry,
        StreamProfile,
        TouchFacts,
    )
    from fourfold.client.threads.remote_graph import RemoteGraph
    from fourfold.client.threads.remote_graphs import RemoteGraphs
    from fourfold.client.threads.remote_memory import RemoteMemory
    from fourfold.client.threads.remote_session import RemoteSession
    from fourfold.client.threads.remote_sessions import RemoteSessions
    from fourfold.client.threads.remote_spaces import RemoteSpace
    from fourfold.client.threads.remote_streams import RemoteStream, RemoteStreams
    from fourfold.client.threads.store import RemoteStore
    from fourfold.client.threads.streams import Follower, Stream, StreamClient
    from fourfold.models.streams.records import Producer
    from fourfold.models.streams.touch.records import (
        EntityKey,
        RowKey,
        Template,
        TemplateKey,
        WaitResult,
    )
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "AppendResult": "fourfold.client.responses",
            "AsyncFollower": "fourfold.client.coroutines.streams",
            "AsyncProducer": "fourfold.client.producer",
            "AsyncRemoteStore": "fourfold.client.coroutines.store",
            "AsyncStream": "fourfold.client.coroutines.streams",
            "AsyncStreamClient": "fourfold.client.coroutines.streams",
            "BatchOptions": "fourfold.client.producer",
            "Boundary": "fourfold.client.rules",
            "EntityKey": "fourfold.models.streams.touch.records",
            "Follower": "fourfold.client.threads.streams",
            "StreamListing": "fourfold.client.responses",
            "LiveTemplate": "fourfold.client.rules",
            "Part": "fourfold.client.responses",
            "Producer": "fourfold.models.streams.records",
            "RemoteGraph": "fourfold.client.threads.remote_graph",
            "RemoteGraphs": "fourfold.client.threads.remote_graphs",
            "RemoteMemory": "fourfold.client.threads.remote_memory",
            "RemoteSession": "fourfold.client.threads.remote_session",
            "RemoteSessions": "fourfold.client.threads.remote_sessions",
            "RemoteSpace": "fourfold.client.threads.remote_spaces",
            "RemoteStore": "fourfold.client.threads.store",
            "RemoteStream": "fourfold.client.threads.remote_streams",
            "RemoteStreams": "fourfold.client.threads.remote_streams",
            "RoutingKey": "fourfold.client.rules",
            "RowKey": "fourfold.models.streams.touch.records",
            "TemplateKey": "fourfold.models.streams.touch.records",
            "SchemaRegistry": "fourfold.client.rules",
            "Stream": "fourfold.client.threads.streams",
            "StreamClient": "fourfold.client.threads.streams",
            "StreamFacts": "fourfold.client.responses",
            "StreamProducer": "fourfold.client.producer",
            "StreamProfile": "fourfold.client.rules",
            "Template": "fourfold.models.streams.touch.records",
            "TouchFacts": "fourfold.client.rules",
            "WaitResult": "fourfold.models.streams.touch.records",
            "connect": "fourfold.client.remote",
        },
    )

__all__ = [
    "AppendResult",
    "AsyncFollower",
    "AsyncProducer",
    "AsyncRemoteStore",
    "AsyncStream",
    "AsyncStreamClient",
    "BatchOptions",
    "Boundary",
    "EntityKey",
    "Follower",
    "LiveTemplate",
    "Part",
    "Producer",
    "RemoteGraph",
    "RemoteGraphs",
    "RemoteMemory",
    "RemoteSession",
    "RemoteSessions",
    "RemoteSpace",
    "RemoteStore",
    "RemoteStream",
    "RemoteStreams",
    "RoutingKey",
    "RowKey",
    "SchemaRegistry",
    "Stream",
    "StreamClient",
    "StreamFacts",
    "StreamListing",
    "StreamProducer",
    "StreamProfile",
    "Template",
    "TemplateKey",
    "TouchFacts",
    "WaitResult",
    "connect",
]
