"""Verification of what sync stored: signatures, chains of logs, and bodies of rows.

Entries are forwarded byte for byte, so damage here would be refused by every peer: it is reported
by the node that has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.graphs.sync.envelope import SignedEnvelope, decode_head, digest, is_signed_by

_SQL = load_queries("fourfold.models.graphs.sync")
_NAMED_MAX: Final = 20
"""Problems of one rule that are named one by one."""


def problems(snapshot: ReadTransaction) -> Iterator[str]:
    """Yield the problems of the logs of all domains."""
    yield from islice(_entries(snapshot), _NAMED_MAX)
    yield from islice(_bodies(snapshot), _NAMED_MAX)
    for (entry,) in snapshot.all(_SQL.broken_chains, (_NAMED_MAX,)):
        yield f"sync_entry: {bytes(entry).hex()} follows no entry of its log"
    for (entry,) in snapshot.all(_SQL.wrong_tips, (_NAMED_MAX,)):
        yield f"sync_entry: {bytes(entry).hex()} is wrong about being the last of its log"


def _entries(snapshot: ReadTransaction) -> Iterator[str]:
    for row in snapshot.rows(_SQL.audited_entries):
        entry, seq, prev, data, signature, author, incarnation, domain = row
        name = f"sync_entry: {bytes(entry).hex()}"
        if digest(data) != entry:
            yield f"{name} is not the id of its head"
            continue
        try:
            head = decode_head(data)
        except msgspec.MsgspecError:
            yield f"{name} has a head that cannot be read"
            continue
        stored = (author, incarnation, domain, seq, prev)
        if (head.author, head.incarnation, head.domain, head.seq, head.prev) != stored:
            yield f"{name} is stored at another place than its head names"
        elif not is_signed_by(head.author, SignedEnvelope(data, signature, ())):
            yield f"{name} is not signed by its author"
        for row_id in head.rows:
            if snapshot.one(_SQL.has_row, (row_id,)) is None:
                yield f"{name} names row {row_id.hex()}, which is missing"


def _bodies(snapshot: ReadTransaction) -> Iterator[str]:
    for row_id, body in snapshot.rows(_SQL.audited_bodies):
        if digest(body) != row_id:
            yield f"sync_row: {bytes(row_id).hex()} is not the id of its body"
