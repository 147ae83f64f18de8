"""What `materialize` keeps of graphs: current objects of all apps, with their types and apps.

A rating hides objects that were written long before it, so what is current is not told by what is
new: every run that has something new writes the tables anew.
"""

from __future__ import annotations

from typing import Final

from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.jobs.refresh import KeptTable

_SQL: Final = load_queries("fourfold.pipeline.graphs", "tables.sql")
TABLES: Final = (
    KeptTable("current", ("app_id", "kind", "object_id")),
    KeptTable("types", ("app_id", "type_id")),
    KeptTable("apps", ("app_id",)),
)
NOUN: Final = "object"
WHOLE: Final = True


def generation(mark: FileBound) -> int:
    """Another number once an app was added: that takes no number."""
    return len(cuts.fetch_rows(mark, _SQL.all_apps))
