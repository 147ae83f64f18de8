"""Checking a space: every commit against its digest, every derived row against the log."""

from __future__ import annotations

from collections.abc import Iterator

from fourfold.errors import FourfoldError
from fourfold.models.documents import reader
from fourfold.models.documents.chain import Link, chain
from fourfold.models.documents.encoding import decode
from fourfold.models.documents.history import History, View


def problems(view: View, history: History) -> list[str]:
    """Everything that is wrong, in sentences: in the log itself, and in what is derived from it."""
    return [*history.problems(view), *_snapshots(view)]


def _snapshots(view: View) -> Iterator[str]:
    """A snapshot is what replay without it gives."""
    for branch, entity, seq, value in view.rows(view.sql.verify_snapshots):
        links = chain(view, branch, seq)
        try:
            found = reader.entry(view, [Link(branch, seq), *links[1:]], entity, derived=False)
            same = found is not None and found.document == decode(value)
        except (FourfoldError, ValueError) as error:
            yield f"snapshot of {entity!r} on {branch!r} at seq {seq} cannot be checked: {error}"
            continue
        if not same:
            yield f"snapshot of {entity!r} on {branch!r} at seq {seq} is not what the log says"
