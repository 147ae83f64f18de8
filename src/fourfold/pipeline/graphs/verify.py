"""Units of work for the verification of a graphs file, by the rules of the model.

    pages        the file itself, and the counter
    registers    what all apps share: the list of seqs, the identities
    sync         the signatures and chains of the logs of all domains
    apps         the tables of some apps

A small file is one unit; a large one has units of several apps each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.kernel import Database, ReadTransaction, inspection
from fourfold.models.graphs import verify
from fourfold.models.graphs.apps import Apps
from fourfold.models.graphs.database import GLOBAL_SEQ, MIGRATIONS, PROFILE
from fourfold.models.graphs.sync import audit
from fourfold.pipeline.store_files import StoreFile
from fourfold.pipeline.verify_tasks import Unit, Verifier, VerifyProblem

MODEL: Final = "graphs"
PAGES: Final = "pages"
REGISTERS: Final = "registers"
SYNC: Final = "sync"
APPS: Final = "apps"
_ALL: Final = (PAGES, REGISTERS, SYNC, APPS)


def units(file: StoreFile) -> list[Unit]:
    """Return the units of a file."""
    count = -(-file.bytes // limits.VERIFY_PART_BYTES)
    whole = Unit(file.path, file.space, file.bytes, model=MODEL)
    if count <= 1:
        return [whole]
    try:
        with _opened(file.path) as (snapshot, _):
            apps = [app.app_id for app in Apps().all(snapshot)]
    except FourfoldError:
        # The verification of the unit meets the same error and reports it.
        return [whole]
    size = max(1, -(-len(apps) // count))
    parts = [tuple(apps[at : at + size]) for at in range(0, len(apps), size)]
    share = file.bytes // (len(parts) + 3)

    def unit(only: str, part: tuple[int, ...] | None = None) -> Unit:
        return Unit(file.path, file.space, share, (only,), part, MODEL)

    return [unit(PAGES), unit(REGISTERS), unit(SYNC), *(unit(APPS, part) for part in parts)]


def iter_problems(unit: Unit) -> Iterator[VerifyProblem]:
    """Yield the problems of a unit. A message begins with its table."""
    only = unit.only or _ALL
    try:
        if PAGES in only:
            damaged = inspection.check(Path(unit.path), (GLOBAL_SEQ,))
            for problem in damaged:
                yield VerifyProblem(unit.path, unit.space, PAGES, problem)
            if damaged and not unit.only:
                # The rules require intact pages.
                return
        with _opened(unit.path) as (snapshot, node):
            yield from _of_tables(unit, only, snapshot, node)
    except FourfoldError as error:
        if error.retryable:
            raise
        yield VerifyProblem(unit.path, unit.space, "file", error.message, found=error.kind)


def _of_tables(
    unit: Unit, only: Iterable[str], snapshot: ReadTransaction, node: str
) -> Iterator[VerifyProblem]:
    if REGISTERS in only:
        for problem in verify.of_registers(snapshot, unit.path):
            yield _problem(unit, problem)
    if SYNC in only:
        for problem in audit.problems(snapshot):
            yield _problem(unit, problem)
    if APPS in only:
        yield from _apps(unit, snapshot, node)


def _apps(unit: Unit, snapshot: ReadTransaction, node: str) -> Iterator[VerifyProblem]:
    for app_id in unit.part or [app.app_id for app in Apps().all(snapshot)]:
        for problem in verify.of_app(snapshot, app_id, node):
            yield _problem(unit, problem, {"app_id": app_id})


def _problem(unit: Unit, problem: str, key: dict[str, int] | None = None) -> VerifyProblem:
    table, _, _ = problem.partition(":")
    return VerifyProblem(unit.path, unit.space, table, problem, dict(key or {}))


@contextmanager
def _opened(path: str) -> Iterator[tuple[ReadTransaction, str]]:
    """Open one committed state of the file; yield it and the id of its node."""
    with Database.open(
        Path(path), profile=PROFILE, migrations=MIGRATIONS, sequences=(GLOBAL_SEQ,), mode="r"
    ) as database:
        node = database.identity()
        with database.read(deadline_s=float("inf")) as snapshot:
            yield snapshot, node


VERIFIER: Final = Verifier(units, iter_problems)
