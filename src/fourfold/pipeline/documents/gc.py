"""What may go of a space, by its own policy; and its collection.

A space without a policy is left as it is.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from fourfold.errors import FourfoldError
from fourfold.kernel import Database
from fourfold.models.documents.gc.marks import mark
from fourfold.models.documents.gc.records import KINDS
from fourfold.models.documents.space import Space
from fourfold.pipeline.cut import StoreFile
from fourfold.pipeline.gc_tasks import MarkResult
from fourfold.store import open_store
from fourfold.store.space_verify import history_in

__all__ = ["KINDS", "NOUN", "collected", "looked_at", "marked"]
NOUN = "space"


def looked_at(files: int, with_policy: int) -> str:
    """What a person is told of what was looked at."""
    return f"{with_policy} of {files} spaces have a policy"


def marked(file: StoreFile, grace_s: float) -> MarkResult:
    """What may go of one space by its own policy, which says by itself how old."""
    del grace_s
    path = Path(file.path)
    seen = MarkResult(file.root, file.path, file.space)
    try:
        history = history_in(path)
        with Database.open(
            path,
            profile=history.profile,
            migrations=history.migrations,
            sequences=(history.seq,),
            mode="r",
        ) as database:
            space = Space(file.space, database, history)
            policy = space.gc_policy()
            if policy is None:
                return seen
            horizon, tally = mark(space, policy)
    except FourfoldError as error:
        return msgspec.structs.replace(seen, problem=f"{error.kind}: {error.message}")
    counts = {kind: removed.count for kind, removed in tally.items()}
    return msgspec.structs.replace(seen, has_policy=True, horizon=horizon, counts=counts)


def collected(each: MarkResult, grace_s: float) -> tuple[dict[str, int], int]:
    """Let a space collect itself: how many of each kind went, and how many bytes."""
    del grace_s
    with open_store(each.root) as store:
        done = store.space(each.space).gc()
    return {kind: getattr(done, kind).count for kind in KINDS}, done.bytes
