"""A writer of a Delta table is killed with SIGKILL at every PUT; nothing committed is lost."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from delta_tables import rows_in

from fourfold.archive.delta_log import DeltaLog
from fourfold.kernel import failpoints
from fourfold.objects import FolderStore
from support import crash

CHILD = Path(__file__).with_name("delta_child.py")
delta = pytest.importorskip("deltalake")


def check(root, acknowledged):
    """Every acknowledged number of each writer is there, once; one more may be."""
    with FolderStore(root) as objects:
        log = DeltaLog(objects, "t")
        snapshot = log.snapshot()
        rows = rows_in(log, objects, snapshot)
        table = delta.DeltaTable(str(root / "t+"))
        assert table.version() == snapshot.version
        assert table.to_pyarrow_table().num_rows == len(rows)
    for writer, last in acknowledged.items():
        numbers = sorted(n for name, n in rows if name == writer)
        assert numbers == list(range(len(numbers)))
        assert len(numbers) in {last + 1, last + 2}
        assert snapshot.txns[writer].version == numbers[-1]


@pytest.mark.parametrize("point", failpoints.DELTA_POINTS)
def test_writer_killed_at_every_put_continues(tmp_path, point):
    root = tmp_path / "objects"
    acknowledged = {"a": -1}
    for hit in (1, 3):
        death = crash.run(CHILD, str(root), "a", fault=f"{point}=kill@{hit}")
        assert death.killed, death
        for line in death.lines:
            acknowledged["a"] = max(acknowledged["a"], int(line.split()[1]))
        if acknowledged["a"] >= 0:
            check(root, acknowledged)


def test_writers_killed_at_random_times_lose_nothing(tmp_path):
    root = tmp_path / "objects"
    random = Random(3)
    acknowledged = {}
    for turn in range(4):
        writer = "ab"[turn % 2]
        kill = crash.Moment(random.randint(0, 20), random.uniform(0, 0.02))
        death = crash.run(CHILD, str(root), writer, kill=kill)
        assert death.killed, death
        for line in death.lines:
            acknowledged[writer] = max(acknowledged.get(writer, -1), int(line.split()[1]))
        check(root, acknowledged)
