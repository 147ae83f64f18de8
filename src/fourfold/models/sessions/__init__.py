"""Sessions: logs of events, the views that are folded from them, and the heads that name a point
to go on from.

A name is imported when it is first used: the fold and the records need no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports

if TYPE_CHECKING:
    from fourfold.models.sessions.comparison import compare_heads
    from fourfold.models.sessions.database import MIGRATIONS, POSITION, PROFILE
    from fourfold.models.sessions.feed import SessionFeed, SessionSubscription
    from fourfold.models.sessions.fold import (
        Counters,
        FoldState,
        View,
        apply_event,
        kept_messages,
    )
    from fourfold.models.sessions.reader import SessionView
    from fourfold.models.sessions.records import (
        UNSET,
        BundleReport,
        Claim,
        Event,
        Gap,
        GcReport,
        Head,
        HeadComparison,
        LineageEdge,
        LineageGraph,
        SessionInfo,
        Transient,
    )
    from fourfold.models.sessions.request import Payload
    from fourfold.models.sessions.session import Session
    from fourfold.models.sessions.sessions import Sessions
    from fourfold.models.sessions.sqlite_log import SqliteLog
    from fourfold.models.sessions.transcript import Transcript, TranscriptEntry
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "BundleReport": "fourfold.models.sessions.records",
            "Claim": "fourfold.models.sessions.records",
            "GcReport": "fourfold.models.sessions.records",
            "Counters": "fourfold.models.sessions.fold",
            "LineageEdge": "fourfold.models.sessions.records",
            "Event": "fourfold.models.sessions.records",
            "SessionFeed": "fourfold.models.sessions.feed",
            "Gap": "fourfold.models.sessions.records",
            "Head": "fourfold.models.sessions.records",
            "HeadComparison": "fourfold.models.sessions.records",
            "LineageGraph": "fourfold.models.sessions.records",
            "MIGRATIONS": "fourfold.models.sessions.database",
            "POSITION": "fourfold.models.sessions.database",
            "PROFILE": "fourfold.models.sessions.database",
            "Payload": "fourfold.models.sessions.request",
            "Session": "fourfold.models.sessions.session",
            "SessionInfo": "fourfold.models.sessions.records",
            "SessionView": "fourfold.models.sessions.reader",
            "Sessions": "fourfold.models.sessions.sessions",
            "FoldState": "fourfold.models.sessions.fold",
            "SessionSubscription": "fourfold.models.sessions.feed",
            "SqliteLog": "fourfold.models.sessions.sqlite_log",
            "Transcript": "fourfold.models.sessions.transcript",
            "TranscriptEntry": "fourfold.models.sessions.transcript",
            "Transient": "fourfold.models.sessions.records",
            "UNSET": "fourfold.models.sessions.records",
            "View": "fourfold.models.sessions.fold",
            "apply_event": "fourfold.models.sessions.fold",
            "compare_heads": "fourfold.models.sessions.comparison",
            "kept_messages": "fourfold.models.sessions.fold",
        },
    )

__all__ = [
    "MIGRATIONS",
    "POSITION",
    "PROFILE",
    "UNSET",
    "BundleReport",
    "Claim",
    "Counters",
    "Event",
    "FoldState",
    "Gap",
    "GcReport",
    "Head",
    "HeadComparison",
    "LineageEdge",
    "LineageGraph",
    "Payload",
    "Session",
    "SessionFeed",
    "SessionInfo",
    "SessionSubscription",
    "SessionView",
    "Sessions",
    "SqliteLog",
    "Transcript",
    "TranscriptEntry",
    "Transient",
    "View",
    "apply_event",
    "compare_heads",
    "kept_messages",
]
