"""Documents: spaces with branches and time travel. Every state of every entity stays readable.

A name is imported when it is first used: the fold, the patches and the records need no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports

if TYPE_CHECKING:
    from fourfold.content.json_pointer import ABSENT
    from fourfold.models.documents.ancestry import BranchPoint
    from fourfold.models.documents.blobs import BlobStat
    from fourfold.models.documents.comparison import Change, Difference
    from fourfold.models.documents.documents import Documents, SpaceInfo
    from fourfold.models.documents.feed import Watch
    from fourfold.models.documents.field_merge import OURS, THEIRS
    from fourfold.models.documents.gc.policy import GcPolicy
    from fourfold.models.documents.gc.records import GcReport, RemovedCount
    from fourfold.models.documents.histories import DEFAULT_HISTORY, HISTORIES
    from fourfold.models.documents.history import History
    from fourfold.models.documents.indexes.declaration import IndexInfo
    from fourfold.models.documents.indexes.finder import Facet, FindPage, FindPlan, Match
    from fourfold.models.documents.indexes.indexes import Indexes
    from fourfold.models.documents.indexes.search import SearchHit, SearchPage, TextSnippet
    from fourfold.models.documents.merge import MergeConflict, MergeResult
    from fourfold.models.documents.records import (
        Branch,
        Commit,
        ConfirmedRead,
        Distance,
        LogEntry,
        PendingRead,
        Reads,
        Revision,
        State,
    )
    from fourfold.models.documents.snapshots import MaintenanceReport
    from fourfold.models.documents.space import Space
    from fourfold.models.documents.validation import check_did
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "ABSENT": "fourfold.content.json_pointer",
            "BlobStat": "fourfold.models.documents.blobs",
            "Branch": "fourfold.models.documents.records",
            "Change": "fourfold.models.documents.comparison",
            "GcReport": "fourfold.models.documents.gc.records",
            "Commit": "fourfold.models.documents.records",
            "ConfirmedRead": "fourfold.models.documents.records",
            "DEFAULT_HISTORY": "fourfold.models.documents.histories",
            "Difference": "fourfold.models.documents.comparison",
            "Distance": "fourfold.models.documents.records",
            "Documents": "fourfold.models.documents.documents",
            "SpaceInfo": "fourfold.models.documents.documents",
            "Facet": "fourfold.models.documents.indexes.finder",
            "FindPage": "fourfold.models.documents.indexes.finder",
            "FindPlan": "fourfold.models.documents.indexes.finder",
            "SearchHit": "fourfold.models.documents.indexes.search",
            "SearchPage": "fourfold.models.documents.indexes.search",
            "TextSnippet": "fourfold.models.documents.indexes.search",
            "IndexInfo": "fourfold.models.documents.indexes.declaration",
            "Indexes": "fourfold.models.documents.indexes.indexes",
            "Match": "fourfold.models.documents.indexes.finder",
            "GcPolicy": "fourfold.models.documents.gc.policy",
            "HISTORIES": "fourfold.models.documents.histories",
            "History": "fourfold.models.documents.history",
            "LogEntry": "fourfold.models.documents.records",
            "MaintenanceReport": "fourfold.models.documents.snapshots",
            "MergeConflict": "fourfold.models.documents.merge",
            "MergeResult": "fourfold.models.documents.merge",
            "PendingRead": "fourfold.models.documents.records",
            "OURS": "fourfold.models.documents.field_merge",
            "BranchPoint": "fourfold.models.documents.ancestry",
            "Reads": "fourfold.models.documents.records",
            "RemovedCount": "fourfold.models.documents.gc.records",
            "Revision": "fourfold.models.documents.records",
            "Space": "fourfold.models.documents.space",
            "State": "fourfold.models.documents.records",
            "THEIRS": "fourfold.models.documents.field_merge",
            "Watch": "fourfold.models.documents.feed",
            "check_did": "fourfold.models.documents.validation",
        },
    )

__all__ = [
    "ABSENT",
    "DEFAULT_HISTORY",
    "HISTORIES",
    "OURS",
    "THEIRS",
    "BlobStat",
    "Branch",
    "BranchPoint",
    "Change",
    "Commit",
    "ConfirmedRead",
    "Difference",
    "Distance",
    "Documents",
    "Facet",
    "FindPage",
    "FindPlan",
    "GcPolicy",
    "GcReport",
    "History",
    "IndexInfo",
    "Indexes",
    "LogEntry",
    "MaintenanceReport",
    "Match",
    "MergeConflict",
    "MergeResult",
    "PendingRead",
    "Reads",
    "RemovedCount",
    "Revision",
    "SearchHit",
    "SearchPage",
    "Space",
    "SpaceInfo",
    "State",
    "TextSnippet",
    "Watch",
    "check_did",
]
