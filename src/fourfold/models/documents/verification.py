"""Checking a space: every commit against its digest, every derived row against the log."""

from __future__ import annotations

from collections.abc import Iterator

from fourfold.errors import FourfoldError
from fourfold.kernel import Snapshot, load_queries
from fourfold.models.documents import reader, writer
from fourfold.models.documents.chain import Link, chain
from fourfold.models.documents.encoding import decode

_SQL = load_queries("fourfold.models.documents.revisions")


def problems(snapshot: Snapshot) -> list[str]:
    """Everything that is wrong, in sentences."""
    return [*_commits(snapshot), *_strays(snapshot), *_heads(snapshot), *_snapshots(snapshot)]


def _commits(snapshot: Snapshot) -> Iterator[str]:
    """Each commit says what its rows looked like when they were written."""
    for seq, original, resolution in snapshot.rows(_SQL.verify_commits):
        rows = snapshot.all(_SQL.revisions_of_commit, (seq,))
        try:
            expected = decode(resolution)
        except ValueError:
            yield f"commit {seq}: its resolution is not readable"
            continue
        if not isinstance(expected, dict) or expected.get("seq") != seq:
            yield f"commit {seq}: its resolution names another seq"
        elif expected.get("digest") != writer.digest(original, rows):
            yield f"commit {seq}: its rows are not those that were committed"


def _strays(snapshot: Snapshot) -> Iterator[str]:
    for branch, entity, seq in snapshot.rows(_SQL.verify_strays):
        yield f"revision of {entity!r} on {branch!r} at seq {seq} belongs to no commit"


def _heads(snapshot: Snapshot) -> Iterator[str]:
    for branch, entity in snapshot.rows(_SQL.verify_heads):
        yield f"head of {entity!r} on {branch!r} is not its newest revision"


def _snapshots(snapshot: Snapshot) -> Iterator[str]:
    """A snapshot is what replay without it gives."""
    for branch, entity, seq, value in snapshot.rows(_SQL.verify_snapshots):
        links = chain(snapshot, branch, seq)
        try:
            found = reader.entry(snapshot, [Link(branch, seq), *links[1:]], entity, derived=False)
            same = found is not None and found.document == decode(value)
        except (FourfoldError, ValueError) as error:
            yield f"snapshot of {entity!r} on {branch!r} at seq {seq} cannot be checked: {error}"
            continue
        if not same:
            yield f"snapshot of {entity!r} on {branch!r} at seq {seq} is not what the log says"
