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
def add(
    out: Output,
    root: Path,
    *,
    scopes: tuple[Scope, ...],
    models: tuple[Model, ...],
    prefix: str,
    label: str,
) -> None:
    """Create a key and print it. From now on the server requires one.

    The key is allowed nothing but its scopes for the objects of its models. One key for all models
    opens every page of the explorer that its scopes allow.
    """
    with open_store(root), Access(root) as access:
        key, secret = access.add(scopes, prefix, label, models=models)
    if out.as_json:
        out.document({"id": key.id, "key": secret, **_rows(key)[0]})
    else:
        out.line(secret)


@_command("list", rows=True)
@root_argument(required=True)
def list_keys(out: Output, root: Path) -> None:
    """List the keys, without their secrets."""
    with open_store(root, mode="r"), Access(root) as access:
        keys = access.stored_keys()
    rows = [{"id": key.id, "label": key.label, **grant} for key in keys for grant in _rows(key)]
    out.rows(
        {"keys": rows},
        "keys",
        {
            "key": "id",
            "models": lambda row: ", ".join(row["models"]),
            "scopes": lambda row: ", ".join(row["scopes"]),
            "prefix": "prefix",
            "label": "label",
        },
        fields=("id", "label", "models", "scopes", "prefix"),
    )


def _rows(key: Key) -> list[dict[str, Any]]:
    """Return what a key allows: a row for all models with the same scopes and prefix."""
    groups: dict[tuple[tuple[Scope, ...], str], list[Model]] = {}
    for grant in key.grants:
        groups.setdefault((grant.scopes, grant.prefix), []).append(grant.model)
    return [
        {"models": models, "scopes": list(scopes), "prefix": prefix}
        for (scopes, prefix), models in (groups or {((), ""): []}).items()
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
