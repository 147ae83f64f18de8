"""`fourfold app sync`: packages from one store to another, by way of files."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

import click

from fourfold.cli.app.arguments import graphs_command
from fourfold.cli.groups import SectionedGroup
from fourfold.cli.options import command as plain_command
from fourfold.cli.output import Output, counted
from fourfold.cli.space.arguments import file_bytes, new_file
from fourfold.errors import AlreadyExists, InvalidInput, NotFound
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.signing import Ed25519Signer

_EPILOG = """\b
Two stores, A and B:
  fourfold app sync key a.key                     a key pair; the public part is printed
  fourfold app sync domain A messages 1           share rows with flag 1, on both sides
  fourfold app sync peer B PUBLIC-KEY-OF-A        B knows A
  fourfold app sync export A messages out.json --key a.key
  fourfold app sync import B out.json --peer 1
"""


@click.command(
    "sync",
    cls=SectionedGroup,
    sections=(
        ("Prepare", ("key", "domain", "peer", "identities")),
        ("Exchange", ("export", "import", "status")),
    ),
    epilog=_EPILOG,
)
def command() -> None:
    """Exchange what is shared with other stores, in signed packages.

    A domain names what is shared: rows that have one of its flags. A package covers a whole window
    of the sender's numbers, and is taken in whole, in order, and once.
    """


@plain_command("key")
@click.argument("file", type=click.Path(path_type=Path))
def key(out: Output, *, file: Path) -> None:
    """Make a new key pair in FILE, which only you can read, and print its public part.

    Keys are kept outside of stores. With a FILE that exists its public part is printed.
    """
    if file.exists():
        signer = signer_of(file)
    else:
        signer = Ed25519Signer.generate()
        _write_secret(file, base64.b64encode(signer.private_bytes()) + b"\n")
    if out.as_json:
        out.document({"file": str(file), "public_key": signer.public_key})
    else:
        out.line(signer.public_key)


@graphs_command("domain", writes=True)
@click.argument("domain", required=False)
@click.argument("mask", type=click.IntRange(min=1), required=False)
def domain(out: Output, graphs: Graphs, *, domain: str | None, mask: int | None) -> None:
    """Share rows that have one of the bits of MASK under the name DOMAIN, or list what is shared.

    What a domain means never changes.
    """
    if domain is not None:
        if mask is None:
            raise click.UsageError("A domain needs its MASK, for example 1.")
        graphs.define_domain(domain, mask)
    found = graphs.domains()
    if out.as_json:
        out.document({"domains": found})
    else:
        out.table(("domain", "mask"), list(found.items()))


@graphs_command("peer", writes=True)
@click.argument("public_key", required=False)
@click.option("--endpoint", default="file:", show_default=True, help="Where the peer is found.")
@click.option("--label", help="What people call it.")
def peer(
    out: Output, graphs: Graphs, *, public_key: str | None, endpoint: str, label: str | None
) -> None:
    """Make a peer known by its PUBLIC_KEY, or list those that are."""
    if public_key is not None:
        identity = graphs.add_identity(public_key, label)
        graphs.add_peer(identity.id, endpoint)
    keys = {each.id: each for each in graphs.list_identities()}
    found = [
        {**each._asdict(), "public_key": keys[each.identity_id].pubkey}
        for each in graphs.list_peers()
    ]
    if out.as_json:
        out.document({"peers": found})
    else:
        rows = [(each["id"], each["public_key"], each["endpoint"]) for each in found]
        out.table(("peer", "public key", "endpoint"), rows)


@graphs_command("identities", writes=True)
@click.option("--rebuild", is_flag=True, help="Make the cache of keys anew from the graph.")
@click.option("--drop-unknown", is_flag=True, help="Also drop what only the cache knows.")
def identities(out: Output, graphs: Graphs, *, rebuild: bool, drop_unknown: bool) -> None:
    """List who is known here, by number and public key.

    The authority is the graph of the system's app; the list comes from a cache, which --rebuild
    makes anew.
    """
    if drop_unknown and not rebuild:
        raise click.UsageError("--drop-unknown goes with --rebuild")
    done = graphs.rebuild_identities(drop_unknown=drop_unknown) if rebuild else None
    found = [each._asdict() for each in graphs.list_identities()]
    if out.as_json:
        out.document({"identities": found, "rebuilt": None if done is None else done._asdict()})
        return
    if done is not None:
        out.line(f"{done.kept} kept, {done.restored} restored, {done.dropped} dropped")
    columns = ("id", "label", "pubkey")
    out.table(columns, [tuple(each[name] or "" for name in columns) for each in found])


@graphs_command("export", writes=True)
@click.argument("domain")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--key", "key_file", required=True, type=click.Path(path_type=Path), help="Your private key."
)
@click.option("--after", type=click.IntRange(min=0), help="Begin behind this number.")
@click.option("--peer", "peer_id", type=int, help="Begin behind what this peer has confirmed.")
@click.option("--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Rows.")
def export(
    out: Output,
    graphs: Graphs,
    *,
    domain: str,
    file: Path,
    key_file: Path,
    after: int | None,
    peer_id: int | None,
    limit: int,
) -> None:
    """Write the next package of DOMAIN to the new FILE.

    Only what is safely on disk leaves the store. The next package begins behind this one's
    `to_seq`.
    """
    signer = signer_of(key_file)
    if after is None:
        after = 0 if peer_id is None else graphs.confirmed_sent(peer_id, domain)
    graphs.add_identity(signer.public_key)
    sent = graphs.export_package(domain, signer, after=after, limit=limit)
    if sent is None:
        raise NotFound(
            f"domain {domain!r} has nothing behind {after}", hint="Write something first."
        )
    with new_file(file) as opened:
        opened.write(sent.data)
    if peer_id is not None:
        graphs.confirm_sent(peer_id, domain, sent.to_seq)
    facts = {"from_seq": sent.from_seq, "to_seq": sent.to_seq, "rows": sent.rows}
    if out.as_json:
        out.document({"file": str(file), "domain": domain, **facts})
    else:
        window = f"{sent.from_seq} to {sent.to_seq}"
        out.line(f"{file}: {counted(sent.rows, 'row')} of {domain}, {window}")


@graphs_command("import", writes=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--peer", "peer_id", required=True, type=int, help="Whose package it is.")
def import_package(out: Output, graphs: Graphs, *, file: Path, peer_id: int) -> None:
    """Take in the package FILE of a peer: all of it, or nothing."""
    done = graphs.ingest_package(peer_id, file_bytes(file))
    if out.as_json:
        out.document({"file": str(file), "peer_id": peer_id, **done._asdict()})
    else:
        out.line(f"{counted(done.added, 'row')} taken in; peer {peer_id} is at {done.to_seq}")


@graphs_command("status")
def status(out: Output, graphs: Graphs) -> None:
    """Show how far each peer's packages were taken in."""
    found = graphs.sync_progress()
    if out.as_json:
        progress = [each._asdict() for each in found]
        out.document({"progress": progress, "global_seq": graphs.get_global_seq()})
    else:
        out.table(("peer", "domain", "taken in up to"), [tuple(each) for each in found])


def signer_of(file: Path) -> Ed25519Signer:
    try:
        return Ed25519Signer(base64.b64decode(file_bytes(file).strip(), validate=True))
    except binascii.Error:
        raise InvalidInput(f"{file} does not hold a private key") from None


def _write_secret(file: Path, data: bytes) -> None:
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise AlreadyExists(f"{file} exists already") from None
    except FileNotFoundError:
        raise NotFound(f"{file.parent}: there is no such folder") from None
    with os.fdopen(handle, "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


for _each in (key, domain, peer, identities, export, import_package, status):
    command.add_command(_each)
