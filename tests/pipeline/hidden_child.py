"""A driver on a cluster whose executors cannot see its folders: reads tables of every model.

`hidden_child.py ADDRESS ARCHIVE ROOT`
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

from cluster_child import opened

from fourfold.pipeline import published, read, sql


def listed(batches, folders):
    """Return what a task sees of folders."""
    import pyarrow as pa  # noqa: PLC0415 - in a task

    for _ in batches:
        pass
    names = [sorted(path.name for path in Path(each).iterdir()) for each in folders]
    yield pa.RecordBatch.from_pydict({"seen": [json.dumps(names)]})


def main(address, archive, root):
    spark = opened(address, archive)
    folders = (root, os.environ["FOURFOLD_PIPELINE_CACHE_FOLDER"])
    revisions = read(spark, root=root, table="revisions")
    report = {"revisions": revisions.count()}
    seen = revisions.mapInArrow(partial(listed, folders=folders), "seen string").collect()
    report["seen"] = json.loads(seen[0].seen)

    def column(table, name, **options):
        rows = read(spark, root=root, table=table, **options).collect()
        return sorted(row[name] for row in rows)

    report["state"] = column("state", "document")
    report["history"] = len(column("history", "seq"))
    report["view"] = column("view", "session", model="sessions")
    report["current"] = column("current", "type", model="graphs")
    report["messages"] = column("messages", "text", model="streams")
    published_records = published(spark, Path(root) / "objects")
    report["published"] = sorted(row.text for row in published_records.collect())
    query = "select space, count(*) from revisions where space like '%s0%' group by 1"
    report["sql"] = [list(row) for row in sql(spark, query, root)[0].collect()]
    spark.stop()
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
