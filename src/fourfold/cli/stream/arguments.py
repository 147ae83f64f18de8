"""Arguments that commands on streams share: ROOT or a URL, and the streams there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from fourfold.cli.completion import complete_streams
from fourfold.cli.options import COMMAND_RETRY_S, command, is_url, root_argument
from fourfold.content.filters import Filter, decode_filter
from fourfold.errors import NotFound
from fourfold.models.streams import StreamInfo, Streams
from fourfold.models.streams.model import MODEL
from fourfold.models.streams.validation import format_offset
from fourfold.store import open_store

if TYPE_CHECKING:
    from fourfold.client import RemoteStreams

Place: TypeAlias = "Streams | RemoteStreams"


def streams_command(
    name: str,
    *,
    writes: bool = False,
    makes: bool = False,
    rows: bool = False,
    optional: bool = False,
) -> Callable[[Callable[..., None]], Any]:
    """Decorate a command on streams; its function gets an `Output` and the streams.

    With `optional`, the streams are None in a store that never had one.
    """

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def run(out: object, root: str, key: str | None, **arguments: Any) -> None:
            if optional and not _has_streams(root):
                function(out, None, **arguments)
                return
            with streams_of(root, key, writes=writes, makes=makes) as streams:
                function(out, streams, **arguments)

        secret = click.option(
            "--key",
            envvar="FOURFOLD_KEY",
            help="Key of the server; prefer FOURFOLD_KEY, which other users cannot see.",
        )
        return command(name, rows=rows)(root_argument(required=True, url=True)(secret(run)))

    return decorate


def _has_streams(root: str) -> bool:
    """Return False if ROOT is a store that never had a stream; raise if it is not a store."""
    if is_url(root):
        return True
    with open_store(Path(root), mode="r"):
        return bool(MODEL.location.names(Path(root)))


@contextmanager
def streams_of(root: str, key: str | None, *, writes: bool, makes: bool = False) -> Iterator[Place]:
    """Open the streams of a server if ROOT is a URL, or of a store.

    Only a command that creates a stream creates the store.
    """
    if is_url(root):
        from fourfold.client import connect  # noqa: PLC0415 - an extra

        with connect(root, key, retry_for=COMMAND_RETRY_S) as remote:
            yield remote.streams
        return
    folder = Path(root)
    if not makes and not _has_streams(root):
        raise NotFound(
            f"{root}: there are no streams yet",
            hint=f"Create one: `fourfold stream create {root} NAME`.",
        )
    with open_store(folder, mode="rw" if writes else "r") as store:
        yield store.streams


FACTS: Final = (
    "name",
    "content_type",
    "first_offset",
    "next_offset",
    "size_bytes",
    "closed",
    "ttl_seconds",
    "expires_at_ms",
)


key_option: Final = click.option(
    "--routing-key", metavar="TEXT", help="Only records with this routing key."
)
where_option: Final = click.option(
    "--where",
    metavar="JSON",
    help='Only JSON messages that match a filter, such as \'{"status": "open"}\'.',
)


def parse_where(text: str | None) -> Filter | None:
    """Return the filter of `--where`, or None for all messages."""
    return None if text is None else decode_filter(text)


name_argument: Final = click.argument("name", shell_complete=complete_streams)


def facts(info: StreamInfo) -> dict[str, Any]:
    """Convert a stream to JSON values."""
    return {
        "name": info.name,
        "content_type": info.content_type,
        "first_offset": format_offset(info.first_offset, info.incarnation_number),
        "next_offset": format_offset(info.next_offset, info.incarnation_number),
        "size_bytes": info.size_bytes,
        "closed": info.closed,
        "ttl_seconds": info.ttl_seconds,
        "expires_at_ms": info.expires_at_ms,
    }
