"""How far the databases of a store are published, as `/health` and `/metrics` tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fourfold.store.background_publisher import Continuous


def shown(backup: Continuous, *, detailed: bool) -> dict[str, Any]:
    """Return what `/health` reports of the databases; their names only if `detailed`."""
    state = backup.state()
    failures = sorted(backup.failures.items())
    document: dict[str, Any] = {
        "count": state.databases,
        "last_point": state.last_point,
        "last_round_ms": state.last_round_ms,
        "unpublished_count": len(failures),
    }
    if detailed:
        document["unpublished"] = {name or "store": error.kind for name, error in failures}
    return document


def metrics_text(backup: Continuous) -> str:
    """For `/metrics`, in the Prometheus exposition format."""
    state = backup.state()
    last = 0.0 if state.last_round_ms is None else state.last_round_ms / 1000
    rows = (
        ("databases", "gauge", "Databases that are published.", state.databases),
        ("databases_failing", "gauge", "Databases that are not, at the moment.", state.failures),
        ("publications_total", "counter", "Publications of databases.", state.publications),
        ("objects_total", "counter", "Objects that they put.", state.objects),
        ("bytes_total", "counter", "Bytes of those.", state.bytes),
        ("points_total", "counter", "Points to restore to that were made.", state.points),
        ("merges_total", "counter", "Databases whose publications were merged.", state.merges),
        ("deleted_total", "counter", "Objects that nothing needed any more.", state.deleted),
        ("last_round_seconds", "gauge", "When all that was due was published.", last),
    )
    return "".join(
        f"# HELP fourfold_published_{name} {says}\n"
        f"# TYPE fourfold_published_{name} {kind}\n"
        f"fourfold_published_{name} {value}\n"
        for name, kind, says, value in rows
    )
