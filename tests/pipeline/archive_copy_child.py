"""Copy the archive of one store into another store as a stream; as a program it can be killed.

`archive_copy_child.py ARCHIVE TARGET CHECKPOINT [WINDOW BATCH]`, with the windows of `copy_child`.
"""

from __future__ import annotations

import sys

from copy_child import DyingBetweenSpaces
from dying_copies import copied, repeated, run


def copy(spark, *places):
    """Copy everything in batches of about 25 rows."""
    repeated(copy_once, spark, *places)


def copy_once(spark, archive, target, checkpoint):
    rows = (
        spark.readStream.format("fourfold")
        .options(archive=str(archive), table="documents.revision", max_rows="25")
        .load()
        .select("space", "branch", "id", "op", "data", "seq", "op_index")
    )
    copied(rows, target, checkpoint)


if __name__ == "__main__":
    run(copy, DyingBetweenSpaces, sys.argv[1:4], *sys.argv[4:])
