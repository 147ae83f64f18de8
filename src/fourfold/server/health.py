"""Publication status of the databases of a store, for `/health` and `/metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from fourfold.wire.errors import DatabasesHealth

if TYPE_CHECKING:
    from fourfold.store.background_publisher import Continuous


def databases_health(backup: Continuous, *, detailed: bool) -> DatabasesHealth:
    """Return the publication status for `/health`; database names only if `detailed`."""
    state = backup.state()
    failures = sorted(backup.failures.items())
    return DatabasesHealth(
        count=state.databases,
        last_point=state.last_point,
        last_round_ms=state.last_round_ms,
        unpublished_count=len(failures),
        unpublished={name or "store": error.kind for name, error in failures}
        if detailed
        else UNSET,
    )


def metrics_text(backup: Continuous) -> str:
    """Return the publication metrics in the Prometheus text format."""
    state = backup.state()
    last = 0.0 if state.last_round_ms is None else state.last_round_ms / 1000
    rows = (
        ("databases", "gauge", "Databases that are published.", state.databases),
        ("databases_failing", "gauge", "Databases that currently fail to publish.", state.failures),
        ("publications_total", "counter", "Publications of databases.", state.publications),
        ("objects_total", "counter", "Objects uploaded by publications.", state.objects),
        ("bytes_total", "counter", "Bytes uploaded by publications.", state.bytes),
        ("points_total", "counter", "Restore points created.", state.points),
        ("merges_total", "counter", "Databases whose segments were compacted.", state.merges),
        ("deleted_total", "counter", "Unreferenced objects deleted.", state.deleted),
        ("last_round_seconds", "gauge", "Time when everything due was last published.", last),
    )
    return "".join(
        f"# HELP fourfold_published_{name} {description}\n"
        f"# TYPE fourfold_published_{name} {kind}\n"
        f"fourfold_published_{name} {value}\n"
        for name, kind, description, value in rows
    )
