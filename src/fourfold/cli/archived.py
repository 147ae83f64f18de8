"""What the commands around the archive share: the address of the objects, and opening a store that
publishes to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from fourfold import config
from fourfold.errors import NotFound, Refused
from fourfold.objects import ObjectStore, check_conditional_writes
from fourfold.store import Store, open_store
from fourfold.store.addresses import remember

__all__ = ["objects_option", "published_store", "refuse_without_conditions", "remember"]


def objects_option(function: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--objects",
        metavar="URL",
        help="Where objects live: a folder, or s3://bucket/prefix; if not given, `objects.url`.",
    )(function)


@contextmanager
def published_store(
    root: Path,
    objects: str | None,
    *,
    publish_first: bool = False,
    make: bool = False,
    check: bool = True,
) -> Iterator[Store]:
    """Open a store that is published. Unless `check` is False, the object store must answer and
    honour conditional writes.
    """
    if not make and not (root / config.FILE_NAME).exists():
        raise NotFound(f"{root}: is not a Fourfold store", hint="Check the path.")
    with open_store(root):
        remember(root, objects)
    settings = {"archive.acknowledge": "published"} if publish_first else {}
    with open_store(root, settings=settings) as store:
        if check:
            refuse_without_conditions(store.objects)
        yield store


def refuse_without_conditions(objects: ObjectStore) -> None:
    """Two nodes on an object store that ignores conditions would overwrite each other."""
    found = check_conditional_writes(objects)
    if not found.honoured:
        raise Refused(
            f"the object store does not keep conditions: {found.faults[0]}",
            hint="Publish to a store that honours If-Match and If-None-Match.",
        )
