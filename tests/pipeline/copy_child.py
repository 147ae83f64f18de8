"""Copies one store into another as a stream; as a program it can be killed, or kill itself.

`copy_child.py SOURCE TARGET CHECKPOINT [WINDOW BATCH]`: with a window, the driver, the JVM and the
committing process are killed at that point of that batch:

    spaces      after the first space has its commit and before the second has
    commit      after the sink has committed and before Spark has heard of it
"""

from __future__ import annotations

import os
import signal
import sys
import time

from pyspark.errors import PySparkException

from fourfold.pipeline import ingest, session
from fourfold.pipeline.source import FourfoldSource

TOO_BUSY = ("failed to connect back", "waiting for the Python worker to connect back")
WINDOW, BATCH, DRIVER = "COPY_WINDOW", "COPY_BATCH", "COPY_DRIVER"


def copy(spark, *places):
    """All that is there, in batches of about 25 rows."""
    for _ in range(5):
        try:
            copy_once(spark, *places)
        except PySparkException as error:
            # Spark gives a Python process ten seconds to start, which a busy machine may not have.
            if not any(words in str(error) for words in TOO_BUSY):
                raise
        else:
            return
    raise AssertionError("Python processes of Spark's do not start in time")


def copy_once(spark, source, target, checkpoint):
    rows = (
        spark.readStream.format("fourfold")
        .options(root=str(source), table="revisions", max_rows="25")
        .load()
        .select("space", "branch", "id", "op", "data", "seq", "op_index")
    )
    query = (
        rows.writeStream.format("fourfold")
        .options(root=str(target), checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


class DyingSource(FourfoldSource):
    """The source and sink as they are, in a process that dies at a window."""

    def streamWriter(self, schema, overwrite):  # noqa: N802
        writer = super().streamWriter(schema, overwrite)
        commit = writer.commit

        def dying(messages, batchId):  # noqa: N803
            if batchId == int(os.environ[BATCH]):
                if os.environ[WINDOW] == "spaces":
                    write_and_die_before_the_next_space()
                commit(messages, batchId)
                die()
            commit(messages, batchId)

        writer.commit = dying
        return writer


def write_and_die_before_the_next_space():
    write = ingest._write
    written = []

    def once(space, rows, batch, *, trial=False):
        if written:
            die()
        done = write(space, rows, batch, trial=trial)
        if not trial:
            written.append(space.did)
        return done

    ingest._write = once


def die():
    os.killpg(int(os.environ[DRIVER]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def main(source, target, checkpoint, window="", batch="0"):
    os.environ[DRIVER] = str(os.getpgid(0))
    os.environ[WINDOW], os.environ[BATCH] = window, batch
    spark = session(
        "local[2]",
        **{
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "OFF",
        },
    )
    if window:
        spark.dataSource.register(DyingSource)
    copy(spark, source, target, checkpoint)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
