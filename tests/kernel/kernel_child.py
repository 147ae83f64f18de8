"""The workload of the kernel's crash suites, and what must hold after any crash.

Run as a script it is the child that gets killed: `python kernel_child.py '<job as JSON>'`.
Imported, it gives the tests the same schema, the same workloads and `check_database`, the one list
of invariants.

One request writes two `entry` rows and one `mark` row under one number of one sequence, and moves
the `tally` of its key. The mark carries a checksum of the entries, and so does the acknowledgement.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import threading
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from fourfold.errors import Busy, Conflict, NotFound
from fourfold.kernel import (
    Database,
    GroupLimits,
    Migration,
    Options,
    Sequence,
    holder,
    inspection,
    profiles,
    read_sidecar,
    verify_backup,
)
from support.crash import acknowledge, ready

SCRIPT = Path(__file__)
SEQUENCE = Sequence.named("entries", used="SELECT max(seq) FROM mark")
FIRST = Migration(
    1,
    "log",
    """
    CREATE TABLE entry (
        seq INTEGER NOT NULL, part INTEGER NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (seq, part)
    );
    CREATE TABLE mark (seq INTEGER PRIMARY KEY, key TEXT NOT NULL, checksum TEXT NOT NULL);
    CREATE INDEX mark_key ON mark (key, seq);
    CREATE TABLE tally (key TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
    """,
)
LATER = (
    Migration(
        2,
        "sizes",
        "ALTER TABLE entry ADD COLUMN size INTEGER; UPDATE entry SET size = length(body);",
    ),
    Migration(
        3,
        "digests",
        "CREATE TABLE digest (seq INTEGER PRIMARY KEY, value TEXT NOT NULL)",
        lambda txn: txn.insert_many(
            "digest", ("seq", "value"), txn.all("SELECT seq, checksum FROM mark")
        ),
    ),
    Migration(4, "by_size", "CREATE INDEX entry_size ON entry (size)"),
)
KEYS = tuple(f"key-{number}" for number in range(7))
DOOMED = b"doomed"


class Doomed(Exception):
    """A request that fails on purpose."""


@dataclass(frozen=True)
class Job:
    """What a child does, in words that fit into one argument."""

    mode: str
    path: str
    seed: int = 0
    synchronous: str = "FULL"
    checkpoint_pages: int = 1000
    placement: str = "auto"
    steps: int = 1_000_000
    backup: str = ""
    advance: bool = True

    def argument(self):
        return json.dumps(asdict(self))


def open_database(job, *, migrations=(FIRST,), vfs=None):
    return Database.open(
        job.path,
        profile=profiles.PLAIN.with_(synchronous=job.synchronous),
        migrations=migrations,
        sequences=(SEQUENCE,),
        options=Options(
            checkpoint_bytes=4096 * job.checkpoint_pages, group=GroupLimits(placement=job.placement)
        ),
        vfs=vfs,
    )


def open_to_read(path, migrations=(FIRST,)):
    return Database.open(
        path, profile=profiles.PLAIN, migrations=migrations, sequences=(SEQUENCE,), mode="r"
    )


# What a request writes


def bodies(random):
    """Mostly small, now and then larger than a page."""
    longest = 9000 if random.random() < 0.02 else 120
    return tuple(random.randbytes(random.randint(0, longest)) for _ in range(2))


def checksum_of(key, pair):
    digest = hashlib.sha256(key.encode())
    for body in pair:
        digest.update(len(body).to_bytes(4))
        digest.update(body)
    return digest.hexdigest()[:16]


def write_one(txn, key, pair):
    """One request; its acknowledgement, to be said once the commit has returned."""
    seq = txn.claim(SEQUENCE)
    checksum = checksum_of(key, pair)
    txn.execute("INSERT INTO entry (seq, part, key, body) VALUES (?, 0, ?, ?)", (seq, key, pair[0]))
    txn.execute("INSERT INTO mark VALUES (?, ?, ?)", (seq, key, checksum))
    txn.execute("INSERT INTO entry (seq, part, key, body) VALUES (?, 1, ?, ?)", (seq, key, pair[1]))
    _count(txn, key, 1)
    return f"entry {seq} {checksum}"


def write_series(txn, key, pairs):
    """Many numbers of one key, at the speed of C."""
    first = txn.claim(SEQUENCE, len(pairs))
    for part in (0, 1):
        txn.insert_series(
            "entry",
            fixed={"part": part, "key": key},
            counter=("seq", first),
            values=("body", [pair[part] for pair in pairs]),
        )
    marks = [(first + i, key, checksum_of(key, pair)) for i, pair in enumerate(pairs)]
    txn.insert_many("mark", ("seq", "key", "checksum"), marks)
    _count(txn, key, len(pairs))
    return [f"entry {seq} {checksum}" for seq, _, checksum in marks]


def _count(txn, key, more):
    txn.execute(
        "INSERT INTO tally VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET count = count + ?2",
        (key, more),
    )


def write_and_fail(txn, key):
    write_one(txn, key, (DOOMED, DOOMED))
    raise Doomed


def write_a_number_twice(txn, key):
    write_one(txn, key, (DOOMED, DOOMED))
    txn.execute("INSERT INTO mark SELECT * FROM mark LIMIT 1")


# Workloads


@dataclass
class Workload:
    """Callers of one database. `say` receives acknowledgements, from any thread."""

    db: Database
    say: object = acknowledge
    seed: int = 0
    steps: int = 1_000_000
    folder: Path = field(default_factory=Path)

    def run(self, mode):
        getattr(self, f"run_{mode}")()

    def run_thread(self):
        random = self._random("thread")
        for _ in range(self.steps):
            self._plain(random)

    def run_threads(self, count=8):
        self._in_threads([self._repeat(self._plain, f"thread-{i}") for i in range(count)])

    def run_coroutines(self, count=64):
        asyncio.run(self._coroutines(count))

    def run_mixture(self):
        """Everything at once: plain, bulk, failing and nested writers, coroutines, upkeep."""
        self._in_threads(
            [
                *(self._repeat(self._any_request, f"any-{i}") for i in range(4)),
                lambda: asyncio.run(self._coroutines(16)),
                self._repeat(self._upkeep, "upkeep", every=8),
            ]
        )

    def run_requests(self):
        """The requests of the mixture from one thread: the same order for the same seed."""
        random = self._random("requests")
        for step in range(self.steps):
            self._any_request(random)
            if step % 16 == 15:
                self._upkeep(random)

    def _random(self, name):
        return Random(f"{self.seed} {name}")

    def _repeat(self, action, name, every=1):
        def loop():
            random = self._random(name)
            for _ in range(-(-self.steps // every)):
                action(random)

        return loop

    def _in_threads(self, loops):
        failures = []

        def guarded(loop):
            try:
                loop()
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=guarded, args=(loop,), daemon=True) for loop in loops]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures

    def _plain(self, random):
        key, pair = random.choice(KEYS), bodies(random)
        self.say(self.db.transact(lambda txn: write_one(txn, key, pair), size=300))

    async def _coroutines(self, count):
        async def caller(name):
            random = self._random(name)
            for _ in range(self.steps):
                key, pair = random.choice(KEYS), bodies(random)
                if random.random() < 0.05:
                    await self._fails_async(key)
                self.say(await self.db.transact_async(lambda txn: write_one(txn, key, pair)))  # noqa: B023

        await asyncio.gather(*(caller(f"coroutine-{i}") for i in range(count)))

    async def _fails_async(self, key):
        try:
            await self.db.transact_async(lambda txn: write_and_fail(txn, key))
        except Doomed:
            return
        raise AssertionError("a request that raised was acknowledged")

    def _any_request(self, random):
        action = random.choices(
            (self._plain, self._bulk, self._block, self._fails, self._conflicts, self._durable),
            (8, 2, 3, 2, 1, 2),
        )[0]
        action(random)

    def _bulk(self, random):
        key = random.choice(KEYS)
        pairs = [bodies(random) for _ in range(random.randint(1, 40))]
        self.say(*self.db.transact(lambda txn: write_series(txn, key, pairs), size=20_000))

    def _block(self, random):
        """A transaction of its own, with a step that is kept and one that is undone."""
        key = random.choice(KEYS)
        with self.db.write() as txn:
            lines = [write_one(txn, key, bodies(random))]
            with txn.savepoint() as step:
                lines.append(write_one(step, random.choice(KEYS), bodies(random)))
            try:
                with txn.savepoint() as step:
                    write_and_fail(step, key)
            except Doomed:
                lines.append(write_one(txn, key, bodies(random)))
        self.say(*lines)

    def _fails(self, random):
        key = random.choice(KEYS)
        try:
            if random.random() < 0.5:
                self.db.transact(lambda txn: write_and_fail(txn, key))
            else:
                with self.db.write() as txn:
                    write_and_fail(txn, key)
        except Doomed:
            return
        raise AssertionError("a request that raised was acknowledged")

    def _conflicts(self, random):
        key = random.choice(KEYS)
        try:
            self.db.transact(lambda txn: write_a_number_twice(txn, key))
        except Conflict:
            return
        raise AssertionError("a request that broke a constraint was acknowledged")

    def _upkeep(self, random):
        action = random.choice((self._checkpoint, self._backup, self._vacuum))
        action(random)

    def _checkpoint(self, random):
        self.db.checkpoint(random.choice(("PASSIVE", "FULL", "RESTART", "TRUNCATE")))

    def _durable(self, random):
        self.say(f"durable {self.db.make_durable()[SEQUENCE.name]}")

    def _backup(self, random):
        name = f"{random.getrandbits(64):016x}.db"
        if not self.folder.name:
            return
        self.db.backup(self.folder / name)
        self.say(f"backup {name}")

    def _vacuum(self, random):
        try:
            self.db.vacuum()
        except Busy:
            return


# What must hold


@dataclass
class Acknowledged:
    """Everything that children said, over all their lives."""

    entries: dict[int, str] = field(default_factory=dict)
    backups: set[str] = field(default_factory=set)
    durable: int = 0

    def hear(self, lines):
        for line in lines:
            kind, *rest = line.split()
            if kind == "entry":
                seq = int(rest[0])
                assert seq not in self.entries, f"number {seq} was acknowledged twice"
                self.entries[seq] = rest[1]
            elif kind == "backup":
                self.backups.add(rest[0])
            elif kind == "durable":
                self.durable = max(self.durable, int(rest[0]))
        return self

    def up_to(self, seq):
        kept = {number: checksum for number, checksum in self.entries.items() if number <= seq}
        return Acknowledged(kept, set(self.backups), min(seq, self.durable))


def check_snapshot(snapshot, acknowledged=None):
    """One state of the log is whole; its last number."""
    found = {}
    for seq, part, key, body, mark_key, checksum in snapshot.rows(
        "SELECT e.seq, e.part, e.key, e.body, m.key, m.checksum"
        " FROM entry e LEFT JOIN mark m USING (seq) ORDER BY e.seq, e.part"
    ):
        assert body != DOOMED, f"number {seq} belongs to a request that failed"
        assert key == mark_key, f"number {seq}, part {part} has no mark of its own"
        found.setdefault(seq, (key, checksum, {}))[2][part] = body
    for seq, (key, checksum, parts) in found.items():
        assert sorted(parts) == [0, 1], f"number {seq} is half there: parts {sorted(parts)}"
        assert checksum_of(key, (parts[0], parts[1])) == checksum, f"number {seq} was changed"
    last = snapshot.value(SEQUENCE.read)
    marks = [row[0] for row in snapshot.all("SELECT seq FROM mark ORDER BY seq")]
    assert marks == list(found), "there are marks without entries"
    assert marks == list(range(1, last + 1)), f"numbers are not dense up to {last}: {marks[-5:]}"
    counted = {}
    for key, _, _ in found.values():
        counted[key] = counted.get(key, 0) + 1
    assert dict(snapshot.all("SELECT key, count FROM tally")) == counted
    if acknowledged is not None:
        lost = {
            seq: checksum
            for seq, checksum in acknowledged.entries.items()
            if seq not in found or found[seq][1] != checksum
        }
        assert not lost, f"{len(lost)} acknowledged numbers are lost, the first is {min(lost)}"
        assert last >= acknowledged.durable, f"{last} is below the durable {acknowledged.durable}"
    return last


def check_database(job, acknowledged, *, migrations=(FIRST,), reader_first=False):
    """Reopen after a crash: nothing acknowledged is missing, nothing is half there, and work goes
    on. What this writes is acknowledged too. With `reader_first` a reader recovers the log.
    """
    assert holder(Path(job.path)) is None, "a dead process still holds the lock"
    if reader_first:
        with open_to_read(job.path) as db, db.read() as snapshot:
            check_snapshot(snapshot, acknowledged)
    with open_database(job, migrations=migrations) as db:
        assert db.integrity_check() == []
        with db.read() as snapshot:
            last = check_snapshot(snapshot, acknowledged)
        line = db.transact(lambda txn: write_one(txn, KEYS[0], (b"after", b"the crash")))
        assert line.split()[1] == str(last + 1), "numbering does not go on where the log ends"
        acknowledged.hear([line])
        with db.read() as snapshot:
            assert check_snapshot(snapshot, None) == last + 1
    return last


def check_migrated(job, acknowledged):
    """The newest version opens, what its migrations made is complete, and all else holds."""
    newest = (FIRST, *LATER)
    with open_database(job, migrations=newest) as db, db.read() as snapshot:
        assert not snapshot.value("SELECT count(*) FROM entry WHERE size IS NOT length(body)")
        assert snapshot.all("SELECT * FROM digest ORDER BY seq") == snapshot.all(
            "SELECT seq, checksum FROM mark ORDER BY seq"
        )
    return check_database(job, acknowledged, migrations=newest)


def check_backups(folder, acknowledged):
    """A backup with a sidecar is whole; one without is recognised as unfinished; one that was
    acknowledged is there. How many are whole."""
    whole = set()
    for copy in sorted(folder.glob("*.db")):
        try:
            read_sidecar(copy)
        except NotFound:
            continue
        sidecar = verify_backup(copy)
        with open_to_read(copy) as db, db.read() as snapshot:
            assert check_snapshot(snapshot) == sidecar.sequences[SEQUENCE.name]
        whole.add(copy.name)
    orphans = {note.name.removesuffix(".json") for note in folder.glob("[!.]*.json")} - whole
    assert not orphans, f"sidecars without a copy: {orphans}"
    assert acknowledged.backups <= whole, "an acknowledged backup is missing"
    return len(whole)


# The child


def _reopen_again_and_again(job):
    ready()
    random = Random(job.seed)
    for step in range(job.steps):
        with open_database(job) as db:
            Workload(db, seed=step, steps=random.randint(1, 4)).run(
                random.choice(("thread", "threads"))
            )


def _migrate(job):
    ready()
    open_database(job, migrations=(FIRST, *LATER)).close()
    acknowledge("migrated")


def _restore(job):
    ready()
    for _ in range(job.steps):
        inspection.restore(Path(job.backup), Path(job.path), (SEQUENCE,), advance=job.advance)
        acknowledge("restored")


def _work(job):
    with open_database(job) as db:
        ready()
        Workload(db, seed=job.seed, steps=job.steps, folder=Path(job.backup)).run(job.mode)


def main(argument):
    job = Job(**json.loads(argument))
    special = {"migrate": _migrate, "restore": _restore, "reopening": _reopen_again_and_again}
    # A thread that fails must not leave the others working as if nothing had happened.
    threading.excepthook = lambda args: _give_up(args.exc_value)
    special.get(job.mode, _work)(job)


def _give_up(error):
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(70)


if __name__ == "__main__":
    main(sys.argv[1])
