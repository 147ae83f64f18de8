"""Copy one store into another as a stream; as a program it can be killed, or kill itself.

`copy_child.py SOURCE TARGET CHECKPOINT [WINDOW BATCH]`: with a window, the driver, the JVM and the
committing process are killed at that point of that batch:

    spaces      after the commit of the first space and before that of the second
    commit      after the sink has committed and before Spark has recorded it
"""

from __future__ import annotations

import sys

from dying_copies import DyingSource, copied, repeated, run

from fourfold.pipeline.documents import ingest


def copy(spark, *places):
    """Copy everything in batches of about 25 rows."""
    repeated(copy_once, spark, *places)


def copy_once(spark, source, target, checkpoint):
    rows = (
        spark.readStream.format("fourfold")
        .options(root=str(source), table="revisions", max_rows="25")
        .load()
        .select("space", "branch", "id", "op", "data", "seq", "op_index")
    )
    copied(rows, target, checkpoint)


class DyingBetweenSpaces(DyingSource):
    half_way = "spaces"

    def die_half_way(self):
        die = self.die
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


if __name__ == "__main__":
    run(copy, DyingBetweenSpaces, sys.argv[1:4], *sys.argv[4:])
