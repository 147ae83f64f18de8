"""`fourfold key`: access keys of the server."""

from __future__ import annotations

from pathlib import Path

import click

from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output
from fourfold.server.auth import SCOPES, Access, Scope
from fourfold.store import open_store


@click.group("key", epilog="Every command takes --json and --traceback.")
def command() -> None:
    """Keys of the server: permissions to read, write or administer streams.

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
@click.option("--prefix", default="", help="Only streams whose name starts with this.")
@click.option("--label", default="", help="Display name of the key.")
def add(out: Output, root: Path, *, scopes: tuple[Scope, ...], prefix: str, label: str) -> None:
    """Create a key and print it. From now on the server requires one."""
    with open_store(root):
        key, secret = Access(root).add(scopes, prefix, label)
    if out.as_json:
        out.document({"id": key.id, "key": secret, "scopes": list(key.scopes), "prefix": prefix})
    else:
        out.line(secret)


@_command("list")
@root_argument(required=True)
def list_keys(out: Output, root: Path) -> None:
    """List the keys, without their secrets."""
    with open_store(root, mode="r"):
        keys = Access(root).stored_keys()
    if out.as_json:
        rows = [
            {"id": key.id, "scopes": list(key.scopes), "prefix": key.prefix, "label": key.label}
            for key in keys
        ]
        out.document({"keys": rows})
    else:
        shown = [(key.id, ", ".join(key.scopes), key.prefix, key.label) for key in keys]
        out.table(("key", "scopes", "prefix", "label"), shown)


@_command("remove")
@root_argument(required=True)
@click.argument("key_id")
def remove(out: Output, root: Path, *, key_id: str) -> None:
    """Remove a key by its id; a running server refuses it from then on.

    After the last key is removed, a server refuses every request that needs a key until you add
    one. `fourfold serve --open` requires no key.
    """
    with open_store(root, mode="r"):
        left = Access(root).remove(key_id)
    if out.as_json:
        out.document({"id": key_id, "removed": True, "left": left})
        return
    out.line(f"{key_id} is removed")
    if not left:
        out.line(
            "This was the last key. A server refuses every request that needs a key until"
            " you add one with `fourfold key add`."
        )


for _each in (add, list_keys, remove):
    command.add_command(_each)
