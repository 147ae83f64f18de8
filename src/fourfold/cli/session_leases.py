"""`fourfold session claim`, `renew`, `release`, `leases`: who may write a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from fourfold import limits
from fourfold.cli.completion import complete_sessions
from fourfold.cli.options import command as plain_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output
from fourfold.models.sessions import Claim, Sessions
from fourfold.models.sessions.model import MODEL
from fourfold.store import open_store

T = TypeVar("T")
_TTL = click.option(
    "--ttl",
    type=float,
    default=limits.SESSION_LEASE_S,
    show_default=True,
    metavar="SECONDS",
    help="Time until another worker may claim the session.",
)


@plain_command("claim")
@root_argument(required=True)
@click.argument("sid", shell_complete=complete_sessions)
@click.argument("holder")
@_TTL
@click.option("--steal", is_flag=True, help="Claim even if a lease is in force.")
def claim(out: Output, root: Path, sid: str, holder: str, ttl: float, *, steal: bool) -> None:
    """Claim the session SID for HOLDER, and print the epoch of the lease.

    Writes with the epochs of earlier leases are refused from now on.
    """
    granted = _write(root, lambda sessions: sessions.claim(sid, holder, ttl, steal=steal))
    _print(out, "claimed", granted)


@plain_command("renew")
@root_argument(required=True)
@click.argument("sid", shell_complete=complete_sessions)
@click.argument("epoch", type=int)
@_TTL
def renew(out: Output, root: Path, sid: str, epoch: int, ttl: float) -> None:
    """Let the lease EPOCH of the session SID last longer."""
    _print(out, "renewed", _write(root, lambda sessions: sessions.renew(sid, epoch, ttl)))


@plain_command("release")
@root_argument(required=True)
@click.argument("sid", shell_complete=complete_sessions)
@click.argument("epoch", type=int)
def release(out: Output, root: Path, sid: str, epoch: int) -> None:
    """End the lease EPOCH of the session SID."""
    _write(root, lambda sessions: sessions.release(sid, epoch))
    if out.as_json:
        out.document({"session": sid, "epoch": epoch, "released": True})
    else:
        out.line(f"released {sid}: epoch {epoch}")


@plain_command("leases", rows=True)
@root_argument(required=True)
@click.option("--prefix", default="", help="Only sessions whose ids begin with it.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=limits.SESSION_PAGE_EVENTS,
    show_default=True,
    help="Maximum number of leases.",
)
def list_leases(out: Output, root: Path, prefix: str, limit: int) -> None:
    """List leases that were not released, expired or not, by session id."""
    claims: list[Claim] = []
    with open_store(root, mode="r") as store:
        if MODEL.location.names(root):
            claims = store.sessions.list_leases(prefix=prefix, limit=limit)
    out.rows(
        {"root": str(root), "leases": msgspec.to_builtins(claims)},
        "leases",
        {"session": "session", "holder": "holder", "epoch": "epoch", "expires": "expires_at"},
        fields=Claim.__struct_fields__,
        empty="no leases",
    )


def _write(root: Path, work: Callable[[Sessions], T]) -> T:
    with open_store(root) as store:
        return work(store.sessions)


def _print(out: Output, verb: str, lease: Claim) -> None:
    if out.as_json:
        out.document(msgspec.to_builtins(lease))
        return
    out.line(
        f"{verb} {lease.session} for {lease.holder} until {lease.expires_at}: epoch {lease.epoch}"
    )
