"""`fourfold app sync`: exchange rows with other stores. `app_sync_http` has those over HTTP."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

import click

from fourfold.cli.graph_command import existing_graphs, graphs_command
from fourfold.cli.main import SectionedGroup
from fourfold.cli.options import command as plain_command
from fourfold.cli.output import Output, counted
from fourfold.cli.space.arguments import file_bytes, new_file
from fourfold.durability import sync_file
from fourfold.errors import AlreadyExists, InvalidInput, NotFound
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.records import Identity, Peer, SyncProgress
from fourfold.models.graphs.sync.envelope import PACKAGE_BYTES_MAX, PACKAGE_BYTES_TARGET
from fourfold.models.graphs.sync.exchange import LogFork, ParkedRow, PeerRight
from fourfold.models.graphs.sync.keys import Ed25519Signer
from fourfold.models.graphs.sync.refusals import StoredRefusal

_SYNC_EPILOG = """\b
Two stores, A and B:
  fourfold app sync key a.key                     create a key pair, print the public key
  fourfold app sync domain A talk 1               share rows with flag 1, on both sides
  fourfold app sync peer B PUBLIC-KEY-OF-A --allow talk
  fourfold app sync export A talk p.sync --key a.key
  fourfold app sync import B p.sync --peer 1
  fourfold app sync tips B talk tips.json         what B has now
  fourfold app sync confirm A tips.json --peer 1
"""


@click.command(
    "sync",
    cls=SectionedGroup,
    sections=(
        ("Prepare", ("key", "domain", "peer", "allow", "identities")),
        ("Exchange", ("run", "pull", "push", "export", "import", "tips", "confirm")),
        ("Inspect", ("status", "refusals", "forks", "parked")),
        ("Upgrade", ("migrate",)),
    ),
    epilog=_SYNC_EPILOG,
)
def sync_command() -> None:
    """Exchange rows with other stores in envelopes that their authors sign.

    A domain names the shared rows: those with one of its flags. Packages may be lost, repeated or
    imported in any order; each envelope is checked and answered alone.
    """


@plain_command("key")
@click.argument("file", type=click.Path(path_type=Path))
def key(out: Output, *, file: Path) -> None:
    """Create a key pair in FILE, readable only by you, and print the public key.

    Keys are stored outside of stores. If FILE exists, its public key is printed.
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


@graphs_command(
    "domain", writes=lambda given: given["domain"] is not None, rows=True, optional=True
)
@click.argument("domain", required=False)
@click.argument("mask", type=click.IntRange(min=1), required=False)
@click.option("--app", "apps", multiple=True, help="Accept only this app. Repeatable.")
def domain(
    out: Output,
    graphs: Graphs | None,
    *,
    domain: str | None,
    mask: int | None,
    apps: tuple[str, ...],
) -> None:
    """Share rows with one of the bits of MASK as DOMAIN, or list the domains.

    The mask of a domain never changes. Rows of the system app are never accepted.
    """
    if domain is not None:
        if mask is None:
            raise click.UsageError("DOMAIN requires MASK, for example 1.")
        existing = existing_graphs(graphs)
        app_ids = [existing.app(int(app) if app.isdecimal() else app).app_id for app in apps]
        existing.define_domain(domain, mask)
        if app_ids:
            existing.restrict_domain(domain, app_ids)
    domains = {} if graphs is None else graphs.domains()
    if out.as_json:
        out.document({"domains": domains})
        return
    columns = ("domain", "mask")
    out.rows(
        {"domains": [{"domain": name, "mask": bits} for name, bits in domains.items()]},
        "domains",
        {name: name for name in columns},
        fields=columns,
        empty="no domains yet",
    )


@graphs_command(
    "peer", writes=lambda given: given["public_key"] is not None, rows=True, optional=True
)
@click.argument("public_key", required=False)
@click.option("--endpoint", default="file:", show_default=True, help="Address of the peer.")
@click.option("--label", help="Display name of the peer.")
@click.option("--allow", multiple=True, help="Domain that it may read and write. Repeatable.")
def peer(
    out: Output,
    graphs: Graphs | None,
    *,
    public_key: str | None,
    endpoint: str,
    label: str | None,
    allow: tuple[str, ...],
) -> None:
    """Add a peer by its PUBLIC_KEY, or list the peers.

    A peer may do nothing until a domain is allowed to it.
    """
    if public_key is not None:
        existing = existing_graphs(graphs)
        with existing.transaction() as txn:
            identity = existing.add_identity(public_key, label, txn=txn)
            added = existing.add_peer(identity.id, endpoint, txn=txn)
            for name in allow:
                existing.allow_peer(added.id, name, txn=txn)
    out.rows(
        {"peers": [] if graphs is None else _peers_with_keys(graphs)},
        "peers",
        {"peer": "id", "public key": "public_key", "endpoint": "endpoint"},
        fields=(*Peer._fields, "public_key"),
        empty="no peers yet",
    )


def _peers_with_keys(graphs: Graphs) -> list[dict[str, Any]]:
    keys = {entry.id: entry.pubkey for entry in graphs.list_identities()}
    return [
        {**peer._asdict(), "public_key": keys[peer.identity_id]} for peer in graphs.list_peers()
    ]


