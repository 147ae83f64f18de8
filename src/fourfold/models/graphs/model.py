"""The graphs in the registry: one database for the graphs of all apps."""

from __future__ import annotations

from functools import partial

from fourfold.kernel import Database
from fourfold.models.graphs.database import GLOBAL_SEQ, MIGRATIONS, PROFILE
from fourfold.models.graphs.graphs import Graphs
from fourfold.models.graphs.publication import PUBLICATION
from fourfold.models.model import FileKind, Location, Model, StoreContext, verify_file
from fourfold.models.problem import Problem, to_problems

_KIND = FileKind(
    name="graphs",
    profile=PROFILE,
    migrations=MIGRATIONS,
    sequences=(GLOBAL_SEQ,),
    publication=PUBLICATION,
)


def _open(database: Database, _kind: FileKind, context: StoreContext) -> Graphs:
    return Graphs(database, strict=context.settings.graphs.sync_flags == "fixed")


def _verify(database: Database) -> list[Problem]:
    from fourfold.models.graphs import verify  # noqa: PLC0415 - rare

    with database.read(deadline_s=float("inf")) as snapshot:
        messages = verify.problems(snapshot, str(database.path), database.identity())
    return to_problems(messages)


def _is_dangling(problem: Problem) -> bool:
    from fourfold.models.graphs import verify  # noqa: PLC0415 - rare

    return verify.is_dangling(problem)


MODEL = Model(
    name="graphs",
    kinds=(_KIND,),
    location=Location("graphs", "backend.db"),
    open=_open,
    verify=partial(verify_file, kind=_KIND, check=_verify),
    is_harmless=_is_dangling,
    tables="fourfold.query.graphs.tables",
    pipeline="fourfold.pipeline.graphs",
)
