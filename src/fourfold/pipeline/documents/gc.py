"""Gc of a space by its own policy.

A space without a policy is left unchanged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from fourfold.errors import FourfoldError
from fourfold.models.documents.documents import read_space
from fourfold.models.documents.gc.marks import mark
from fourfold.models.documents.gc.records import KINDS
from fourfold.pipeline.gc_tasks import Collector, MarkResult
from fourfold.pipeline.store_files import StoreFile
from fourfold.store import open_store


def describe(files: int, with_policy: int) -> str:
    """Return a summary of the examined files."""
    return f"{with_policy} of {files} spaces have a policy"


def mark_file(file: StoreFile, grace_s: float) -> MarkResult:
    """Mark what may be removed from one space by its own policy, which defines the age."""
    del grace_s
    path = Path(file.path)
    result = MarkResult(file.root, file.path, file.space)
    try:
        with read_space(path, file.space) as space:
            policy = space.gc_policy()
            if policy is None:
                return result
            horizon, tally = mark(space, policy)
    except FourfoldError as error:
        return msgspec.structs.replace(result, problem=f"{error.kind}: {error.message}")
    counts = {kind: removed.count for kind, removed in tally.items()}
    return msgspec.structs.replace(result, has_policy=True, horizon=horizon, counts=counts)


def collect(result: MarkResult, grace_s: float) -> tuple[dict[str, int], int]:
    """Collect one space; return the number of removed items by kind, and the bytes."""
    del grace_s
    with open_store(result.root) as store:
        report = store.space(result.space).gc()
    return {kind: getattr(report, kind).count for kind in KINDS}, report.bytes


COLLECTOR: Final = Collector(KINDS, "space", describe, mark_file, collect)
