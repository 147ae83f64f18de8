"""`fourfold memory`: commands on memories.

Most commands take ROOT and NAME first. A NAMESPACE is a path of labels such as `users/ada`; a slash
in a label is written `%2F`, a percent sign `%25`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from fourfold.cli.history_options import PointInHistory, at_option
from fourfold.cli.main import SectionedGroup, Sections
from fourfold.cli.options import command as plain_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output, counted
from fourfold.cli.space.arguments import compact, json_argument, limit_option, pretty
from fourfold.content.namespaces import decode_namespace, encode_namespace
from fourfold.errors import NotFound
from fourfold.models.documents.memory import Memory
from fourfold.models.documents.memory_items import MemoryChange, MemoryItem, MemoryVersion
from fourfold.store import open_store

SECTIONS: Final[Sections] = (
    ("Change a memory", ("put", "forget", "sweep", "purge")),
    ("Read, now or in the past", ("get", "search", "list", "namespaces", "history", "diff")),
    ("Memories", ("names",)),
)
_EPILOG: Final = """
\b
Examples:
  fourfold memory put ROOT NAME users/ada tea '{"likes": "green tea"}'
  fourfold memory search ROOT NAME "green tea"
  fourfold memory history ROOT NAME users/ada tea

ROOT is an argument, --root or FOURFOLD_ROOT.
Every command takes --json and --traceback.
"""
_ITEM: Final = MemoryItem.__struct_fields__


@click.command("memory", cls=SectionedGroup, sections=SECTIONS, epilog=_EPILOG)
def command() -> None:
    """Memory: items under namespaces, found by their words.

    A memory NAME is a space of documents (did:memory:NAME). An item is a JSON object with a
    NAMESPACE, such as users/ada, and a KEY; every past value stays readable until it is purged.
    """


def _memory_command(
    name: str, *, writes: bool = False, creates: bool = False, rows: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Decorate a command on a memory; its function gets an `Output` and the `Memory`."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def run(out: object, root: Path, name: str, **arguments: Any) -> None:
            if not creates:
                with open_store(root, mode="r") as store:
                    if name not in store.memories():
                        raise NotFound(
                            f"{root}: unknown memory {name!r:.100}",
                            hint=f"Those that exist: `fourfold memory names {root}`.",
                        )
            with open_store(root, mode="rw" if writes else "r") as store:
                function(out, store.memory(name), **arguments)

        made = plain_command(name, rows=rows)(
            root_argument(required=True)(click.argument("name")(run))
        )
        command.add_command(made)
        return made

    return decorate


_namespace = click.argument("namespace", callback=lambda _ctx, _param, text: decode_namespace(text))
_optional_namespace = click.argument(
    "namespace", default="", callback=lambda _ctx, _param, text: decode_namespace(text)
)
_where = click.option(
    "--where", metavar="FILTER", help="Only values that match this filter (JSON)."
)
_offset = click.option(
    "--offset", type=click.IntRange(min=0), default=0, help="Number of items to skip."
)


@_memory_command("put", writes=True, creates=True)
@_namespace
@click.argument("key")
@click.argument("value")
@click.option("--ttl", "ttl_s", type=float, metavar="SECONDS", help="Expire after this time.")
def put(  # noqa: PLR0917
    out: Output,
    memory: Memory,
    namespace: tuple[str, ...],
    key: str,
    value: str,
    ttl_s: float | None,
) -> None:
    """Store VALUE (JSON, @FILE or -) under NAMESPACE and KEY; the memory is created if needed."""
    seq = memory.put(namespace, key, json_argument(value, "VALUE"), ttl_s=ttl_s)
    if out.as_json:
        out.document({"seq": seq})
    else:
        out.change(f"seq {seq}")


@_memory_command("forget", writes=True)
@_namespace
@click.argument("key")
def forget(out: Output, memory: Memory, namespace: tuple[str, ...], key: str) -> None:
    """Delete an item. Its history stays readable; see `purge`."""
    forgotten = memory.forget(namespace, key)
    if out.as_json:
        out.document({"forgotten": forgotten})
    else:
        out.change("forgotten" if forgotten else "there was no such item")


@_memory_command("sweep", writes=True)
@limit_option(1_000)
def sweep(out: Output, memory: Memory, limit: int) -> None:
    """Delete expired items, which no command shows any more."""
    count = memory.sweep(limit)
    if out.as_json:
        out.document({"deleted": count})
    else:
        out.change(f"{counted(count, 'item')} deleted")


@_memory_command("purge", writes=True)
@_optional_namespace
@click.option("--key", help="Forget only this item of exactly this namespace.")
def purge(out: Output, memory: Memory, namespace: tuple[str, ...], key: str | None) -> None:
    """Forget the items below NAMESPACE, and erase the history of the whole memory.

    Values that are stored now in other namespaces stay, without their earlier values.
    """
    count = memory.purge(namespace, key)
    if out.as_json:
        out.document({"forgotten": count})
    else:
        out.change(f"{counted(count, 'item')} forgotten, history erased")


@_memory_command("get")
@_namespace
@click.argument("key")
@at_option("The item as of this seq or time.")
def get(
    out: Output,
    memory: Memory,
    namespace: tuple[str, ...],
    key: str,
    at: int | datetime | None,
) -> None:
    """Print the value of an item. Its time to live is not extended."""
    item = memory.get(namespace, key, at=at, refresh=False)
    if item is None:
        raise NotFound(
            f"memory {memory.name!r}: no item {key!r:.100} in {encode_namespace(namespace)!r:.100}"
        )
    if out.as_json:
        out.document(_to_json(item))
    else:
        out.line(pretty(item.value))


@_memory_command("search", rows=True)
@click.argument("query")
@click.option(
    "--namespace", default="", metavar="NAMESPACE", help="Only items in this namespace and below."
)
@_where
@at_option("Search as of this seq or time.")
@_offset
@limit_option(10)
def search(  # noqa: PLR0917
    out: Output,
    memory: Memory,
    query: str,
    namespace: str,
    where: str | None,
    at: int | datetime | None,
    offset: int,
    limit: int,
) -> None:
    """Search the words of items; those with more and rarer words of QUERY come first."""
    hits = memory.search(
        query,
        namespace=decode_namespace(namespace),
        where=None if where is None else json_argument(where, "FILTER"),
        limit=limit,
        offset=offset,
        at=at,
        refresh=False,
    )
    out.rows(
        {
            "hits": [
                {**_to_json(hit.item), "score": hit.score, "snippets": hit.snippets} for hit in hits
            ]
        },
        "hits",
        {
            "namespace": _namespace_of,
            "key": "key",
            "score": lambda hit: f"{hit['score']:.3g}",
            "value": lambda hit: compact(hit["value"]),
        },
        fields=(*_ITEM, "score", "snippets"),
        empty="no hits",
    )


@_memory_command("list", rows=True)
@_optional_namespace
@_where
@at_option("The items as of this seq or time.")
@_offset
@limit_option(100)
def list_items(  # noqa: PLR0917
    out: Output,
    memory: Memory,
    namespace: tuple[str, ...],
    where: str | None,
    at: int | datetime | None,
    offset: int,
    limit: int,
) -> None:
    """List the items below NAMESPACE, those that were put last first."""
    items = memory.list(
        namespace,
        where=None if where is None else json_argument(where, "FILTER"),
        limit=limit,
        offset=offset,
        at=at,
    )
    out.rows(
        {"items": [_to_json(item) for item in items]},
        "items",
        {
            "namespace": _namespace_of,
            "key": "key",
            "updated": "updated_at",
            "value": lambda item: compact(item["value"]),
        },
        fields=_ITEM,
        empty="no items",
    )


@_memory_command("namespaces", rows=True)
@_optional_namespace
@click.option("--max-depth", type=click.IntRange(min=1), help="Only so many labels of each.")
@at_option("The namespaces as of this seq or time.")
def namespaces(
    out: Output,
    memory: Memory,
    namespace: tuple[str, ...],
    max_depth: int | None,
    at: int | datetime | None,
) -> None:
    """List the namespaces that have items, below NAMESPACE."""
    names = memory.namespaces(namespace, max_depth=max_depth, at=at)
    out.rows(
        {"namespaces": [{"namespace": encode_namespace(name)} for name in names]},
        "namespaces",
        {"namespace": "namespace"},
        fields=("namespace",),
        empty="no namespaces",
    )


@_memory_command("history", rows=True)
@_namespace
@click.argument("key")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only after this seq.")
@limit_option(100)
def history(  # noqa: PLR0917
    out: Output, memory: Memory, namespace: tuple[str, ...], key: str, after: int, limit: int
) -> None:
    """List the values that an item has had, oldest first."""
    versions = memory.history(namespace, key, after=after, limit=limit)
    out.rows(
        {"versions": [msgspec.to_builtins(version) for version in versions]},
        "versions",
        {"seq": "seq", "time": "time", "value": lambda version: compact(version["value"])},
        fields=MemoryVersion.__struct_fields__,
        empty="never stored",
    )


@_memory_command("diff", rows=True)
@click.argument("at1", type=PointInHistory())
@click.argument("at2", type=PointInHistory(), required=False)
@click.option(
    "--namespace", default="", metavar="NAMESPACE", help="Only items in this namespace and below."
)
def diff(
    out: Output,
    memory: Memory,
    at1: int | datetime,
    at2: int | datetime | None,
    namespace: str,
) -> None:
    """List the items that differ between AT1 and AT2 (seqs or times), by default now."""
    changes = memory.diff(at1, at2, namespace=decode_namespace(namespace))
    out.rows(
        {"changes": [msgspec.to_builtins(change) for change in changes]},
        "changes",
        {
            "namespace": _namespace_of,
            "key": "key",
            "before": lambda change: compact(change["before"]),
            "after": lambda change: compact(change["after"]),
        },
        fields=MemoryChange.__struct_fields__,
        empty="no differences",
    )


@plain_command("names", rows=True)
@root_argument(required=True)
def names(out: Output, root: Path) -> None:
    """List the memories of a store."""
    with open_store(root, mode="r") as store:
        memories = [{"name": name} for name in store.memories()]
    out.rows(
        {"memories": memories}, "memories", {"name": "name"}, fields=("name",), empty="no memories"
    )


command.add_command(names)


def _to_json(item: MemoryItem) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(item)
    return made


def _namespace_of(row: dict[str, Any]) -> str:
    return encode_namespace(tuple(row["namespace"]))
