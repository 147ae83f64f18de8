"""`fourfold space blob`: content-addressed bytes of a space."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from fourfold.cli.history_options import branch_option
from fourfold.cli.main import SectionedGroup
from fourfold.cli.output import Output, size
from fourfold.cli.space.arguments import file_bytes, json_argument, new_file, space_command
from fourfold.errors import InvalidInput
from fourfold.models.documents import Space
from fourfold.models.documents.blobs import BlobStat


@click.command(
    "blob",
    cls=SectionedGroup,
    sections=(("Commands", ("put", "get", "list")),),
    epilog="Every command takes --json and --traceback.",
)
def blob() -> None:
    """Store, fetch and list blobs."""


@space_command("put", writes=True)
@click.argument("file")
@click.option("--content-type", metavar="TYPE", help="Content type, for example image/png.")
@click.option(
    "--metadata",
    metavar="JSON",
    help="Value of the entity urn:blob-meta:<hash>, written in the same commit: JSON or @FILE.",
)
@branch_option("Branch of the metadata; default: the default branch.")
def put(
    out: Output,
    space: Space,
    file: str,
    *,
    content_type: str | None,
    metadata: str | None,
    branch: str,
) -> None:
    """Store the bytes of FILE, or of stdin if FILE is -, and print their hash."""
    data = sys.stdin.buffer.read() if file == "-" else file_bytes(Path(file))
    known = None if metadata is None else json_argument(metadata, "the metadata")
    name = space.blobs.put(data, content_type, metadata=known, branch=branch)
    if out.as_json:
        out.document(msgspec.to_builtins(space.blobs.stat(name)))
    else:
        out.line(name)


@space_command("get")
@click.argument("hash", metavar="HASH")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this new file, which appears when it is complete; default: stdout.",
)
def get(out: Output, space: Space, hash: str, *, output: Path | None) -> None:  # noqa: A002
    """Read and verify the blob HASH."""
    if output is None:
        if out.as_json:
            raise InvalidInput("--json requires --output FILE: stdout contains the bytes")
        sys.stdout.buffer.write(space.blobs.get(hash))
        return
    with new_file(output) as file:
        file.write(space.blobs.get(hash))
    stat = space.blobs.stat(hash)
    if out.as_json:
        out.document({**msgspec.to_builtins(stat), "file": str(output)})
    else:
        out.line(f"wrote {output} ({size(stat.size)})")


@space_command("list", rows=True)
def list_blobs(out: Output, space: Space) -> None:
    """List the blobs of the space."""
    blobs = [space.blobs.stat(name) for name in space.blobs.ids()]
    out.rows(
        {"blobs": [msgspec.to_builtins(row) for row in blobs]},
        "blobs",
        {"hash": "hash", "size": lambda row: size(row["size"]), "type": "content_type"},
        fields=BlobStat.__struct_fields__,
        empty="no blobs yet",
    )


for _each in (put, get, list_blobs):
    blob.add_command(_each)
