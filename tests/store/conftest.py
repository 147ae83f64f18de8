"""A small log that the tests of the store write to."""

from __future__ import annotations

import pytest

import fourfold
from fourfold.kernel import Migration, Sequence, Transaction

NUMBER = Sequence.named("number", used="SELECT max(number) FROM entry")
SCHEMA = (
    Migration(1, "entry", "CREATE TABLE entry (number INTEGER PRIMARY KEY, text TEXT NOT NULL)"),
)


class Log:
    """A database of the store with one table of numbered entries."""

    def __init__(self, store: fourfold.Store, name: str = "log") -> None:
        self.database = store.database(name, migrations=SCHEMA, sequences=[NUMBER])

    def add(self, text: str) -> int:
        def work(txn: Transaction) -> int:
            number = txn.claim(NUMBER)
            txn.execute("INSERT INTO entry VALUES (?, ?)", (number, text))
            return number

        return self.database.transact(work)

    def entries(self) -> list[tuple[int, str]]:
        with self.database.read() as snapshot:
            return snapshot.all("SELECT number, text FROM entry ORDER BY number")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def open_log():
    return Log
