"""Plans of companions: what the bundles of a stream contain, in which generation."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, Final

import msgspec

from fourfold.errors import CorruptData
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.streams.schemas.registry import Registry
from fourfold.models.streams.schemas.search import Search, parse_interval_ms

SQL = load_queries("fourfold.models.streams.search.companions")
FORMAT: Final = 1
"""Version of the bundle format; another one makes new bundles."""


class PlannedRollup(msgspec.Struct, frozen=True):
    """A rollup: its interval, and the ordinals of its fields."""

    interval_ms: int
    by: list[int]
    measures: list[int]


class CompanionPlan(msgspec.Struct, frozen=True, dict=True):
    """Contents of the companions of a stream. Numbers are ordinals of `fields`."""

    format: int
    families: list[str]
    fields: list[str]
    columns: list[int]
    text: list[int]
    timestamp: str | None
    rollups: list[PlannedRollup]
    schema: str
    """Digest of the lenses and the version to which messages are converted."""

    @cached_property
    def text_paths(self) -> dict[tuple[str, ...], int]:
        """The paths of the fields of the full-text index, each with its column there."""
        return {tuple(self.fields[at].split(".")): place for place, at in enumerate(self.text)}

    @cached_property
    def column_paths(self) -> dict[tuple[str, ...], int]:
        """The paths of the fields with a column, each with its ordinal among them."""
        return {tuple(self.fields[at].split(".")): place for place, at in enumerate(self.columns)}

    @property
    def column_fields(self) -> list[str]:
        """The fields with a column, in order."""
        return [self.fields[at] for at in self.columns]

    @cached_property
    def digest(self) -> str:
        """Hash of the plan."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


def make_plan(registry: Registry) -> CompanionPlan:
    """Return the plan of a stream by its schema registry; without families if it needs none."""
    search = registry.search or Search()
    fields: dict[str, int] = {}

    def ordinals(names: list[str]) -> list[int]:
        return [fields.setdefault(name, len(fields)) for name in names]

    rollups = [
        PlannedRollup(
            parse_interval_ms(rollup.every), ordinals(rollup.by), ordinals(rollup.measures)
        )
        for rollup in search.rollups
    ]
    columns = sorted({*ordinals(search.columns), *fields.values()})
    text = ordinals(search.text)
    families = []
    if columns or text or search.timestamp is not None:
        families = ["col", *(["fts"] if text else []), *(["agg", "mblk"] if rollups else [])]
    lenses: Any = [registry.current_version, registry.lenses] if registry.current_version else []
    schema = hashlib.sha256(msgspec.json.encode(lenses, order="sorted")).hexdigest()[:16]
    return CompanionPlan(
        FORMAT, families, list(fields), columns, text, search.timestamp, rollups, schema
    )


def refresh(txn: Transaction, stream: str, registry: Registry, now_ms: int) -> None:
    """Record the plan of a stream after its rules changed; another plan is another generation."""
    plan = make_plan(registry)
    row = txn.one(SQL.plan, (stream,))
    if row is None and not plan.families:
        return
    digest = plan.digest
    if row is not None and row[1] == digest:
        return
    generation = 1 if row is None else row[0] + 1
    text = msgspec.json.encode(plan).decode()
    txn.execute(SQL.put_plan, (stream, generation, digest, text, now_ms))
    if not plan.families:
        # No companion of another generation will replace them.
        txn.execute(SQL.retire_companions, (stream,))
        txn.execute(SQL.drop_companions, (stream,))
    txn.execute(SQL.manifest_due, (stream,))


def read_plan(snapshot: ReadTransaction, stream: str) -> tuple[int, CompanionPlan] | None:
    """Return the generation and the plan of a stream; None if it has none."""
    row = snapshot.one(SQL.plan, (stream,))
    return None if row is None else (row[0], decode_plan(row[2], stream))


def decode_plan(text: str, stream: str) -> CompanionPlan:
    """Return a stored plan; raise CorruptData if it is not one."""
    try:
        return msgspec.json.decode(text, type=CompanionPlan)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"stream {stream!r}: invalid plan of companions: {error}") from error
