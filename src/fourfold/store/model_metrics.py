"""Metrics of a store by model, so that their number does not depend on the number of databases.

What a database counted stays part of the counters of its model after it was closed: a counter
never decreases, however often spaces are closed and opened again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fourfold.errors import FourfoldError
from fourfold.kernel import Database, MetricsReading, combine
from fourfold.models.model import all_models, find_kind

OTHER: Final = "other"
"""Name for databases of no model: those of pipelines, and the user's own."""


class ModelMetrics:
    """Metrics of the databases of one store; the store calls every method under its lock."""

    def __init__(self) -> None:
        self._closing: list[Database] = []
        self._closed: dict[str, MetricsReading] = {}
        """What closed databases have counted, by model."""

    def begin_close(self, database: Database) -> None:
        """Count a database that is not open any more, until `end_close`."""
        self._closing.append(database)

    def end_close(self, database: Database) -> None:
        """Retain what a closed database has counted."""
        self._closing.remove(database)
        name = _model_name(database)
        counted = [self._closed[name]] if name in self._closed else []
        self._closed[name] = combine(name, [*counted, database.counters().without_gauges()])

    def parts(self) -> tuple[list[Database], dict[str, MetricsReading]]:
        """Return the databases that are being closed, and what closed ones have counted."""
        return list(self._closing), dict(self._closed)


def read_models(
    databases: Iterable[Database], closed: dict[str, MetricsReading]
) -> list[MetricsReading]:
    """Return one reading for each model that has an open database, or had one."""
    single = {model.name for model in all_models() if model.location.check_id is None}
    readings: dict[str, list[MetricsReading]] = {}
    for database in databases:
        name = _model_name(database)
        readings.setdefault(name, []).append(_read(database, with_sequences=name in single))
    for name, reading in closed.items():
        readings.setdefault(name, []).append(reading)
    return [combine(name, readings[name]) for name in sorted(readings)]


def _read(database: Database, *, with_sequences: bool) -> MetricsReading:
    """Return the metrics of a database; one that fails has only its counters."""
    if with_sequences:
        try:
            return database.metrics()
        except FourfoldError:
            return database.counters()
    return database.counters()


def _model_name(database: Database) -> str:
    kind = find_kind(database.profile_name)
    return OTHER if kind is None else kind[0].name
