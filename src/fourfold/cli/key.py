"""`fourfold key`: access keys of the server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from fourfold.cli.options import Age, root_argument
from fourfold.cli.options import command as _command
from fourfold.cli.output import Output
from fourfold.server.audit import record_command
from fourfold.server.auth import Access
from fourfold.server.key_store import MODELS, SCOPES, Key, Model, Scope
from fourfold.store import open_store


@click.group("key", epilog="Every command takes --json and --traceback.")
def command() -> None:
    """Keys of the server: permissions to read, write or administer objects of some models.

    A key is shown once. The store contains only its hash.
    """


@_command("add")
@root_argument(required=True)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(list(SCOPES)),
    multiple=True,
    default=("read", "write"),
    show_default=True,
    help="Permission of the key; repeatable.",
)
@click.option(
    "--model",
    "models",
    type=click.Choice(list(MODELS)),
    multiple=True,
    help="Model that the key is for; repeatable. By default all, and the store without a prefix.",
)
@click.option("--prefix", default="", help="Only objects whose names start with this.")
@click.option("--label", default="", help="Display name of the key.")
@click.option(
    "--expires-in", "expires_in_s", type=Age(), help="Lifetime of the key; by default no end."
)
@click.option(
    "--requests-per-second",
    "requests_per_s",
    type=float,
    metavar="NUMBER",
    help="Quota of requests; beyond it the server responds with 429.",
)
@click.option(
    "--bytes-per-day",
    type=int,
    metavar="BYTES",
    help="Quota of the bodies that the key sends and gets.",
)
def add(
    out: Output, root: Path, *, scopes: tuple[Scope, ...], models: tuple[Model, ...], **options: Any
) -> None:
    """Create a key and print it. From now on the server requires one.

    The key is allowed nothing but its scopes for the objects of its models. One key for all models
    opens every page of the explorer that its scopes allow.
    """
    with open_store(root), Access(root) as access:
        key, secret = access.add(scopes, models=models, **options)
    _record(root, "create_key", key.id)
    _show_secret(out, key, secret)


def _record(root: Path, operation: str, path: str) -> None:
    """Record a change of keys in the audit log, unless that is off."""
    with open_store(root, mode="r") as store:
        is_on = store.settings.server.audit_bytes > 0
    if is_on:
        record_command(root, operation, f"/v1/keys/{path}")


def _show_secret(out: Output, key: Key, secret: str) -> None:
    if out.as_json:
        out.document({"id": key.id, "key": secret, **_rows(key)[0], **_lifetime(key)})
    else:
        out.line(secret)


def _lifetime(key: Key) -> dict[str, Any]:
    """Return the lifetime, the last use and the quotas of a key."""
    return {
        "expires_at_ms": key.expires_at_ms,
        "last_used_on": key.last_used_on,
        "replaces": key.replaces or None,
        "requests_per_s": key.requests_per_s,
        "bytes_per_day": key.bytes_per_day,
    }


@_command("list", rows=True)
@root_argument(required=True)
def list_keys(out: Output, root: Path) -> None:
    """List the keys, without their secrets."""
    with open_store(root, mode="r"), Access(root) as access:
        keys = access.stored_keys()
    rows = [
        {"id": key.id, "label": key.label, **grant, **_lifetime(key)}
        for key in keys
        for grant in _rows(key)
    ]
    out.rows(
        {"keys": rows},
        "keys",
        {
            "key": "id",
            "models": lambda row: ", ".join(row["models"]),
            "scopes": lambda row: ", ".join(row["scopes"]),
            "prefix": "prefix",
            "label": "label",
            "expires": lambda row: _time(row["expires_at_ms"]),
            "last used": lambda row: row["last_used_on"] or "",
            "quotas": _quotas,
        },
        fields=(
            *("id", "label", "models", "scopes", "prefix", "expires_at_ms", "last_used_on"),
            *("replaces", "requests_per_s", "bytes_per_day"),
        ),
    )


def _time(at_ms: int | None) -> str:
    """Format a time in UTC, to the second; empty for None."""
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def _quotas(row: dict[str, Any]) -> str:
    rate, size = row["requests_per_s"], row["bytes_per_day"]
    parts = ["" if rate is None else f"{rate:g}/s", "" if size is None else f"{size} B/day"]
    return ", ".join(part for part in parts if part)


def _rows(key: Key) -> list[dict[str, Any]]:
    """Return what a key allows: a row for all models with the same scopes and prefix."""
    groups: dict[tuple[tuple[Scope, ...], str], list[Model]] = {}
    for grant in key.grants:
        groups.setdefault((grant.scopes, grant.prefix), []).append(grant.model)
    return [
        {"models": models, "scopes": list(scopes), "prefix": prefix}
        for (scopes, prefix), models in (groups or {((), ""): []}).items()
    ]


@_command("rotate")
@root_argument(required=True)
@click.argument("key_id")
@click.option(
    "--overlap",
    "overlap_s",
    type=Age(),
    default="24h",
    show_default=True,
    help="Time until the old key expires; both are accepted until then.",
)
@click.option(
    "--expires-in",
    "expires_in_s",
    type=Age(),
    help="Lifetime of the new key; by default that of the old one.",
)
def rotate(
    out: Output, root: Path, *, key_id: str, overlap_s: float, expires_in_s: float | None
) -> None:
    """Replace a key by its id, and print the new one, which is allowed the same.

    The old key expires after the overlap. Give the new one to its clients before that: `key list`
    shows the day on which each was last used.
    """
    with open_store(root, mode="r"), Access(root) as access:
        key, secret = access.rotate(key_id, overlap_s=overlap_s, expires_in_s=expires_in_s)
    _record(root, "rotate_key", f"{key_id}/rotate")
    _show_secret(out, key, secret)


@_command("expire")
@root_argument(required=True)
@click.argument("key_id")
@click.option("--after", "after_s", type=Age(), default="0s", show_default=True, help="When.")
@click.option("--never", is_flag=True, help="The key no longer expires.")
def expire(out: Output, root: Path, *, key_id: str, after_s: float, never: bool) -> None:
    """Set when a key expires, by default now; it stays in the list, and can be given more time."""
    with open_store(root, mode="r"), Access(root) as access:
        at_ms = access.expire(key_id, None if never else after_s)
    _record(root, "expire_key", f"{key_id}/expire")
    if out.as_json:
        out.document({"id": key_id, "expires_at_ms": at_ms})
    else:
        out.line(f"{key_id} expires at {_time(at_ms)}" if at_ms else f"{key_id} does not expire")


@_command("remove")
@root_argument(required=True)
@click.argument("key_id")
def remove(out: Output, root: Path, *, key_id: str) -> None:
    """Remove a key by its id; a running server refuses it from then on.

    After the last key is removed, a server refuses every request that needs a key until you add
    one. `fourfold serve --open` requires no key.
    """
    with open_store(root, mode="r"), Access(root) as access:
        left = access.remove(key_id)
    _record(root, "delete_key", key_id)
    if out.as_json:
        out.document({"id": key_id, "removed": True, "left": left})
        return
    out.line(f"{key_id} is removed")
    if not left:
        out.line(
            "This was the last key. A server refuses every request that needs a key until"
            " you add one with `fourfold key add`."
        )


for _each in (add, list_keys, rotate, expire, remove):
    command.add_command(_each)
