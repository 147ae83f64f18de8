"""What the commands on apps share: ROOT, APP, and the graphs that they lead to."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from fourfold.cli.options import command, root_argument
from fourfold.errors import NotFound
from fourfold.models.graphs import App, Graphs
from fourfold.models.graphs.records import KINDS
from fourfold.store import open_store
from fourfold.store.layout import graphs_path

kind_choice: Final = click.Choice(list(KINDS))


def graphs_command(
    name: str, *, writes: bool = False, makes: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """A command on the graphs of a store; its function gets an `Output` and `Graphs`."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(out: object, root: Path, **arguments: Any) -> None:
            with graphs_of(root, writes=writes, makes=makes) as graphs:
                function(out, graphs, **arguments)

        return command(name)(root_argument(required=True)(run))

    return decorate


@contextmanager
def graphs_of(root: Path, *, writes: bool, makes: bool = False) -> Iterator[Graphs]:
    """The graphs of a store, for reading beside a writer, or for writing. Only a command that makes
    something new makes the store, too.
    """
    if not makes:
        with open_store(root, mode="r"):
            if not graphs_path(root).exists():
                raise NotFound(
                    f"{root}: there are no apps yet",
                    hint=f"Register one: `fourfold app register {root} SLUG`.",
                )
    with open_store(root, mode="rw" if writes else "r") as store:
        yield store.graphs


def app_of(graphs: Graphs, given: str) -> App:
    """An app by its number or its slug."""
    return graphs.app(int(given) if given.isdecimal() and len(given) < 19 else given)


def shown_row(row: Any) -> dict[str, Any]:
    """A row as JSON: bytes as base64."""
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in row._asdict().items()
    }


def value_of(row: Any) -> str:
    """The value of a row in a table."""
    for name in ("value_text", "value_number", "value_json"):
        if getattr(row, name, None) is not None:
            return str(getattr(row, name))
    blob = getattr(row, "value_blob", None)
    return "" if blob is None else f"{len(blob)} bytes"


def points_of(row: Any) -> str:
    """What a row points at, in a table."""
    parts = []
    for name, sign in (
        ("parent_id", "parent"),
        ("src_parent_id", "parent"),
        ("dst_parent_id", "-> parent"),
        ("dst_attr_id", "-> attr"),
        ("target_parent_id", "parent"),
        ("target_attr_id", "attr"),
    ):
        if getattr(row, name, None) is not None:
            parts.append(f"{sign} {getattr(row, name)}")
    return " ".join(parts)
