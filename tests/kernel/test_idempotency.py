"""Idempotent requests: one effect, and the same result for every repetition."""

from __future__ import annotations

import pytest

from fourfold.errors import InvalidInput, ReplayMismatch
from fourfold.kernel import Database, Migration, Profile
from fourfold.kernel.idempotency import KEPT_S, SCHEMA, IdempotentRequest, digest_of, run_once

MIGRATIONS = (
    Migration(1, "effects", "CREATE TABLE effect (n INTEGER PRIMARY KEY)"),
    Migration(2, "idempotency", SCHEMA),
)
REQUEST = IdempotentRequest("key1", "k", digest_of(b"create", b"{}"))
COUNT = "SELECT count(*) FROM effect"
STORED = "SELECT count(*) FROM idempotency"


def opened(path):
    return Database.open(path, profile=Profile("effects"), migrations=MIGRATIONS, mode="rw")


@pytest.fixture
def database(tmp_path):
    with opened(tmp_path / "a.sqlite") as database:
        yield database


def count(database, sql=COUNT):
    with database.read() as snapshot:
        return snapshot.value(sql)


def effect(database):
    def work():
        # As a model does it: in a transaction of its own, which joins the one around it.
        database.transact(lambda txn: txn.execute("INSERT INTO effect DEFAULT VALUES"))
        return b"result %d" % count_now(database)

    return work


def count_now(database):
    with database.write() as txn:
        return txn.value(COUNT)


def test_repeated_request_has_one_effect_and_one_result(database):
    assert run_once(database, REQUEST, effect(database)) == (b"result 1", False)
    for _ in range(3):
        assert run_once(database, REQUEST, effect(database)) == (b"result 1", True)
    assert count(database) == 1


def test_result_survives_a_restart(tmp_path):
    path = tmp_path / "a.sqlite"
    with opened(path) as database:
        run_once(database, REQUEST, effect(database))
    with opened(path) as database:
        assert run_once(database, REQUEST, effect(database)) == (b"result 1", True)


def test_keys_of_callers_are_their_own(database):
    run_once(database, REQUEST, effect(database))
    other = REQUEST._replace(caller="key2")
    assert run_once(database, other, effect(database)) == (b"result 2", False)


def test_other_request_with_the_same_key_is_refused(database):
    run_once(database, REQUEST, effect(database))
    with pytest.raises(ReplayMismatch, match="another request was sent with the idempotency key"):
        run_once(database, REQUEST._replace(digest=digest_of(b"create{}")), effect(database))
    assert count(database) == 1


def test_failed_request_leaves_nothing_and_may_be_repeated(database):
    def fail():
        effect(database)()
        raise InvalidInput("refused")

    with pytest.raises(InvalidInput):
        run_once(database, REQUEST, fail)
    assert (count(database), count(database, STORED)) == (0, 0)
    assert run_once(database, REQUEST, effect(database)) == (b"result 1", False)


def test_rows_expire_after_seven_days(database):
    start = 1_000_000.0
    for number in range(3):
        run_once(database, REQUEST._replace(key=str(number)), effect(database), now_s=start)
    last = start + KEPT_S - 1
    again = REQUEST._replace(key="0")
    assert run_once(database, again, effect(database), now_s=last) == (b"result 1", True)
    # An expired row is replaced, and new requests delete the others.
    assert run_once(database, again, effect(database), now_s=last + 1) == (b"result 4", False)
    assert count(database, STORED) == 1


def test_digest_separates_its_parts():
    assert digest_of(b"ab", b"c") != digest_of(b"a", b"bc")
