"""`fourfold key`: access keys of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fourfold.cli.options import command as _command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output
from fourfold.server.auth import Access
from fourfold.server.key_store import MODELS, SCOPES, Key, Model, Scope
from fourfold.store import open_store


@click.group("key", epilog="Every command takes --json and --traceback.")
def command() -> None:
    """Keys of the server: permissions to read, write or administer the objects of a model.

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
    type=click.Choice(list(MODELS)),
    default="streams",
    show_default=True,
    help="Model that the key is for.",
)
@click.option("--prefix", default="", help="Only objects of the model whose name starts with this.")
@click.option("--label", default="", help="Display name of the key.")
def add(
    out: Output, root: Path, *, scopes: tuple[Scope, ...], model: Model, prefix: str, label: str
) -> None:
    """Create a key and print it. From now on the server requires one.

    The key is allowed nothing but its scopes for the objects of its model.
    """
    with open_store(root), Access(root) as access:
        key, secret = access.add(scopes, prefix, label, model=model)
    if out.as_json:
        out.document({"id": key.id, "key": secret, **_grants(key)[0]})
    else:
        out.line(secret)


@_command("list", rows=True)
@root_argument(required=True)
def list_keys(out: Output, root: Path) -> None:
    """List the keys, without their secrets."""
    with open_store(root, mode="r"), Access(root) as access:
        keys = access.stored_keys()
    rows = [{"id": key.id, "label": key.label, **grant} for key in keys for grant in _grants(key)]
    out.rows(
        {"keys": rows},
        "keys",
        {
            "key": "id",
            "model": "model",
            "scopes": lambda row: ", ".join(row["scopes"]),
            "prefix": "prefix",
            "label": "label",
        },
        fields=("id", "label", "model", "scopes", "prefix"),
    )


def _grants(key: Key) -> list[dict[str, Any]]:
    return [
        {"model": grant.model, "scopes": list(grant.scopes), "prefix": grant.prefix}
        for grant in key.grants
    ]


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
