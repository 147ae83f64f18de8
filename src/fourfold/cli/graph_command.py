"""Commands on the graphs of a store: how they open it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fourfold.cli.options import command as plain_command
from fourfold.cli.options import root_argument
from fourfold.errors import NotFound
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.model import MODEL
from fourfold.store import open_store


def graphs_command(
    name: str,
    *,
    writes: bool | Callable[[dict[str, Any]], bool] = False,
    makes: bool = False,
    rows: bool = False,
    optional: bool = False,
) -> Callable[[Callable[..., None]], click.Command]:
    """Decorate a command on the graphs of a store; its function gets an `Output` and `Graphs`.

    Args:
        writes: Open the store for writing, always or for certain arguments: a command that only
            lists works while another process writes.
        makes: Create the store if it does not exist.
        rows: Offer the output formats of rows.
        optional: Pass None in a store that never had an app.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(out: object, root: Path, **arguments: Any) -> None:
            if optional and not _has_graphs(root):
                function(out, None, **arguments)
                return
            for_writing = writes(arguments) if callable(writes) else writes
            with graphs_of(root, writes=for_writing, makes=makes) as graphs:
                function(out, graphs, **arguments)

        return plain_command(name, rows=rows)(root_argument(required=True)(run))

    return decorate


@contextmanager
def graphs_of(root: Path, *, writes: bool, makes: bool = False) -> Iterator[Graphs]:
    """Open the graphs of a store, for reading or for writing.

    Reading works while another process writes. Only a command with `makes` creates the store.
    """
    if not makes and not _has_graphs(root):
        raise NotFound(
            f"{root}: there are no apps yet",
            hint=f"Register one: `fourfold app register {root} SLUG`.",
        )
    with open_store(root, mode="rw" if writes else "r") as store:
        yield store.graphs


def _has_graphs(root: Path) -> bool:
    """Return False if ROOT is a store that never had an app; raise if it is not a store."""
    with open_store(root, mode="r"):
        return bool(MODEL.location.names(root))


def existing_graphs(graphs: Graphs | None) -> Graphs:
    """Return the graphs; raise NotFound in a store that never had an app."""
    if graphs is None:
        raise NotFound("there are no apps yet", hint="Register one: `fourfold app register`.")
    return graphs