@graphs_command(
    "allow", writes=lambda given: given["peer_id"] is not None, rows=True, optional=True
)
@click.argument("peer_id", type=int, required=False)
@click.argument("domain", required=False)
@click.option("--read/--no-read", default=True, show_default=True, help="May receive packages.")
@click.option("--write/--no-write", default=True, show_default=True, help="May send envelopes.")
def allow(
    out: Output,
    graphs: Graphs | None,
    *,
    peer_id: int | None,
    domain: str | None,
    read: bool,
    write: bool,
) -> None:
    """Set what peer PEER_ID may do in DOMAIN, or list the rights of all peers."""
    if peer_id is not None:
        if domain is None:
            raise click.UsageError("PEER_ID requires DOMAIN.")
        existing_graphs(graphs).allow_peer(peer_id, domain, may_read=read, may_write=write)
    rights = () if graphs is None else graphs.list_peer_rights()
    out.rows(
        {"rights": [right._asdict() for right in rights]},
        "rights",
        {"peer": "peer_id", "domain": "domain", "read": "may_read", "write": "may_write"},
        fields=PeerRight._fields,
        empty="no peer may do anything yet",
    )


@graphs_command(
    "identities",
    writes=lambda given: given["rebuild"] or given["public_key"] is not None,
    rows=True,
    optional=True,
)
@click.option("--add", "public_key", help="Accept envelopes of this key, through any peer.")
@click.option("--rebuild", is_flag=True, help="Rebuild the key cache from the graph.")
@click.option(
    "--drop-unknown",
    is_flag=True,
    help="Also drop keys that only the cache has.",
)
def identities(
    out: Output,
    graphs: Graphs | None,
    *,
    public_key: str | None,
    rebuild: bool,
    drop_unknown: bool,
) -> None:
    """List known identities by id and public key.

    Envelopes of other keys are refused. The list comes from a cache of the system app's graph;
    --rebuild rebuilds it.
    """
    if drop_unknown and not rebuild:
        raise click.UsageError("--drop-unknown requires --rebuild")
    if public_key is not None:
        existing_graphs(graphs).add_identity(public_key)
    done = (
        existing_graphs(graphs).rebuild_identities(drop_unknown=drop_unknown) if rebuild else None
    )
    if done is not None and out.format == "text":
        out.line(f"{done.kept} kept, {done.restored} restored, {done.dropped} dropped")
    known = [] if graphs is None else graphs.list_identities()
    out.rows(
        {
            "identities": [identity._asdict() for identity in known],
            "rebuilt": None if done is None else done._asdict(),
        },
        "identities",
        {"id": "id", "label": "label", "pubkey": "pubkey"},
        fields=Identity._fields,
        empty="no identities yet",
    )


@graphs_command("export", writes=True)
@click.argument("domain")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path),
    help="File with your private key. Without it, nothing new is signed.",
)
@click.option("--peer", "peer_id", type=int, help="Leave out what this peer has confirmed.")
@click.option(
    "--tips",
    "tips_file",
    type=click.Path(path_type=Path),
    help="Leave out what this file of `app sync tips` lists.",
)
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Continue after the position of a package that was not complete.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(1, PACKAGE_BYTES_MAX),
    default=PACKAGE_BYTES_TARGET,
    show_default=True,
    help="Size of the package, unless one envelope is larger.",
)
def export(
    out: Output,
    graphs: Graphs,
    *,
    domain: str,
    file: Path,
    key_file: Path | None,
    peer_id: int | None,
    tips_file: Path | None,
    after: int,
    max_bytes: int,
) -> None:
    """Sign new shared rows of DOMAIN, and write a package to the new FILE.

    Rows that refer to something outside of the domain are reported and left out.
    """
    signer = None if key_file is None else signer_of(key_file)
    tips = None if tips_file is None else file_bytes(tips_file)
    if signer is not None:
        graphs.add_identity(signer.public_key)
    sent = graphs.export_package(
        domain, signer, peer_id=peer_id, tips=tips, after=after, max_bytes=max_bytes
    )
    with new_file(file) as opened:
        opened.write(sent.data)
    if out.as_json:
        facts = {name: value for name, value in sent._asdict().items() if name != "data"}
        refused = [row._asdict() for row in sent.not_shareable]
        facts["not_shareable"] = refused
        out.document({"file": str(file), "domain": domain, **facts})
        return
    more = "" if sent.complete else f"; more remains, with --after {sent.position}"
    envelopes = counted(sent.envelopes, "envelope")
    out.line(f"{file}: {envelopes} with {counted(sent.rows, 'row')} of {domain}{more}")
    for row in sent.not_shareable:
        out.line(f"not shareable: {row.kind} row {row.row_id} of app {row.app_id}: {row.reason}")


