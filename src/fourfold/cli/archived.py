"""What the commands around the archive share: the address of the objects, and opening a store that
publishes to them.

Records that are published leave the log, so a store must find its objects again: the first address
that is given for it is written into its `fourfold.toml`, and another one is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from fourfold import config
from fourfold.errors import NotFound, Refused
from fourfold.objects import ObjectStore, check_conditional_writes
from fourfold.store import Store, open_store

_SETTING = "objects.url"
_DEFAULT_LINE = "#url = "


def objects_option(function: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--objects",
        metavar="URL",
        help="Where objects live: a folder, or s3://bucket/prefix; if not given, `objects.url`.",
    )(function)


@contextmanager
def published_store(
    root: Path, objects: str | None, *, publish_first: bool = False, make: bool = False
) -> Iterator[Store]:
    """A store whose streams are published; the object store is known to keep conditions."""
    if not make and not (root / config.FILE_NAME).exists():
        raise NotFound(f"{root}: is not a Fourfold store", hint="Check the path.")
    with open_store(root):
        remember(root, objects)
    settings = {"archive.acknowledge": "published"} if publish_first else {}
    with open_store(root, settings=settings) as store:
        _refuse_without_conditions(store.objects)
        yield store


def remember(root: Path, objects: str | None) -> None:
    """Write down where the objects of a store are, unless that is known."""
    if objects is None:
        return
    # A folder that is given on the command line is meant from where the caller stands.
    url = objects if ":" in objects else str(Path(objects).absolute())
    settings = config.load(root, environ=os.environ)
    known = settings.objects.url
    if url in {known, str(root.absolute() / known)}:
        return
    file = root / config.FILE_NAME
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if line.startswith(_DEFAULT_LINE)]
    if settings.source(_SETTING).layer != "default" or len(found) != 1:
        raise Refused(
            f"{root}: has its objects at {known!r} ({settings.source(_SETTING)}), not at {url!r}",
            hint=f"Change {_SETTING} in {file}, once the objects are there.",
        )
    lines[found[0]] = f"url = {json.dumps(url)}\n"
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text("".join(lines), encoding="utf-8")
    partial.chmod(0o600)
    partial.replace(file)


def _refuse_without_conditions(objects: ObjectStore) -> None:
    """Two nodes on an object store that ignores conditions would overwrite each other."""
    found = check_conditional_writes(objects)
    if not found.honoured:
        raise Refused(
            f"the object store does not keep conditions: {found.faults[0]}",
            hint="Publish to a store that honours If-Match and If-None-Match.",
        )
