"""The page of the audit log: who wrote what on this server, and what was refused."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Visit
from fourfold.wire.store import AuditEntry, AuditPage

ENTRIES_SHOWN: Final = 50


class AuditPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of the audit log."""

    key: str = ""
    """Id of a key: only its entries."""
    operation: str = ""
    """Only entries of this operation, such as `create_key`."""
    outcome: Literal["", "refused"] = ""
    """`refused` for requests that failed or were refused."""
    cursor: str = ""


async def audit_page(visit: Visit, query: AuditPageQuery) -> dict[str, Any]:
    """List the entries of the audit log, newest first."""
    page = await visit.api.get(
        *("/v1/audit", AuditPage),
        key=query.key,
        operation=query.operation,
        refused="true" if query.outcome else None,
        cursor=query.cursor,
        limit=ENTRIES_SHOWN,
    )
    until_ms = visit.time_ms
    is_filtered = bool(query.key or query.operation or query.outcome)
    return {
        "key": query.key,
        "operation": query.operation,
        "outcome": query.outcome,
        "is_filtered": is_filtered,
        "entries": [
            _entry_row(entry)
            for entry in page.items
            if until_ms is None or entry.time_ms <= until_ms
        ],
        "is_empty": not (page.items or is_filtered or query.cursor),
        "cursor": query.cursor,
        "next_cursor": page.next_cursor,
    }


def _entry_row(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry for the page, with the state of its outcome."""
    state = "ok"
    if entry.error:
        state = "fail" if entry.status >= 500 else "warn"
    return {**msgspec.to_builtins(entry), "state": state}


PAGES: Final = (
    ExplorerPage("/audit", "audit.html", audit_page, AuditPageQuery, "List the audit log."),
)
