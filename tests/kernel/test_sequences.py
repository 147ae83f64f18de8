"""Sequences: dense, never reused, never made up again; and the durable watermark."""

from __future__ import annotations

import ledger
import pytest

from fourfold.errors import InvalidInput, NotFound, Refused, SequenceCorrupt
from fourfold.kernel import Database, Migration, Sequence, profiles, sequences

NORMAL = profiles.PLAIN.with_(synchronous="NORMAL")

# A counter in a table of the model, which can hold what the kernel's own table cannot.
OWN_TABLE = Migration(
    1,
    "own",
    "CREATE TABLE counter (id INTEGER, seq); CREATE TABLE log (seq INTEGER PRIMARY KEY)",
)
OWN = Sequence(
    "own",
    read="SELECT seq FROM counter",
    claim="UPDATE counter SET seq = seq + ?1 RETURNING seq",
    advance="UPDATE counter SET seq = max(seq, ?1)",
    seed="INSERT INTO counter VALUES (1, 0)",
    used="SELECT max(seq) FROM log",
)


def open_own(path, **changes):
    settings = {"profile": ledger.QUICK, "migrations": [OWN_TABLE], "sequences": [OWN], **changes}
    return Database.open(path, **settings)


def test_claim_returns_the_first_number(db):
    with db.write() as txn:
        assert txn.claim(ledger.ENTRY) == 1
        assert txn.claim(ledger.ENTRY, 5) == 2
        assert txn.claim(ledger.ENTRY) == 7
    assert db.sequence(ledger.ENTRY) == 7


@pytest.mark.parametrize("count", [0, -1])
def test_claim_of_less_than_one_number_is_refused(db, count):
    with db.write() as txn, pytest.raises(InvalidInput, match="count must be at least 1"):
        txn.claim(ledger.ENTRY, count)
    assert db.sequence(ledger.ENTRY) == 0


@pytest.mark.parametrize("name", ["", "a b", "a'b", "1a", "a;--"])
def test_sequence_name_must_be_identifier(name):
    with pytest.raises(InvalidInput, match="must be an identifier"):
        Sequence.named(name)


def test_rollback_returns_its_numbers(db):
    def fails(txn):
        txn.claim(ledger.ENTRY, 100)
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            db.transact(fails)
        with pytest.raises(ZeroDivisionError), db.write() as txn:
            fails(txn)
        with db.write() as txn:
            with pytest.raises(ZeroDivisionError), txn.savepoint():
                fails(txn)
            ledger.put("kept")(txn)
    ledger.assert_dense(db, 3)


def test_numbers_are_dense_and_distinct_under_concurrency(db):
    def work(n):
        def run(txn):
            seq = ledger.put(n)(txn)
            if n % 7 == 0:
                raise ZeroDivisionError
            return seq

        return run

    def write(_):
        taken = []
        for n in range(1, 501):
            try:
                taken.append(db.transact(work(n)))
            except ZeroDivisionError:
                assert n % 7 == 0
        return taken

    callers = [ledger.Caller(write, name) for name in range(8)]
    taken = [caller.outcome() for caller in callers]
    # Each thread saw its own numbers go up, and no two saw the same.
    assert all(numbers == sorted(numbers) for numbers in taken)
    together = [number for numbers in taken for number in numbers]
    assert sorted(together) == list(range(1, 8 * (500 - 71) + 1))
    ledger.assert_dense(db, len(together))


def test_numbers_continue_after_reopen_and_deleted_rows(path):
    with ledger.open_ledger(path) as db:
        for _ in range(3):
            db.transact(ledger.put("x"))
        with db.write() as txn:
            txn.execute("DELETE FROM entry")
    with ledger.open_ledger(path) as db:
        assert db.transact(ledger.put("x")) == 4


def test_two_sequences_count_independently(path):
    other = Sequence.named("other")
    with ledger.open_ledger(path, sequences=[ledger.ENTRY, other]) as db:
        with db.write() as txn:
            txn.claim(ledger.ENTRY, 3)
            txn.claim(other)
        assert (db.sequence(ledger.ENTRY), db.sequence(other)) == (3, 1)
        assert db.metrics().sequences == {"entry": 3, "other": 1}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("DELETE FROM kernel_sequence", "is missing"),
        ("UPDATE kernel_sequence SET value = 'seven'", "found 'seven'"),
        ("UPDATE kernel_sequence SET value = 2.5", "found 2.5"),
        ("UPDATE kernel_sequence SET value = -1", "found -1"),
        ("UPDATE kernel_sequence SET value = 2", "is at 2, but its log contains 3"),
    ],
)
@pytest.mark.parametrize("mode", ["rw", "r"])
def test_open_with_damaged_counter_is_refused_unchanged(path, damage, says, mode):
    with ledger.open_ledger(path) as db:
        for _ in range(3):
            db.transact(ledger.put("x"))
    ledger.edit(path, damage)
    before = path.read_bytes()
    # Twice: the first refusal must not have mended, or hidden, anything.
    for _ in range(2):
        with pytest.raises(SequenceCorrupt, match=says) as caught:
            ledger.open_ledger(path, mode=mode)
        assert "backup" in caught.value.hint
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("INSERT INTO counter VALUES (2, 9)", "has 2 rows"),
        ("DELETE FROM counter", "is missing"),
        ("UPDATE counter SET seq = NULL", "found None"),
        ("UPDATE counter SET seq = x'01'", "found b'"),
        ("INSERT INTO log VALUES (1)", "is at 0, but its log contains 1"),
    ],
)
def test_open_with_damaged_counter_of_model_is_refused(path, damage, says):
    open_own(path).close()
    ledger.edit(path, damage)
    before = path.read_bytes()
    with pytest.raises(SequenceCorrupt, match=says):
        open_own(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    ["DELETE FROM kernel_sequence", "UPDATE kernel_sequence SET value = 'seven'"],
)
def test_counter_damaged_while_open_raises(db, path, damage):
    db.transact(ledger.put("x"))
    ledger.edit(path, damage)
    with pytest.raises(SequenceCorrupt, match="'entry'"):
        db.transact(ledger.put("y"))
    with pytest.raises(SequenceCorrupt, match="'entry'"):
        db.sequence(ledger.ENTRY)
    assert ledger.bodies(db) == ["x"]


