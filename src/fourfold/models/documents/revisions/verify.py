"""Verification of a log of revisions: commits against digests, revisions and heads against the log.

A digest says that something in a commit is wrong, not what. The request of the commit says what its
revisions must be, so the row that differs from it is named too.

What vouches for a commit of revisions: a digest of its row and of its revisions, in the row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from fourfold.errors import CorruptData
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.gc.commit_digests import broken
from fourfold.models.documents.history import HistoryReader, Row
from fourfold.models.documents.problems import KeyRange, Rule, make_problem, seal_broken, text
from fourfold.models.problem import Problem

_ENCODER = msgspec.json.Encoder()


def resolution(row: Row, rows: Iterable[Row], resolved: Sequence[dict[str, int]]) -> str:
    """Return the resolution of a commit, with a digest of its row and its revisions.

    A changed byte in any of them is detected.
    """
    pending = list(resolved)
    # One line of JSON for each, so that no two logs have the same text. The argument is a list:
    # `encode_lines` never releases the iterator of anything else.
    digest = hashlib.sha256(_ENCODER.encode_lines([pending, row, *rows])).hexdigest()
    shown = f',"resolved_pending_reads":{trusted(pending)}' if pending else ""
    return f'{{"digest":"sha256:{digest}"{shown},"seq":{row[0]}}}'


def sound(view: HistoryReader, seq: int) -> bool:
    """Return True if a commit is unchanged, provided that nothing was removed from it."""
    rows = view.all(view.sql.sealed_commit, (seq,))
    return len(rows) == 1 and made_again(view, rows[0]) == as_written(rows[0][-1])


def _made_of_text(view: HistoryReader, own: Row, resolved: Sequence[dict[str, int]]) -> str | None:
    """Compute the resolution of a commit whose rows are sound text; None if some are not.

    Without a call for each column: a commit may have thousands of rows.
    """
    try:
        return resolution(own, view.all(view.sql.revisions_as_text, (own[0],)), resolved)
    except (CorruptData, TypeError, ValueError):
        return None


def made_again(view: HistoryReader, row: Row) -> str | None:
    """Compute the resolution of a commit from its rows; None if they are not readable."""
    *own, decided = row
    try:
        resolved = decode(decided).get("resolved_pending_reads", ())
        commit = tuple(map(as_written, own))
        digest = _made_of_text(view, commit, resolved)
        if digest is not None and digest == as_written(decided):
            return digest
        rows = view.all(view.sql.verify_revisions, (own[0],))
        return resolution(commit, [tuple(map(as_written, columns)) for columns in rows], resolved)
    except (AttributeError, TypeError, ValueError):
        return None


def as_written(value: Any) -> Any:
    """Return a column as it was written.

    Verification reads bytes, since damaged text may not be UTF-8.
    """
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


_KEY = ("branch", "id", "seq", "op_index")


def _commits(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    for row in view.rows(view.sql.verify_commits, part.bounds):
        seq = row[0]
        wrong = broken(view, seq)
        digest = None
        if wrong:
            yield seal_broken(seq)
        elif wrong is None:
            digest = made_again(view, row)
            wrong = digest is None or digest != as_written(row[-1])
            if wrong:
                yield from _other_than_asked(view, row)
        if wrong:
            yield make_problem(
                f"commit {seq}: its row, or a revision of it, is not what was committed",
                "commit",
                {"seq": seq},
                expected=row[-1],
                found=digest,
            )


def _other_than_asked(view: HistoryReader, commit: Row) -> Iterator[Problem]:
    """Yield the revisions of a commit that differ from its request, as far as that is readable."""
    seq, branch, original = commit[0], text(commit[1]), commit[6]
    try:
        operations = decode(original)["operations"]
        expected = [
            (branch, operation["id"], seq, index, operation["op"], _data(operation), seq)
            for index, operation in enumerate(operations)
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    stored = {row[3]: tuple(map(text, row)) for row in view.all(view.sql.verify_revisions, (seq,))}
    for expected_row in expected:
        actual = stored.pop(expected_row[3], None)
        if actual != expected_row:
            yield _differs(expected_row, expected_row, actual)
    for actual in stored.values():
        yield _differs(actual, None, actual)


def _data(operation: dict[str, Any]) -> str | None:
    if operation["op"] == "delete":
        return None
    return trusted(operation["value" if operation["op"] == "set" else "patches"])


def _differs(named: Row, expected: Row | None, actual: Row | None) -> Problem:
    branch, entity, seq, index = named[:4]
    where = f"revision of {entity!r} on {branch!r} at seq {seq}, operation {index}"
    key = dict(zip(_KEY, named, strict=False))
    if actual is None:
        return make_problem(f"{where}: is missing", "revision", key, expected=expected)
    if expected is None:
        return make_problem(f"{where}: was never requested", "revision", key, found=actual)
    return make_problem(
        f"{where}: is not what was requested", "revision", key, expected=expected, found=actual
    )


def _strays(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    for branch, entity, seq, commit_seq, same in view.rows(view.sql.verify_strays, part.bounds):
        where = f"revision of {text(entity)!r} on {text(branch)!r} at seq {seq}"
        if same:
            # The row that is at fault is the one that is not there.
            sentence = f"{where} belongs to no commit"
            yield make_problem(sentence, "commit", {"seq": seq}, expected=f"a commit {seq}")
        else:
            yield make_problem(
                f"{where} belongs to no commit of that seq",
                "revision",
                {"branch": branch, "id": entity, "seq": seq},
                expected=seq,
                found=commit_seq,
            )


def _heads(view: HistoryReader, part: KeyRange) -> Iterator[Problem]:
    for branch, entity in view.rows(view.sql.verify_heads, part.bounds):
        yield make_problem(
            f"head of {text(entity)!r} on {text(branch)!r} is not its newest revision",
            "head",
            {"branch": branch, "id": entity},
        )


RULES = (
    Rule("commits", "seq", _commits),
    Rule("strays", "entity", _strays),
    Rule("heads", "entity", _heads),
)