@graphs_command("import", writes=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--peer",
    "peer_id",
    required=True,
    type=int,
    help="Peer that handed over the package.",
)
def import_package(out: Output, graphs: Graphs, *, file: Path, peer_id: int) -> None:
    """Import the package FILE of a peer; each envelope is accepted or refused alone."""
    done = graphs.ingest_package(peer_id, file_bytes(file))
    if out.as_json:
        refused = [refusal._asdict() for refusal in done.refused]
        out.document({"file": str(file), "peer_id": peer_id, **done._asdict(), "refused": refused})
        return
    out.line(
        f"{counted(done.accepted, 'envelope')} accepted, {done.known} known, "
        f"{len(done.refused)} refused; {counted(done.added, 'row')} added"
    )
    for refusal in done.refused:
        out.line(f"refused: {refusal.kind}: {refusal.message}")


@graphs_command("tips")
@click.argument("domain")
@click.argument("file", type=click.Path(path_type=Path))
def tips(out: Output, graphs: Graphs, *, domain: str, file: Path) -> None:
    """Write what this store has of DOMAIN to the new FILE, for a peer."""
    data = graphs.sync_tips(domain)
    with new_file(file) as opened:
        opened.write(data)
    if out.as_json:
        out.document({"file": str(file), "domain": domain})
    else:
        out.line(f"{file}: tips of {domain}")


@graphs_command("confirm", writes=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--peer", "peer_id", required=True, type=int, help="Peer that wrote FILE.")
def confirm(out: Output, graphs: Graphs, *, file: Path, peer_id: int) -> None:
    """Record what a peer has, from FILE, which it wrote with `app sync tips`."""
    count = graphs.confirm_tips(peer_id, file_bytes(file))
    if out.as_json:
        out.document({"file": str(file), "peer_id": peer_id, "confirmed": count})
    else:
        out.line(f"peer {peer_id} has {counted(count, 'envelope')}")


@graphs_command("status", rows=True, optional=True)
def status(out: Output, graphs: Graphs | None) -> None:
    """Show how many envelopes of each peer were accepted."""
    progress = [] if graphs is None else [row._asdict() for row in graphs.sync_progress()]
    out.rows(
        {"progress": progress, "global_seq": 0 if graphs is None else graphs.get_global_seq()},
        "progress",
        {"peer": "peer_id", "domain": "domain", "accepted": "last_seq"},
        fields=SyncProgress._fields,
        empty="no package was imported yet",
    )


@graphs_command("refusals", rows=True, optional=True)
@click.option("--peer", "peer_id", type=int, help="Only those of this peer.")
def refusals(out: Output, graphs: Graphs | None, *, peer_id: int | None) -> None:
    """List envelopes that were refused, newest first, with the reason.

    The newest 200 of each peer are stored, until they are accepted after all.
    """
    rows = () if graphs is None else graphs.sync_refusals(peer_id)
    columns = {"refused": "refused_at", "peer": "peer_id", "domain": "domain", "kind": "kind"}
    out.rows(
        {"refusals": [refusal._asdict() for refusal in rows]},
        "refusals",
        {**columns, "author": "author", "seq": "seq", "reason": "message"},
        fields=StoredRefusal._fields,
        empty="no refused envelopes",
    )


@graphs_command("forks", rows=True, optional=True)
def forks(out: Output, graphs: Graphs | None) -> None:
    """List logs that were written twice, such as by a restored copy.

    Both branches are applied; every store shows the same version of each object.
    """
    rows = () if graphs is None else graphs.sync_forks()
    columns = {"domain": "domain", "author": "author", "seq": "seq"}
    out.rows(
        {"forks": [fork._asdict() for fork in rows]},
        "forks",
        {**columns, "first": "first", "second": "second"},
        fields=LogFork._fields,
        empty="no forks",
    )


@graphs_command("parked", rows=True, optional=True)
def parked(out: Output, graphs: Graphs | None) -> None:
    """List rows that wait for a row that they refer to."""
    rows = () if graphs is None else graphs.parked_rows()
    columns = {"domain": "domain", "app": "app_id", "kind": "kind"}
    out.rows(
        {"parked": [row._asdict() for row in rows]},
        "parked",
        {**columns, "row": "row_id", "waits for": "missing", "reason": "reason"},
        fields=ParkedRow._fields,
        empty="no parked rows",
    )


@graphs_command("migrate", writes=True)
@click.argument("backup", type=click.Path(path_type=Path))
def migrate(out: Output, graphs: Graphs, *, backup: Path) -> None:
    """Give content ids to rows of the earlier format, after a backup to the new file BACKUP.

    Needed once in a store that imported packages of an earlier version. Afterwards, allow the
    peers again with `fourfold app sync allow`.
    """
    count = graphs.migrate_sync(backup)
    if out.as_json:
        out.document({"backup": str(backup), "rows": count})
    else:
        out.line(f"{counted(count, 'row')} of other stores migrated; the backup is {backup}")


def signer_of(file: Path) -> Ed25519Signer:
    """Return the signer whose private key is in a file, in base64."""
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
        sync_file(opened.fileno())


for _each in (
    key,
    domain,
    peer,
    allow,
    identities,
    export,
    import_package,
    tips,
    confirm,
    status,
    refusals,
    forks,
    parked,
    migrate,
):
    sync_command.add_command(_each)
