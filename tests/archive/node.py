"""A node of its own for a test: streams, their archive, and a clock that stands still."""

from __future__ import annotations

from fourfold.archive import manifest
from fourfold.errors import NotFound
from fourfold.kernel import Database
from fourfold.models.streams import MIGRATIONS, PROFILE, Streams
from fourfold.models.streams.archive import LOCAL, Archive, ColdReader, Policy, bootstrap
from fourfold.retry import Retries

SMALL = Policy(seal_bytes=40, seal_rows=4, seal_age_s=60.0, concurrency=2)


class Node:
    def __init__(
        self,
        root,
        objects,
        policy=SMALL,
        *,
        synchronous="OFF",
        archived=True,
        publish_first=False,
    ):
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.objects = objects
        self.now = 1_000_000
        self.database = Database.open(
            root / "wal.sqlite",
            profile=PROFILE.with_(synchronous=synchronous),
            migrations=MIGRATIONS,
        )
        self.streams = Streams(
            self.database,
            clock=lambda: self.now,
            cold=ColdReader(lambda: self.archive.segments, root / "segments" / LOCAL),
            publish_on_write=self.settle if publish_first else None,
        )
        self.policy = policy
        if archived:
            self.open_archive()

    def open_archive(self):
        self.archive = Archive(
            self.database,
            self.objects,
            self.root / "segments",
            clock=lambda: self.now,
            policy=self.policy,
            retries=Retries(pause_s=0.0),
        )

    def settle(self, name):
        self.archive.settle(name)

    def bootstrap(self, progress=None):
        return bootstrap(
            self.database,
            self.objects,
            now_ms=self.now,
            retries=Retries(pause_s=0.0),
            progress=progress,
        )

    def close(self):
        self.database.close()

    def write(self, name, count, start=0, size=1):
        """A stream of numbered records; the records."""
        try:
            stream = self.streams.open(name)
        except NotFound:
            stream = self.streams.create(name, "text/plain")
        records = [f"{name}-{number}".encode() * size for number in range(start, start + count)]
        for record in records:
            stream.append([record])
        return records

    def read(self, name, at="-1"):
        found = []
        while True:
            _, chunk = self.streams.read(name, at, records_max=3)
            found += [record.payload for record in chunk.records]
            at = chunk.offset
            if chunk.up_to_date:
                return found

    def row(self, name):
        """The row of a stream, by column."""
        with self.database.read() as snapshot:
            names = [r[0] for r in snapshot.all("SELECT name FROM pragma_table_info('streams')")]
            row = snapshot.one("SELECT * FROM streams WHERE stream = ?1", (name,))
        return dict(zip(names, row, strict=True))

    def log(self, name):
        """The offsets that are in the log."""
        with self.database.read() as snapshot:
            rows = snapshot.all("SELECT offset FROM wal WHERE stream = ?1 ORDER BY offset", (name,))
        return [row[0] for row in rows]


def keys(objects, ending=""):
    return [info.key for info in objects.list("streams/") if info.key.endswith(ending)]


def read_manifest(objects, name):
    key = manifest.manifest_key(name)
    return manifest.decode(objects.get(key).data, key)
