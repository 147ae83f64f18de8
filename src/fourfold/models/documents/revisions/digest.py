"""What vouches for a commit of revisions: a digest of its row and of its revisions, in the row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.history import Row, View

_ENCODER = msgspec.json.Encoder()


def resolution(row: Row, rows: Iterable[Row], resolved: Sequence[dict[str, int]]) -> str:
    """What was decided about a commit, with a digest of its row, of that and of its revisions, so
    that a changed byte in any of them is found.
    """
    pending = list(resolved)
    # One line of JSON for each, so that no two logs have the same text.
    digest = hashlib.sha256(_ENCODER.encode_lines((pending, row, *rows))).hexdigest()
    shown = f',"resolved_pending_reads":{trusted(pending)}' if pending else ""
    return f'{{"digest":"sha256:{digest}"{shown},"seq":{row[0]}}}'


def sound(view: View, seq: int) -> bool:
    """Whether a commit is what was committed, as long as nothing was taken from it."""
    rows = view.all(view.sql.sealed_commit, (seq,))
    return len(rows) == 1 and made_again(view, rows[0]) == as_written(rows[0][-1])


def made_again(view: View, row: Row) -> str | None:
    """The resolution that a commit's row and revisions lead to; None when they cannot be read."""
    *own, decided = row
    rows = view.all(view.sql.verify_revisions, (own[0],))
    try:
        read = [tuple(map(as_written, each)) for each in (own, *rows)]
        resolved = decode(decided).get("resolved_pending_reads", ())
        return resolution(read[0], read[1:], resolved)
    except (AttributeError, TypeError, ValueError):
        return None


def as_written(value: Any) -> Any:
    """A column as it was written. Verification reads bytes, since damaged ones may be no text."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
