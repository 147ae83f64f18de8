"""Searches and aggregates of one segment by its companion.

    words ──> rows of the full-text index ──> few: the messages decide
                                          └─> many: columns decide first

Rows that columns cannot decide are read, and the message decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from fourfold.archive.parquet import arrow
from fourfold.content.filters import And, Or, TextMatch
from fourfold.models.streams.search.companions import rollups
from fourfold.models.streams.search.companions.columns import (
    FALSE,
    NUMBER,
    OTHER,
    STRING,
    TIME,
    TRUE,
    Masks,
)
from fourfold.models.streams.search.companions.plans import CompanionPlan
from fourfold.models.streams.search.companions.reader import CompanionReader
from fourfold.models.streams.search.measures import Accumulator, key_of_value
from fourfold.models.streams.search.request import Bounds

FEW_ROWS: Final = 1_000
"""Rows of the full-text index that are read without looking at columns."""


def text_rows(companion: CompanionReader, plan: CompanionPlan, condition: Any) -> list[int] | None:
    """Return the rows that may match by their words, the last first; None without words."""
    parts = condition.parts if isinstance(condition, And) else (condition,)
    columns = plan.text_paths
    found: set[int] | None = None
    for part in parts:
        choices: Any = part.parts if isinstance(part, Or) else (part,)
        if not choices or not all(
            isinstance(choice, TextMatch) and choice.path in columns for choice in choices
        ):
            continue
        rows: set[int] = set()
        for choice in choices:
            rows.update(companion.find_text(columns[choice.path], choice.query.match_expression()))
        found = rows if found is None else found & rows
        if not found:
            return []
    return None if found is None else sorted(found, reverse=True)


def matching(companion: CompanionReader, condition: Any, bounds: Bounds) -> Masks:
    """Return the rows that match a search, and those that may match."""
    pa, _ = arrow()
    masks = companion.columns.evaluate(condition)
    if not bounds.has_times:
        return masks
    times = companion.columns.times(bounds.since_ms, bounds.until_ms)
    combine = pa.compute.and_
    return Masks(combine(masks.sure, times.sure), combine(masks.maybe, times.maybe))


def within(companion: CompanionReader, masks: Masks, rows: range) -> Masks:
    """Return the masks of a range of rows only."""
    pa, _ = arrow()
    if len(rows) == companion.meta.rows:
        return masks
    kept = companion.columns.mask_of(rows)
    return Masks(pa.compute.and_(masks.sure, kept), pa.compute.and_(masks.maybe, kept))


def rows_of(mask: Any) -> list[int]:
    """Return the rows of a mask, the last first."""
    pa, _ = arrow()
    rows: list[int] = pa.compute.indices_nonzero(mask).to_pylist()
    rows.reverse()
    return rows


def decided_rows(masks: Masks, rows: list[int]) -> frozenset[int]:
    """Return the rows that surely match; `rows` are those that may."""
    if masks.sure is masks.maybe:
        return frozenset(rows)
    return frozenset(rows_of(masks.sure))


def count_of(mask: Any) -> int:
    """Return the number of rows of a mask."""
    pa, _ = arrow()
    return int(pa.compute.sum(mask).as_py() or 0)


def aggregate_rollup(  # noqa: PLR0917 - an aggregate of one segment
    companion: CompanionReader,
    plan: CompanionPlan,
    groups: Accumulator,
    sums: rollups.RollupSums,
    condition: Any,
    matches: Any,
) -> bool:
    """Add a segment to an aggregate by a rollup; return False if none fits."""
    meta = companion.meta
    is_everything = condition == And(())
    present = [at for at in meta.rollups if is_everything or at not in meta.with_containers]
    use = rollups.choose(plan.rollups, plan.fields, groups, condition, present)
    if use is None:
        return False
    sums.add(use, companion.read_rollup(use.ordinal, sums.columns_of(use), use.equal), matches)
    return True


def aggregate_columns(
    companion: CompanionReader,
    groups: Accumulator,
    masks: Masks,
    add_rows: Callable[[Sequence[int]], None],
) -> bool:
    """Add a segment to an aggregate by its columns; return False if a field has none.

    `add_rows` adds rows by their messages, if these match.
    """
    pa, _ = arrow()
    compute, columns = pa.compute, companion.columns
    by = [columns.field(tuple(field.split("."))) for field in groups.by]
    measured = [columns.field(tuple(field.split("."))) for field in groups.fields]
    if any(at is None for at in (*by, *measured)):
        return False
    unsure = compute.and_(masks.maybe, compute.invert(masks.sure))
    if compute.any(unsure).as_py():
        add_rows(rows_of(unsure))
    known = masks.sure
    for at in {*by, *measured}:
        other = compute.and_(known, compute.equal(columns.column(f"k{at}"), OTHER))
        if compute.any(other).as_py():
            add_rows(rows_of(other))
            known = compute.and_(known, compute.invert(other))
    if count_of(known):
        _add_groups(companion, groups, known, by, measured)
    return True


def _add_groups(
    companion: CompanionReader,
    groups: Accumulator,
    known: Any,
    by: Sequence[Any],
    measured: Sequence[Any],
) -> None:
    pa, _ = arrow()
    compute, columns = pa.compute, companion.columns
    table: dict[str, Any] = {"row": pa.repeat(1, count_of(known))}
    keys = []
    if groups.every_ms is not None:
        times = compute.filter(columns.column(TIME), known)
        table["bucket"] = rollups.floor_times(times, groups.every_ms)
        keys.append("bucket")
    for place, at in enumerate(by):
        for part in ("k", "n", "s"):
            table[f"{part}{place}"] = compute.filter(columns.column(f"{part}{at}"), known)
            keys.append(f"{part}{place}")
    wanted: list[tuple[str, str]] = [("row", "count")]
    for place, at in enumerate(measured):
        table[f"m{place}"] = compute.filter(columns.column(f"n{at}"), known)
        wanted += [(f"m{place}", name) for name in ("count", "sum", "min", "max")]
        if groups.fields[place] in groups.percentiles:
            wanted.append((f"m{place}", "list"))
    grouped = pa.table(table).group_by(keys, use_threads=False).aggregate(wanted)
    lists = {name: grouped.column(name).to_pylist() for name in grouped.column_names}
    for row in range(grouped.num_rows):
        values = [
            key_of_value(_value(*(lists[f"{part}{place}"][row] for part in ("k", "n", "s"))))
            for place in range(len(by))
        ]
        bucket = lists["bucket"][row] if groups.every_ms is not None else None
        group = groups.group(bucket, values)
        group.count += lists["row_count"][row]
        for place, numbers in enumerate(group.numbers):
            parts = (lists[f"m{place}_{name}"][row] for name in ("count", "sum", "min", "max"))
            numbers.merge(*parts)
            if f"m{place}_list" in lists:
                numbers.extend([v for v in lists[f"m{place}_list"][row] if v is not None])


def _value(kind: int, number: float | None, string: str | None) -> Any:
    if kind == NUMBER:
        return number
    if kind == STRING:
        return string
    return {TRUE: True, FALSE: False}.get(kind)


def batches(rows: Iterable[int], size: int) -> Iterator[list[int]]:
    """Yield rows in batches that grow."""
    batch: list[int] = []
    for row in rows:
        batch.append(row)
        if len(batch) >= size:
            yield batch
            batch, size = [], min(4 * size, FEW_ROWS)
    if batch:
        yield batch