def test_second_counter_row_while_open_raises(path):
    with open_own(path) as db:
        ledger.edit(path, "INSERT INTO counter VALUES (2, 0)")
        with pytest.raises(SequenceCorrupt, match="expected 1 row, found 2"):
            db.transact(lambda txn: txn.claim(OWN))


def test_undeclared_sequence_is_not_created(db):
    with pytest.raises(SequenceCorrupt), db.write() as txn:
        txn.claim(Sequence.named("unknown"))


def test_sequence_added_later_is_seeded_once(path):
    other = Sequence.named("other")
    with ledger.open_ledger(path) as db:
        db.transact(ledger.put("x"))
    with ledger.open_ledger(path, sequences=[ledger.ENTRY, other]) as db:
        assert db.sequence(other) == 0
        db.transact(lambda txn: txn.claim(other, 5))
    with ledger.open_ledger(path, sequences=[other, ledger.ENTRY]) as db:
        assert (db.sequence(other), db.sequence(ledger.ENTRY)) == (5, 1)
    # A Fourfold that does not know the newer counter leaves it alone.
    ledger.open_ledger(path).close()
    ledger.edit(path, "DELETE FROM kernel_sequence WHERE name = 'other'")
    with pytest.raises(SequenceCorrupt, match="'other' is missing"):
        ledger.open_ledger(path, sequences=[ledger.ENTRY, other])


def test_new_sequence_below_its_log_is_refused(path):
    with ledger.open_ledger(path) as db:
        db.transact(ledger.put("x"))
    late = Sequence.named("late", used="SELECT max(seq) FROM entry")
    before = ledger.content(path)
    with pytest.raises(SequenceCorrupt, match="'late' is at 0, but its log contains 1"):
        ledger.open_ledger(path, sequences=[ledger.ENTRY, late])
    assert ledger.content(path) == before


def test_with_full_syncs_what_is_committed_is_durable(path):
    with ledger.open_ledger(path, profile=profiles.PLAIN) as db:
        assert db.durable(ledger.ENTRY) == 0
        db.transact(ledger.put("x"))
        assert db.durable(ledger.ENTRY) == db.sequence(ledger.ENTRY) == 1
        assert db.metrics().durable == {"entry": 1}
        assert db.make_durable() == {"entry": 1}


def test_with_normal_syncs_durable_number_lags_until_make_durable(path):
    with ledger.open_ledger(path, profile=NORMAL) as db:
        for _ in range(3):
            db.transact(ledger.put("x"))
        assert (db.sequence(ledger.ENTRY), db.durable(ledger.ENTRY)) == (3, 0)
        assert db.metrics().durable.get("entry", 0) == 0
        assert db.make_durable() == {"entry": 3}
        assert db.durable(ledger.ENTRY) == 3
        db.transact(ledger.put("x"))
        assert (db.sequence(ledger.ENTRY), db.durable(ledger.ENTRY)) == (4, 3)
        assert db.metrics().durable == {"entry": 3}
        assert db.make_durable() == {"entry": 4}


def test_durable_number_never_exceeds_committed(path):
    with ledger.open_ledger(path, profile=NORMAL) as db:
        db.transact(ledger.put("x"))
        with db.write() as txn:
            ledger.put("draft")(txn)
            assert db.make_durable() == {"entry": 1}
        assert db.durable(ledger.ENTRY) == 1


def test_make_durable_works_after_checkpoint(path):
    with ledger.open_ledger(path, profile=NORMAL) as db:
        db.transact(ledger.put("x"))
        db.checkpoint("TRUNCATE")
        assert db.make_durable() == {"entry": 1}


def test_without_syncs_nothing_is_ever_durable(path):
    with ledger.open_ledger(path, profile=ledger.QUICK) as db:
        db.transact(ledger.put("x"))
        assert db.durable(ledger.ENTRY) == 0
        with pytest.raises(Refused, match="synchronous=OFF"):
            db.make_durable()


def test_read_only_database_sees_the_sequence(path):
    with ledger.open_ledger(path) as db:
        db.transact(ledger.put("x"))
        with ledger.open_ledger(path, mode="r") as reader:
            assert reader.sequence(ledger.ENTRY) == 1
            db.transact(ledger.put("y"))
            assert reader.sequence(ledger.ENTRY) == 2
    with pytest.raises(NotFound):
        ledger.open_ledger(path.with_name("nowhere.db"), mode="r")


def test_reader_opened_beside_busy_writer_sees_one_state(path, monkeypatch):
    with ledger.open_ledger(path) as writer:
        writer.transact(ledger.put("x"))
        asked = sequences.current

        def commit_meanwhile(*arguments):
            value = asked(*arguments)
            writer.transact(ledger.put("meanwhile"))
            return value

        monkeypatch.setattr(sequences, "current", commit_meanwhile)
        ledger.open_ledger(path, mode="r").close()
