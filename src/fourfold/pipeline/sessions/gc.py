"""Gc of the sessions of a store: deleted sessions and unreferenced payloads.

What is deleted is removed once it is older than the grace period. Stored retention policies are not
applied: the job removes what its dry run shows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from fourfold.errors import FourfoldError
from fourfold.models.sessions import payloads
from fourfold.models.sessions.request_builder import RequestBuilder
from fourfold.pipeline.gc_tasks import Collector, MarkResult
from fourfold.pipeline.sessions.tables import open_files, open_log
from fourfold.pipeline.store_files import StoreFile
from fourfold.store import open_store

_KINDS: Final = ("sessions", "events", "payloads")


def describe(files: int, with_policy: int) -> str:
    """Return a summary of the examined files."""
    del with_policy
    return f"{files} {'file' if files == 1 else 'files'} of sessions examined"


def mark_file(file: StoreFile, grace_s: float) -> MarkResult:
    """Mark what gc would remove from one file."""
    result = MarkResult(file.root, file.path, file.space)
    files = open_files(file.path)
    try:
        cutoff = RequestBuilder(lambda: datetime.now(UTC), files).cutoff(grace_s)
        with open_log(file.path) as log:
            marks = payloads.mark(log, files, cutoff)
    except FourfoldError as error:
        return msgspec.structs.replace(result, problem=f"{error.kind}: {error.message}")
    counts = {kind: getattr(marks, kind) for kind in _KINDS}
    return msgspec.structs.replace(result, has_policy=True, counts=counts)


def collect(result: MarkResult, grace_s: float) -> tuple[dict[str, int], int]:
    """Run gc on the sessions of a store; return the removed items by kind, and the bytes."""
    with open_store(result.root) as store:
        report = store.sessions.gc(grace_s, retention=False)
    return {kind: getattr(report, kind) for kind in _KINDS}, report.bytes


COLLECTOR: Final = Collector(_KINDS, "session", describe, mark_file, collect)
