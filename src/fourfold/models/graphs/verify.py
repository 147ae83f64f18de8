"""Verification of a graph database, row by row. Each problem names its table."""

from __future__ import annotations

from collections.abc import Iterator

from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.graphs import intervals, row_index
from fourfold.models.graphs.apps import Apps
from fourfold.models.graphs.records import BITS, KINDS, Kind
from fourfold.models.graphs.statements import REFERENCES, table_of
from fourfold.models.graphs.sync import audit, entries, identities
from fourfold.models.problem import Problem

_SQL = load_queries("fourfold.models.graphs", "verification.sql")
_NAMED_MAX = 20
"""Faults of one rule that are named one by one."""

_BYTES: dict[Kind, str] = {
    "parent": "0",
    "attr": "octet_length(coalesce(value_text, value_blob, value_json, ''))"
    " + 8 * (value_number IS NOT NULL)",
    "edge": "0",
    "rating": "octet_length(coalesce(value_text, value_json, '')) + 8 * (value_number IS NOT NULL)",
}
_RULES = {
    "rows_without_envelope": "row {} is not in the list of what was written under {}",
    "envelopes_without_rows": "no row has seq {} in app {}, though the list of envelopes has it",
    "out_of_order": "row {} has the number {}, which is smaller than one before it",
    "unknown_types": "row {} is of type {}, which is none of this kind",
    "objects_without_first_row": "row {} is not a version of object {}",
    "own_rows_elsewhere": "row {} of this node does not have its own number {}",
    "versions_twice": "row {} is not the only one of its version of object {}",
}


def problems(snapshot: ReadTransaction, subject: str, node: str) -> list[str]:
    """Return the problems as messages; `node` is the name of the node of the database."""
    problems = [*of_registers(snapshot, subject), *audit.problems(snapshot)]
    for app in Apps().all(snapshot):
        problems += of_app(snapshot, app.app_id, node)
    return problems


def of_registers(snapshot: ReadTransaction, subject: str) -> list[str]:
    """Return the problems of what all apps share: the counter, the list of seqs, the identities."""
    Apps().check(snapshot, subject)
    problems = [
        f"envelopes: number {row[0]} of app {row[1]} is not one that was given out"
        for row in snapshot.all(_SQL.numbers_behind_the_counter, (_NAMED_MAX,))
    ]
    problems += [
        f"envelopes: number {row[0]} belongs to app {row[1]}, which is none"
        for row in snapshot.all(_SQL.envelopes_of_no_app, (_NAMED_MAX,))
    ]
    problems += row_index.unknown_apps(snapshot)
    problems += intervals.unknown_apps(snapshot)
    problems += identities.problems(snapshot)
    problems += entries.problems(snapshot)
    return problems


def of_app(snapshot: ReadTransaction, app_id: int, node: str) -> Iterator[str]:
    """Yield the problems of the tables of one app."""
    rows = size = 0
    for kind in KINDS:
        yield from _problems_of_table(snapshot, app_id, kind, node)
        counted = snapshot.one(_filled("held", app_id, kind))
        assert counted is not None
        rows, size = rows + int(counted[0]), size + int(counted[1])
    yield from row_index.problems(snapshot, app_id, _NAMED_MAX)
    yield from intervals.problems(snapshot, app_id, _NAMED_MAX)
    for held in snapshot.all(_SQL.wrong_usage, (app_id, rows, size)):
        yield (
            f"app_usage: app {app_id} is said to hold {held[0]} rows and {held[1]} bytes; "
            f"it holds {rows} and {size}"
        )


def _problems_of_table(
    snapshot: ReadTransaction, app_id: int, kind: Kind, node: str
) -> Iterator[str]:
    table = table_of(app_id, kind)
    for rule, says in _RULES.items():
        for row in snapshot.all(_filled(rule, app_id, kind), (_NAMED_MAX,)):
            yield f"{table}: {says.format(*row)}"
    for row in snapshot.all(_filled("wrong_leads", app_id, kind), (_NAMED_MAX, node)):
        yield f"{table}: row {row[0]} does not say rightly whether it leads object {row[1]}"
    for pointer, target in REFERENCES[kind]:
        sql = _filled("dangling", app_id, kind)
        sql = sql.replace("{pointer}", pointer).replace("{target}", target)
        for row in snapshot.all(sql, (_NAMED_MAX,)):
            yield f"{table}: {pointer} of row {row[0]} refers to {target} {row[1]}{_DANGLING}"


def is_dangling(problem: Problem) -> bool:
    """Return True for a reference to nothing, which earlier versions accepted: a row as it was
    written, and no damage.
    """
    return problem.message.endswith(_DANGLING)


_DANGLING = ", which does not exist"


def _filled(rule: str, app_id: int, kind: Kind) -> str:
    text: str = getattr(_SQL, rule)
    text = text.replace("{n}", str(app_id)).replace("{kind}", kind)
    return text.replace("{bit}", str(BITS[kind])).replace("{bytes}", _BYTES[kind])
