"""A tally: a log of votes, and their totals at once."""

from __future__ import annotations

from fourfold.kernel import Sequence, load_queries
from fourfold.models.problem import Problem
from tally.fold import fold

SQL = load_queries("tally")
SEQ = Sequence.named("seq", used=SQL.last_seq)


class Tally:
    def __init__(self, database):
        self.database = database

    def vote(self, choice, votes=1):
        """Append a vote and return its seq."""

        def work(txn):
            seq = txn.claim(SEQ)
            txn.execute(SQL.insert_vote, (seq, choice, votes))
            txn.execute(SQL.add_to_total, (choice, votes))
            return seq

        return self.database.transact(work)

    def totals(self):
        with self.database.read() as snapshot:
            return dict(snapshot.all(SQL.totals))

    def verify(self):
        with self.database.read() as snapshot:
            folded, stored = fold(snapshot.all(SQL.votes)), dict(snapshot.all(SQL.totals))
        return [] if folded == stored else [Problem(f"total: expected {folded}, found {stored}")]

    def rebuild(self):
        """Write the totals again, from the log."""

        def work(txn):
            txn.execute_many(SQL.add_to_total, list(fold(txn.all(SQL.votes)).items()))

        self.database.transact(work)
