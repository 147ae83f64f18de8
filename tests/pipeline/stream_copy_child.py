"""Copies the streams of one store into another by a query; as a program it kills itself.

`stream_copy_child.py SOURCE TARGET CHECKPOINT WINDOW BATCH`: the driver, the JVM and the committing
process are killed at that point of that batch:

    streams     after the first stream has its records and before the second has
    commit      after the sink has committed and before Spark has heard of it
"""

from __future__ import annotations

import os
import signal
import sys
import time

from pyspark.errors import PySparkException

from fourfold.models.streams import Streams
from fourfold.pipeline import session
from fourfold.pipeline.source import FourfoldSource

TOO_BUSY = ("failed to connect back", "waiting for the Python worker to connect back")
# What Spark's own processes need is all in this file: they get it with the source.
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
        .options(root=str(source), model="streams", table="records", max_rows="25")
        .load()
        .select("stream", "payload", "offset")
    )
    query = (
        rows.writeStream.format("fourfold")
        .options(
            root=str(target),
            model="streams",
            order="offset",
            content_type="application/json",
            checkpointLocation=str(checkpoint),
        )
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
                if os.environ[WINDOW] == "streams":
                    write_and_die_before_the_next_stream()
                commit(messages, batchId)
                die()
            commit(messages, batchId)

        writer.commit = dying
        return writer


def write_and_die_before_the_next_stream():
    append = Streams.append
    written = []

    def once(self, name, request):
        if written:
            die()
        done = append(self, name, request)
        written.append(name)
        return done

    Streams.append = once


def die():
    os.killpg(int(os.environ[DRIVER]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def main(source, target, checkpoint, window, batch):
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
    spark.dataSource.register(DyingSource)
    copy(spark, source, target, checkpoint)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
