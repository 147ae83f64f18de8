"""Completion of names from the store: DIDs, entities, branches, streams, sessions, apps, jobs.

Each function completes one word for the shell. It opens the store of ROOT for reading, returns at
most 100 names, and nothing if the store cannot be read: a shell has no place for errors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Final

import click

from fourfold.cli.options import is_url
from fourfold.errors import FourfoldError
from fourfold.models.model import model
from fourfold.store import Store, open_store

NAMES_MAX: Final = 100

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _completer(list_names: Callable[[Store, click.Context, str], Iterable[str]]) -> Completer:
    """Make a function for `shell_complete` from one that lists the names with a prefix."""

    @functools.wraps(list_names)
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        root = ctx.params.get("root")
        if root is None or is_url(str(root)):
            return []
        try:
            with open_store(Path(root), mode="r") as store:
                names = list_names(store, ctx, incomplete)
                matches = (name for name in names if name.startswith(incomplete))
                return list(islice(matches, NAMES_MAX))
        except (FourfoldError, OSError):
            return []

    return complete


@_completer
def complete_spaces(store: Store, _ctx: click.Context, _prefix: str) -> Iterable[str]:
    """Return the spaces of the store."""
    return store.spaces()


@_completer
def complete_entities(store: Store, ctx: click.Context, prefix: str) -> Iterable[str]:
    """Return the entities of the space of the command that begin with a prefix."""
    space = store.space(ctx.params["did"])
    return space.ids(ctx.params.get("branch") or "", prefix=prefix, limit=NAMES_MAX)


@_completer
def complete_branches(store: Store, ctx: click.Context, _prefix: str) -> Iterable[str]:
    """Return the branches of the space of the command."""
    branches = store.space(ctx.params["did"]).branches.list()
    return (branch.name for branch in branches if branch.name)


def _has(store: Store, name: str) -> bool:
    """Return True if the store has a database of a model; completion never creates one."""
    return bool(model(name).location.names(store.root))


@_completer
def complete_streams(store: Store, _ctx: click.Context, prefix: str) -> Iterable[str]:
    """Return the streams that begin with a prefix."""
    if not _has(store, "streams"):
        return ()
    return (info.name for info in store.streams.list(prefix=prefix, limit=NAMES_MAX))


@_completer
def complete_sessions(store: Store, _ctx: click.Context, prefix: str) -> Iterable[str]:
    """Return the sessions that begin with a prefix."""
    if not _has(store, "sessions"):
        return ()
    return (row.id for row in store.sessions.list_sessions(prefix=prefix, limit=NAMES_MAX))


@_completer
def complete_apps(store: Store, _ctx: click.Context, _prefix: str) -> Iterable[str]:
    """Return the apps of the graphs."""
    if not _has(store, "graphs"):
        return ()
    return (app.slug for app in store.graphs.list_apps())
