"""The horizon of a space: reads below it raise HistoryTruncated.

At or above the horizon every state of every branch can be read. Below it only some points can: the
forks of branches, the bases of merges, pinned seqs, and the beginning, where nothing is. All else
raises HistoryTruncated, whether or not the rows are still there: an answer must not depend on how
far a collection has come.
"""

from __future__ import annotations

from fourfold.errors import HistoryTruncated
from fourfold.models.documents.history import HistoryReader


def horizon(view: HistoryReader) -> int:
    """Return the oldest seq from which everything is readable."""
    return int(view.value(view.sql.horizon))


def check_point(view: HistoryReader, branch: str, seq: int) -> None:
    """Raise HistoryTruncated for a read of a branch below the horizon."""
    row = view.one(view.sql.readable, (branch, seq))
    assert row is not None
    if not row[1]:
        where = f"the branch {branch!r}" if branch else "the default branch"
        raise truncated(f"how {where} was at seq {seq} was given up", row[0], branch, seq)


def check_after(view: HistoryReader, after: int, what: str) -> None:
    """Refuse to hand out commits from a seq on when some of them are not whole any more."""
    least = horizon(view)
    if after < least:
        raise truncated(f"{what} cannot begin after seq {after}", least, None, after)


def truncated(what: str, least: int, branch: str | None, seq: int) -> HistoryTruncated:
    """Return the error for a read below the horizon."""
    details: dict[str, object] = {"horizon": least, "seq": seq}
    if branch is not None:
        details["branch"] = branch
    return HistoryTruncated(
        f"{what}: a collection keeps the history of this space from seq {least} on",
        details=details,
    )
