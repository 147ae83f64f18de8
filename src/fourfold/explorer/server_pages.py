"""Pages about the server: health, keys and kinds of problems."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UnsetType

from fourfold.errors import tree
from fourfold.explorer import values
from fourfold.explorer.page import Page, PageQuery, Visit
from fourfold.server import errors
from fourfold.wire.errors import Health, HealthError, ProblemKind
from fourfold.wire.store import KeyInfo, KeyList

LABELS: Final = {"ok": "ok", "warn": "look at it", "fail": "failed", "none": "off"}


class ProblemQuery(PageQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a kind of problem."""

    kind: str


async def health_page(visit: Visit, _query: PageQuery) -> dict[str, Any]:
    """Show the health of the server."""
    health = await visit.api.get("/health", Health)
    return {"health": health, "checks": health_checks(health, visit.now_ms)}


def health_checks(health: Health, now_ms: int) -> list[dict[str, str]]:
    """Return the findings of the health as rows."""
    rows = [_check("Server", health.error, f"serving, transport {health.front}")]
    if health.objects is None:
        rows.append(_row("Archive", "none", "not published: start `fourfold serve --objects URL`"))
    else:
        rows.append(_check("Object store", health.objects.error, "reachable"))
    if health.unpublished_count:
        finding = f"{health.unpublished_count} streams cannot be published"
        rows.append(_row("Streams", "warn", finding))
    databases = health.databases
    if databases is not None:
        last = values.age(databases.last_round_ms, now_ms)
        finding = f"{databases.count} databases, published {last}"
        if databases.unpublished_count:
            finding = f"{databases.unpublished_count} of {databases.count} cannot be published"
        rows.append(_row("Databases", "warn" if databases.unpublished_count else "ok", finding))
    return rows


def _check(name: str, error: HealthError | None, finding: str) -> dict[str, str]:
    if error is None:
        return _row(name, "ok", finding)
    message = error.kind if isinstance(error.message, UnsetType) else error.message
    hint = "" if isinstance(error.hint, UnsetType) else error.hint
    return {**_row(name, "fail", message), "hint": hint}


def _row(name: str, status: str, finding: str) -> dict[str, str]:
    return {"name": name, "status": status, "finding": finding, "hint": "", "label": LABELS[status]}


async def keys_page(visit: Visit, _query: PageQuery) -> dict[str, Any]:
    """List the keys of the store, without their secrets."""
    keys = await visit.api.get("/v1/keys", KeyList)
    return {"required": keys.required, "keys": [_key_row(key) for key in keys.keys]}


def _key_row(key: KeyInfo) -> dict[str, Any]:
    """Return a key with its models in groups that have the same scopes and prefix."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for grant in key.grants:
        groups.setdefault((grant.prefix, tuple(grant.scopes)), []).append(grant.model)
    grants = [
        {"models": models, "prefix": prefix, "scopes": scopes}
        for (prefix, scopes), models in groups.items()
    ]
    return {"id": key.id, "label": key.label, "grants": grants}


async def problems_page(_visit: Visit, _query: PageQuery) -> dict[str, Any]:
    """List the kinds of problems."""
    kinds = sorted({cls.kind for cls in tree()})
    return {"kinds": [errors.problem_kind(kind) for kind in kinds]}


async def problem_page(visit: Visit, query: ProblemQuery) -> dict[str, Any]:
    """Explain a kind of problem."""
    return {"kind": await visit.api.get(f"{errors.PROBLEMS}{query.kind}", ProblemKind)}


PAGES: Final = (
    Page("/keys", "keys.html", keys_page, PageQuery, "List keys."),
    Page("/status", "health.html", health_page, PageQuery, "Show the health."),
    Page("/problems", "problems.html", problems_page, PageQuery, "List kinds of problems."),
    Page("/problem", "problem.html", problem_page, ProblemQuery, "Explain a kind of problem."),
)
