"""Copy the streams of one store into another by a query; as a program it kills itself.

`stream_copy_child.py SOURCE TARGET CHECKPOINT WINDOW BATCH`: the driver, the JVM and the committing
process are killed at that point of that batch:

    streams     after the records of the first stream and before those of the second
    commit      after the sink has committed and before Spark has recorded it
"""

from __future__ import annotations

import sys

from dying_copies import DyingSource, copied, repeated, run

from fourfold.models.streams import Streams


def copy(spark, *places):
    """Copy everything in batches of about 25 rows."""
    repeated(copy_once, spark, *places)


def copy_once(spark, source, target, checkpoint):
    rows = (
        spark.readStream.format("fourfold")
        .options(root=str(source), model="streams", table="records", max_rows="25")
        .load()
        .select("stream", "payload", "offset")
    )
    options = {"model": "streams", "order": "offset", "content_type": "application/json"}
    copied(rows, target, checkpoint, **options)


class DyingBetweenStreams(DyingSource):
    half_way = "streams"

    def die_half_way(self):
        die = self.die
        append = Streams.append
        written = []

        def once(self, name, request):
            if written:
                die()
            done = append(self, name, request)
            written.append(name)
            return done

        Streams.append = once


if __name__ == "__main__":
    run(copy, DyingBetweenStreams, sys.argv[1:4], *sys.argv[4:])
