"""Several that are at work in one folder of segments at the same time."""

from __future__ import annotations

import pytest
from node import Node

from fourfold.models.streams.archive import Policy, sealer
from fourfold.models.streams.archive.records import SQL
from fourfold.models.streams.archive.sealer import Sealable
from fourfold.models.streams.archive.throttle import Throttle
from fourfold.objects import MemoryStore

POLICY = Policy()


class Meanwhile(Throttle):
    """Does something else while a file is half written."""

    def __init__(self, act):
        super().__init__(lambda: 0)
        self._act = act

    def through(self, items):
        for number, item in enumerate(items):
            if number == 1:
                self._act()
            yield item


@pytest.fixture
def node(tmp_path):
    """With a stream of several row groups."""
    node = Node(tmp_path / "node", MemoryStore(), POLICY)
    node.streams.create("a", "text/plain").append([b"x" * 600_000] * 4)
    yield node
    node.close()


def seal(node, act):
    folder = node.archive.folder / "local"
    return sealer.seal(
        node.database, "a", policy=POLICY, folder=folder, now_ms=0, pace=Meanwhile(act)
    )


def test_an_archive_that_opens_leaves_alone_what_is_being_sealed(node):
    unfinished = []

    def act():
        unfinished.extend(node.archive.folder.rglob("*.partial"))
        node.open_archive()

    assert seal(node, act).rows == 4
    assert len(unfinished) == 1
    assert not list(node.archive.folder.rglob("*.partial"))
    assert node.archive.publish_all().failures == {}


def test_an_archive_that_opens_clears_what_a_crash_left(node):
    left = node.archive.folder / "local" / ".left.partial"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"half")
    node.open_archive()
    assert not left.exists()


def test_builders_of_one_segment_keep_to_their_own_files(node):
    folder = node.root / "made"
    with node.database.read() as snapshot:
        found = Sealable._make(snapshot.one(SQL.sealable, ("a",)))

        def build(pace):
            return sealer.build(snapshot, "a", found, policy=POLICY, folder=folder, pace=pace)

        others = []
        first = build(Meanwhile(lambda: others.append(build(Throttle(lambda: 0)))))
    assert others == [first]
    assert [path.name for path in folder.rglob("*.p*") if path.is_file()] == [first[1].name]
