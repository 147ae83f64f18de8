"""`fourfold audit`: who wrote what on a server, and what it refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from fourfold.cli.options import command as fourfold_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output
from fourfold.server.audit import read_entries
from fourfold.store import open_store
from fourfold.wire.store import AuditEntry

_FIELDS = AuditEntry.__struct_fields__


@fourfold_command("audit", rows=True)
@root_argument(required=True)
@click.option("--key", metavar="ID", help="Only entries of this key.")
@click.option(
    "--operation", metavar="NAME", help="Only entries of this operation, such as create_key."
)
@click.option("--refused", is_flag=True, help="Only requests that failed or were refused.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Number of the newest entries.",
)
def command(
    out: Output, root: Path, *, key: str | None, operation: str | None, refused: bool, limit: int
) -> None:
    """Print the newest entries of the audit log of ROOT, oldest first.

    A server records every write but plain appends to streams, and a sample of the requests that it
    refused: the time, the key, the address, the operation, the path and the outcome; no bodies.
    """
    open_store(root, mode="r").close()
    page = read_entries(root, limit=limit, key=key, operation=operation, refused=refused)
    rows = [msgspec.structs.asdict(entry) for entry in reversed(page.items)]
    out.rows(
        {"entries": rows},
        "entries",
        {
            "time": _time,
            "key": "key",
            "address": "address",
            "operation": "operation",
            "path": "path",
            "outcome": lambda row: " ".join(
                filter(None, (str(row["status"] or ""), row["error"], _suppressed(row)))
            ),
        },
        fields=_FIELDS,
    )


def _time(row: dict[str, Any]) -> str:
    time = datetime.fromtimestamp(row["time_ms"] / 1000, UTC)
    return time.isoformat(sep=" ", timespec="milliseconds")


def _suppressed(row: dict[str, Any]) -> str:
    return f"(and {row['suppressed']} more)" if row["suppressed"] else ""
