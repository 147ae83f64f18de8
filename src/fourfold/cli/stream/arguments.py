"""What the commands on streams share: ROOT, and the streams that it leads to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fourfold.cli.options import command, root_argument
from fourfold.errors import NotFound
from fourfold.models.streams import StreamInfo, Streams
from fourfold.models.streams.names import show_offset
from fourfold.store import open_store
from fourfold.store.layout import streams_path


def streams_command(
    name: str, *, writes: bool = False, makes: bool = False
) -> Callable[[Callable[..., None]], Any]:
    """A command on the streams of a store; its function gets an `Output` and `Streams`."""

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def run(out: object, root: Path, **arguments: Any) -> None:
            with streams_of(root, writes=writes, makes=makes) as streams:
                function(out, streams, **arguments)

        return command(name)(root_argument(required=True)(run))

    return decorate


@contextmanager
def streams_of(root: Path, *, writes: bool, makes: bool = False) -> Iterator[Streams]:
    """The streams of a store. Only a command that makes one makes the store, too."""
    if not makes:
        with open_store(root, mode="r"):
            if not streams_path(root).exists():
                raise NotFound(
                    f"{root}: there are no streams yet",
                    hint=f"Create one: `fourfold stream create {root} NAME`.",
                )
    with open_store(root, mode="rw" if writes else "r") as store:
        yield store.streams


def facts(info: StreamInfo) -> dict[str, Any]:
    """A stream as JSON."""
    return {
        "name": info.name,
        "content_type": info.content_type,
        "first_offset": show_offset(info.first_offset),
        "next_offset": show_offset(info.next_offset),
        "size_bytes": info.size_bytes,
        "closed": info.closed,
        "ttl_seconds": info.ttl_seconds,
        "expires_at_ms": info.expires_at_ms,
    }
