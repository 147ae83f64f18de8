"""Pages of keys: the list, the preview of a new key, its secret, and the preview of a deletion."""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

from msgspec import Struct

from fourfold.errors import NotFound
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Form, Visit
from fourfold.server.key_store import MODELS, SCOPES
from fourfold.wire.store import CreatedKey, CurrentKey, KeyInfo, KeyList

MEANINGS: Final[dict[str, str]] = {
    "read": "read and follow",
    "write": "create, append, commit and merge",
    "admin": "configure, delete, run jobs and manage keys",
    "query": "run SQL",
    "metrics": "read metrics",
    "audit": "read the audit log",
    "sync": "exchange rows of graphs as a peer",
}
"""Descriptions of the scopes."""


class NewKeyQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Grants of a new key; models and scopes that are not empty are selected."""

    documents: str = ""
    streams: str = ""
    graphs: str = ""
    sessions: str = ""
    store: str = ""
    read: str = ""
    write: str = ""
    admin: str = ""
    metrics: str = ""
    query: str = ""
    audit: str = ""
    sync: str = ""
    prefix: str = ""
    label: str = ""


class DeleteKeyQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the preview of a deletion."""

    id: str


class NewKeyFields(Struct, kw_only=True, frozen=True):
    """Fields of the form that creates a key. Models and scopes are separated by spaces."""

    scopes: str
    token: str
    """Idempotency key: sending the form again creates no second key."""
    models: str = ""
    prefix: str = ""
    label: str = ""


class DeleteKeyFields(Struct, kw_only=True, frozen=True):
    """Fields of the form that deletes a key."""

    id: str


async def keys_page(visit: Visit, _query: ExplorerQuery) -> dict[str, Any]:
    """List the keys of the store, without their secrets."""
    keys = await visit.api.get("/v1/keys", KeyList)
    return {
        "required": keys.required,
        "keys": [_key_row(key) for key in keys.keys],
        "own": await _own_id(visit),
    }


async def _own_id(visit: Visit) -> str:
    """Return the id of the key of the visitor; empty without one."""
    key = (await visit.api.get("/v1/key", CurrentKey)).key
    return "" if key is None else key.id


def _key_row(key: KeyInfo) -> dict[str, Any]:
    """Return a key with its models in groups that have the same scopes and prefix."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for grant in key.grants:
        groups.setdefault((grant.prefix, tuple(grant.scopes)), []).append(grant.model)
    grants = [
        {"models": models, "prefix": prefix, "scopes": scopes}
        for (prefix, scopes), models in groups.items()
    ]
    return {
        "id": key.id,
        "label": key.label,
        "grants": grants,
        "created_at_ms": key.created_at_ms,
        "created_by": key.created_by,
        "expires_at_ms": key.expires_at_ms,
        "is_expired": key.expires_at_ms is not None and key.expires_at_ms <= time.time() * 1000,
        "last_used_on": key.last_used_on,
        "replaces": key.replaces,
        "requests_per_s": key.requests_per_s,
        "bytes_per_day": key.bytes_per_day,
    }


async def new_key_page(visit: Visit, query: NewKeyQuery) -> dict[str, Any]:
    """Show what a new key would be allowed, with the form that creates it."""
    keys = await visit.api.get("/v1/keys", KeyList)
    models = [name for name in MODELS if getattr(query, name)]
    possible = [name for name in MODELS if not query.prefix or name != "store"]
    return {
        "models": list(MODELS),
        "scopes": [{"name": name, "meaning": MEANINGS[name]} for name in SCOPES],
        "chosen_models": models,
        "chosen_scopes": [name for name in SCOPES if getattr(query, name)],
        "prefix": query.prefix,
        "label": query.label,
        "allowed": models or possible,
        "is_first": not keys.keys,
        "token": secrets.token_hex(16),
    }


async def create_key(visit: Visit, fields: NewKeyFields) -> dict[str, Any]:
    """Create a key and show its secret, which no other page shows."""
    body = {
        "scopes": fields.scopes.split(),
        "models": fields.models.split(),
        "prefix": fields.prefix,
        "label": fields.label,
    }
    headers = {"idempotency-key": fields.token}
    response = await visit.api.call("POST", "/v1/keys", body, headers)
    created = visit.api.decode(response, CreatedKey)
    return {"key": _key_row(created), "secret": created.key}


async def delete_key_page(visit: Visit, query: DeleteKeyQuery) -> dict[str, Any]:
    """Show what a key is allowed, with the form that deletes it."""
    keys = await visit.api.get("/v1/keys", KeyList)
    for key in keys.keys:
        if key.id == query.id:
            return {"key": _key_row(key), "left": len(keys.keys) - 1, "own": await _own_id(visit)}
    raise NotFound(f"unknown key {query.id!r:.80}")


async def delete_key(visit: Visit, fields: DeleteKeyFields) -> str:
    """Delete a key."""
    await visit.api.call("DELETE", f"/v1/keys/{fields.id}")
    return visit.link("/keys")


PAGES: Final = (
    ExplorerPage("/keys", "keys.html", keys_page, ExplorerQuery, "List keys."),
    ExplorerPage("/newkey", "new_key.html", new_key_page, NewKeyQuery, "Preview a key."),
    ExplorerPage(
        "/deletekey", "delete_key.html", delete_key_page, DeleteKeyQuery, "Preview a deletion."
    ),
)
FORMS: Final = (
    Form("/newkey", create_key, NewKeyFields, "Create a key.", "created_key.html"),
    Form("/deletekey", delete_key, DeleteKeyFields, "Delete a key."),
)
