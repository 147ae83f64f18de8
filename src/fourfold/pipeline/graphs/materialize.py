"""Tables that `materialize` writes for graphs: current objects of all apps, types and apps.

A rating hides objects that were written long before it, so the current objects do not follow from
new rows alone: every run with new rows rewrites the tables.
"""

from __future__ import annotations

from typing import Final

from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.jobs.materialize import FileTables
from fourfold.pipeline.jobs.table_folder import FolderTable

_SQL: Final = load_queries("fourfold.query.graphs", "tables.sql")


def generation(bound: FileBound) -> int:
    """Return a number that changes when an app is added, which has no seq."""
    return len(cuts.fetch_rows(bound, _SQL.all_apps))


MATERIALIZER: Final = FileTables(
    (
        FolderTable("current", ("app_id", "kind", "object_id")),
        FolderTable("types", ("app_id", "type_id")),
        FolderTable("apps", ("app_id",)),
    ),
    "object",
    generation,
    rewritten=True,
)
