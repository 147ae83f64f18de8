"""A driver on a cluster: reads, writes and runs jobs there, and reports the results.

`cluster_child.py ADDRESS ARCHIVE ROOT TARGET OUT`; an address `sc://...` is a Connect server.
"""

from __future__ import annotations

import json
import os
import sys

from fourfold.pipeline import jobs, read, session

DID = "did:web:s0.example"


def seen_from_a_task(batches):
    """Return the process of a task and the location of its package."""
    import pyarrow as pa  # noqa: PLC0415 - in a task

    import fourfold  # noqa: PLC0415

    rows = sum(batch.num_rows for batch in batches)
    seen = json.dumps([os.getpid(), os.environ.get("SPARK_EXECUTOR_DIRS", ""), fourfold.__file__])
    yield pa.RecordBatch.from_pydict({"seen": [seen], "rows": [rows]})


def opened(address, archive):
    if address.startswith("sc://"):
        return session(remote=address)
    return session(
        address,
        **{
            "spark.submit.pyFiles": archive,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "OFF",
        },
    )


def main(address, archive, root, target, out):
    spark = opened(address, archive)
    revisions = (
        spark.read.format("fourfold")
        .options(root=root, table="revisions", partition_bytes="1")
        .load()
    )
    report = {"rows": revisions.count()}
    seen = revisions.mapInArrow(seen_from_a_task, "seen string, rows bigint").collect()
    report["seen"] = [json.loads(row["seen"]) for row in seen if row["rows"]]
    one = read(spark, root=root, table="revisions", space=DID).select("id", "seq", "data")
    report["read"] = sorted(map(list, one.collect()))
    copied = revisions.select("space", "branch", "id", "op", "data", "seq", "op_index")
    for _ in range(2):
        writer = copied.write.format("fourfold").mode("append")
        writer.options(root=target, job="copy").save()
    report["materialize"] = jobs.run("materialize", root, {"into": out}, spark=spark).rows_out
    if "verify" in jobs.all_jobs():
        report["verify"] = jobs.run("verify", root, {}, spark=spark).outcome
    spark.stop()
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
