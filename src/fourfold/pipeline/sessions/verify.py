"""Units of work for the verification of a sessions file, by the rules of `sessions.verify()`.

    pages        the file itself, and the counter
    payloads     the bytes of every payload, and what payloads refer to
    sessions     the logs of the sessions in a range of keys: one unit, or several

A damaged payload is reported by the unit of the payloads; a unit of sessions reports dangling
references.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from fourfold import limits
from fourfold.content import parse_content_id
from fourfold.errors import FourfoldError
from fourfold.kernel import inspection, load_queries
from fourfold.models.sessions import verify
from fourfold.models.sessions.database import POSITION
from fourfold.models.sessions.log import LogAudit
from fourfold.models.sessions.sqlite_log import SqliteLog
from fourfold.pipeline.sessions.tables import open_files, open_log
from fourfold.pipeline.store_files import StoreFile
from fourfold.pipeline.verify_tasks import Unit, Verifier, VerifyProblem

MODEL: Final = "sessions"
PAGES: Final = "pages"
PAYLOADS: Final = "payloads"
SESSIONS: Final = "sessions"
_ALL: Final = (PAGES, PAYLOADS, SESSIONS)
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63
_SQL: Final = load_queries("fourfold.query.sessions", "tables.sql")


def units(file: StoreFile) -> list[Unit]:
    """Return the units of a file."""
    count = -(-file.bytes // limits.VERIFY_PART_BYTES)
    whole = Unit(file.path, file.space, file.bytes, model=MODEL)
    if count <= 1:
        return [whole]
    try:
        with open_log(file.path) as log, log.database.read() as snapshot:
            greatest = int(snapshot.value(_SQL.greatest_key))
    except FourfoldError:
        # The verification of the unit meets the same error and reports it.
        return [whole]
    width = max(1, -(-greatest // count))
    lows = range(0, greatest, width)
    share = file.bytes // (len(lows) + 2)

    def unit(only: str, part: tuple[int, int] | None = None) -> Unit:
        return Unit(file.path, file.space, share, (only,), part, MODEL)

    # The first and last range are unbounded, to cover damaged keys and new sessions.
    bounds = [_LOWEST, *lows[1:], _HIGHEST]
    parts = list(pairwise(bounds))
    return [unit(PAGES), unit(PAYLOADS), *(unit(SESSIONS, part) for part in parts)]


def iter_problems(unit: Unit) -> Iterator[VerifyProblem]:
    """Yield the problems of a unit."""
    only = unit.only or _ALL
    try:
        if PAGES in only:
            for problem in inspection.check(Path(unit.path), (POSITION,)):
                yield VerifyProblem(unit.path, unit.space, PAGES, problem)
        with open_log(unit.path) as log:
            if PAYLOADS in only:
                yield from _payloads(unit, log)
            if SESSIONS in only:
                yield from _sessions(unit, log)
    except FourfoldError as error:
        if error.retryable:
            raise
        yield VerifyProblem(unit.path, unit.space, "file", error.message, found=error.kind)


def _payloads(unit: Unit, log: SqliteLog) -> Iterator[VerifyProblem]:
    for problem in verify.of_payloads(log.audit_step, open_files(unit.path), set()):
        yield VerifyProblem(unit.path, unit.space, PAYLOADS, problem)
    for problem in verify.strays(log.audit_step):
        yield VerifyProblem(unit.path, unit.space, SESSIONS, problem)


def _sessions(unit: Unit, log: SqliteLog) -> Iterator[VerifyProblem]:
    after, until = unit.part or (None, None)
    # SQLite has no integer that large.
    until = None if until == _HIGHEST else until
    for name, problem in verify.of_sessions(log.audit_step, _has_payload, after, until):
        sid = name.decode(errors="backslashreplace") if isinstance(name, bytes) else name
        yield VerifyProblem(unit.path, unit.space, SESSIONS, problem, {"session": sid})


def _has_payload(audit: LogAudit, name: str) -> bool:
    """Return True if a payload is stored; its bytes are proved by the unit of the payloads."""
    return audit.payload(bytes.fromhex(parse_content_id(name))) is not None


VERIFIER: Final = Verifier(units, iter_problems)
