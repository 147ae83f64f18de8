"""Graphs: apps with their own tables of parents, attributes, edges and ratings.

Every accepted envelope has one seq, and every past state stays readable. A name is imported when it
is first used: the fold and the records need no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports

if TYPE_CHECKING:
    from fourfold.models.graphs.database import GLOBAL_SEQ, MIGRATIONS, PROFILE
    from fourfold.models.graphs.feed import FeedFilter, GraphFeed
    from fourfold.models.graphs.graph import Graph
    from fourfold.models.graphs.graphs import Graphs
    from fourfold.models.graphs.maintenance import Capability
    from fourfold.models.graphs.pattern import Pattern
    from fourfold.models.graphs.reader import Query, Reader
    from fourfold.models.graphs.records import (
        App,
        ApplyResult,
        Attr,
        Edge,
        GraphChange,
        Identity,
        Kind,
        Neighbours,
        Parent,
        Peer,
        Rating,
        Type,
        Usage,
    )
    from fourfold.models.graphs.writer import GraphTransaction
else:
    _RECORDS = (
        "App",
        "ApplyResult",
        "Attr",
        "GraphChange",
        "Edge",
        "Identity",
        "Kind",
        "Neighbours",
        "Parent",
        "Peer",
        "Rating",
        "Type",
        "Usage",
    )
    __getattr__, __dir__ = exports(
        __name__,
        {
            **dict.fromkeys(_RECORDS, "fourfold.models.graphs.records"),
            "Capability": "fourfold.models.graphs.maintenance",
            "GraphFeed": "fourfold.models.graphs.feed",
            "GLOBAL_SEQ": "fourfold.models.graphs.database",
            "Graph": "fourfold.models.graphs.graph",
            "GraphTransaction": "fourfold.models.graphs.writer",
            "Graphs": "fourfold.models.graphs.graphs",
            "MIGRATIONS": "fourfold.models.graphs.database",
            "PROFILE": "fourfold.models.graphs.database",
            "Pattern": "fourfold.models.graphs.pattern",
            "Query": "fourfold.models.graphs.reader",
            "Reader": "fourfold.models.graphs.reader",
            "FeedFilter": "fourfold.models.graphs.feed",
        },
    )

__all__ = [
    "GLOBAL_SEQ",
    "MIGRATIONS",
    "PROFILE",
    "App",
    "ApplyResult",
    "Attr",
    "Capability",
    "Edge",
    "FeedFilter",
    "Graph",
    "GraphChange",
    "GraphFeed",
    "GraphTransaction",
    "Graphs",
    "Identity",
    "Kind",
    "Neighbours",
    "Parent",
    "Pattern",
    "Peer",
    "Query",
    "Rating",
    "Reader",
    "Type",
    "Usage",
]
