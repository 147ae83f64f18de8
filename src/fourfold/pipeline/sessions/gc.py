"""What may go of the sessions of a store: those that were deleted, and payloads that nobody reads.

There is no policy to ask: what is deleted goes, once it is older than the grace age.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from fourfold.errors import FourfoldError
from fourfold.models.sessions import payloads
from fourfold.models.sessions.prepared import RequestBuilder
from fourfold.pipeline.cut import StoreFile
from fourfold.pipeline.gc_tasks import MarkResult
from fourfold.pipeline.sessions.tables import files_beside, log_in
from fourfold.store import open_store

KINDS: Final = ("sessions", "events", "payloads")
NOUN: Final = "session"


def looked_at(files: int, with_policy: int) -> str:
    """What a person is told of what was looked at."""
    del with_policy
    return f"{files} {'file' if files == 1 else 'files'} of sessions looked at"


def marked(file: StoreFile, grace_s: float) -> MarkResult:
    """What a collection would remove of one file."""
    seen = MarkResult(file.root, file.path, file.space)
    files = files_beside(file.path)
    try:
        cutoff = RequestBuilder(lambda: datetime.now(UTC), files).cutoff(grace_s)
        with log_in(file.path) as log:
            found = payloads.mark(log, files, cutoff)
    except FourfoldError as error:
        return msgspec.structs.replace(seen, problem=f"{error.kind}: {error.message}")
    counts = {kind: getattr(found, kind) for kind in KINDS}
    return msgspec.structs.replace(seen, has_policy=True, counts=counts)


def collected(each: MarkResult, grace_s: float) -> tuple[dict[str, int], int]:
    """Let the sessions of a store collect themselves: what went, and how many bytes."""
    with open_store(each.root) as store:
        done = store.sessions.gc(grace_s)
    return {kind: getattr(done, kind) for kind in KINDS}, done.bytes
