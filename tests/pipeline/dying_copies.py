"""Shared code of the children that copy stores: retries on a busy machine, and processes that die
at a window of a copy.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pyspark.errors import PySparkException

from fourfold.pipeline import session
from fourfold.pipeline.source import FourfoldSource

TOO_BUSY = ("failed to connect back", "waiting for the Python worker to connect back")
WINDOW, BATCH, DRIVER = "COPY_WINDOW", "COPY_BATCH", "COPY_DRIVER"


def repeated(copy_once, spark, *places):
    """Copy everything, repeatedly: Spark allows a Python process ten seconds to start, which may be
    too short on a busy machine.
    """
    for _ in range(5):
        try:
            copy_once(spark, *places)
        except PySparkException as error:
            if not any(words in str(error) for words in TOO_BUSY):
                raise
        else:
            return
    raise AssertionError("Python processes of Spark's do not start in time")


def copied(rows, target, checkpoint, **options):
    """Write a stream of rows into a store completely."""
    query = (
        rows.writeStream.format("fourfold")
        .options(root=str(target), checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


class DyingSource(FourfoldSource):
    """The source and sink in a process that dies at a window of a batch: half way through it, which
    a subclass arranges, or after the commit of the sink, before Spark records it.
    """

    half_way = ""

    @staticmethod
    def die_half_way():
        """Arrange that this process dies when half of the batch is written."""
        raise NotImplementedError

    def streamWriter(self, schema, overwrite):  # noqa: N802
        writer = super().streamWriter(schema, overwrite)
        commit = writer.commit

        def dying(messages, batchId):  # noqa: N803
            if batchId == int(os.environ[BATCH]):
                if os.environ[WINDOW] == self.half_way:
                    self.die_half_way()
                commit(messages, batchId)
                die()
            commit(messages, batchId)

        writer.commit = dying
        return writer


def die():
    os.killpg(int(os.environ[DRIVER]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def run(copy, dying, places, window="", batch="0"):
    """Run a child: a session and the copy, with the dying source if a window is given."""
    os.environ[DRIVER] = str(os.getpgid(0))
    os.environ[WINDOW], os.environ[BATCH] = window, batch
    # Spark's processes import this module from here.
    result = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, result))
    spark = session(
        "local[2]",
        **{
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "OFF",
        },
    )
    if window:
        spark.dataSource.register(dying)
    copy(spark, *places)
    spark.stop()
