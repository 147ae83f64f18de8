"""Shared code of the children that copy stores: retries on a busy machine, and processes that die
at a window of a copy.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from pyspark import cloudpickle
from pyspark.errors import PySparkException

from fourfold.pipeline import session
from fourfold.pipeline.source import FourfoldSource
from fourfold.pipeline.spark import register

TOO_BUSY = ("failed to connect back", "waiting for the Python worker to connect back")


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
    """The name of the window that a subclass arranges."""

    window = ""
    batch = 0
    driver = 0
    """The process group that dies with this process; 0 for none."""

    def die_half_way(self):
        """Arrange that this process dies when half of the batch is written."""
        raise NotImplementedError

    def streamWriter(self, schema, overwrite):  # noqa: N802
        writer = super().streamWriter(schema, overwrite)
        commit = writer.commit

        def dying(messages, batchId):  # noqa: N803
            if batchId == self.batch:
                if self.window == self.half_way:
                    self.die_half_way()
                commit(messages, batchId)
                self.die()
            commit(messages, batchId)

        writer.commit = dying
        return writer

    def die(self):
        if self.driver:
            os.killpg(self.driver, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


def dying_at(source, window, batch, driver=0):
    """Return a dying source whose process dies at a window of a batch."""
    return type(source.__name__, (source,), {"window": window, "batch": batch, "driver": driver})


@contextmanager
def registered(spark, source):
    """Register a dying source in a running session, whose processes import no module of tests."""
    modules = [sys.modules[cls.__module__] for cls in (DyingSource, *source.__bases__)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        spark.dataSource.register(source)
        yield
    finally:
        register(spark)
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def run(copy, dying, places, window="", batch="0"):
    """Run a child: a session and the copy, with the dying source if a window is given."""
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
        spark.dataSource.register(dying_at(dying, window, int(batch), os.getpgid(0)))
    copy(spark, *places)
    spark.stop()
