"""Tables that `materialize` writes for streams: the values of state streams, and the streams.

A deletion removes the value of a key, and streams are created and deleted without a record:
every run with a change rewrites the tables.
"""

from __future__ import annotations

import hashlib
from typing import Final

from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.jobs.materialize import FileTables
from fourfold.pipeline.jobs.table_folder import FolderTable

_SQL: Final = load_queries("fourfold.query.streams", "tables.sql")


def generation(bound: FileBound) -> int:
    """Return a number that changes when a stream changes in another way than by a record."""
    [sums] = cuts.fetch_rows(bound, _SQL.generation)
    digest = hashlib.sha256(repr(tuple(sums)).encode()).digest()
    return int.from_bytes(digest[:7])


MATERIALIZER: Final = FileTables(
    (FolderTable("state", ("stream", "type", "key")), FolderTable("streams", ("stream",))),
    "value",
    generation,
    rewritten=True,
)
