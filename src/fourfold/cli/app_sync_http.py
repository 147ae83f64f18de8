"""`fourfold app sync run`, `pull` and `push`: sync with peers over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from fourfold.cli.app_sync import signer_of
from fourfold.cli.graph_command import graphs_command
from fourfold.cli.options import is_url
from fourfold.cli.output import Output, counted
from fourfold.cli.space.arguments import file_bytes
from fourfold.errors import InvalidInput, NotFound, Refused
from fourfold.models.graphs import Graphs

if TYPE_CHECKING:
    from fourfold.client.sync_round import PeerSync, SyncReport
    from fourfold.client.sync_runner import PeerStatus, SyncRunner, SyncTarget

_access = click.option(
    "--access",
    "access_file",
    type=click.Path(path_type=Path),
    help="File with a line `URL KEY` for each peer, which only you can read.",
)
_key = click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path),
    help="File with your private key. Without it, nothing new is signed.",
)
_domains = click.option("--domain", "domains", multiple=True, help="Only this domain. Repeatable.")


@graphs_command("pull", writes=True)
@click.argument("url")
@_domains
@_access
def pull(
    out: Output, graphs: Graphs, *, url: str, domains: tuple[str, ...], access_file: Path | None
) -> None:
    """Import what the peer at URL has, once.

    URL is the endpoint of a peer, and its server gave you a key with the scope `sync`.
    """
    [target] = read_targets(graphs, [url], access_file)
    _run_once(out, graphs, target, lambda peer, name: peer.pull(name), domains=domains)


@graphs_command("push", writes=True)
@click.argument("url")
@_domains
@_key
@_access
def push(
    out: Output,
    graphs: Graphs,
    *,
    url: str,
    domains: tuple[str, ...],
    key_file: Path | None,
    access_file: Path | None,
) -> None:
    """Sign new shared rows, and send the peer at URL what it lacks, once."""
    [target] = read_targets(graphs, [url], access_file)
    _run_once(
        *(out, graphs, target, lambda peer, name: peer.push(name)),
        key_file=key_file,
        domains=domains,
    )


@graphs_command("run", writes=True)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@_key
@_access
@click.option("--once", is_flag=True, help="Run one round with each peer, and end.")
def run(
    out: Output,
    graphs: Graphs,
    *,
    urls: tuple[str, ...],
    key_file: Path | None,
    access_file: Path | None,
    once: bool,
) -> None:
    """Keep ROOT in step with the peers at each URL, until interrupted.

    Without a URL, these are all peers whose endpoint is one. Each peer has its own thread, so one
    that is slow or gone delays no other; failures are retried. While a server serves ROOT, use
    `fourfold serve --sync-key` instead.
    """
    targets = read_targets(graphs, urls, access_file)
    if not targets:
        raise NotFound(
            "no peer has a URL as its endpoint",
            hint="Add one with `fourfold app sync peer ROOT PUBLIC-KEY --endpoint URL`.",
        )
    if once:
        for target in targets:
            _run_once(
                *(out, graphs, target, lambda peer, name: peer.run(name, audit=True)),
                key_file=key_file,
            )
        return
    with running(graphs, urls, access_file, key_file, lambda status: _show_status(out, status)):
        threading.Event().wait()


@contextmanager
def running(
    graphs: Graphs,
    urls: Iterable[str],
    access_file: Path | None,
    key_file: Path | None,
    on_status: Callable[[PeerStatus], None] | None = None,
) -> Iterator[SyncRunner]:
    """Keep graphs in step with peers during the block."""
    from fourfold.client.sync_runner import SyncRunner  # noqa: PLC0415 - an extra

    signer = None if key_file is None else signer_of(key_file)
    if signer is not None:
        graphs.add_identity(signer.public_key)
    targets = read_targets(graphs, urls, access_file)
    with SyncRunner(graphs, targets, signer, on_status=on_status) as runner:
        yield runner


def read_targets(graphs: Graphs, urls: Iterable[str], access_file: Path | None) -> list[SyncTarget]:
    """Return the peers with these URLs, or all peers that have a URL, with the keys for them.

    Raises:
        NotFound: no peer has one of the URLs as its endpoint.
    """
    from fourfold.client.sync_runner import SyncTarget  # noqa: PLC0415 - an extra

    keys = {} if access_file is None else _read_access(access_file)
    peers = {
        peer.endpoint.rstrip("/"): peer.id
        for peer in reversed(graphs.list_peers())
        if is_url(peer.endpoint)
    }
    wanted = [url.rstrip("/") for url in urls] or sorted(peers)
    for url in wanted:
        if url not in peers:
            raise NotFound(
                f"no peer has the endpoint {url!r:.200}",
                hint=f"Add it with `fourfold app sync peer ROOT PUBLIC-KEY --endpoint {url}`.",
            )
    return [SyncTarget(peers[url], url, keys.get(url)) for url in wanted]


def _read_access(file: Path) -> dict[str, str]:
    """Return the keys of a file by URL.

    Raises:
        Refused: other users can read the file.
        InvalidInput: a line is not a URL and a key.
    """
    keys = {}
    for number, line in enumerate(file_bytes(file).decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        url, _, key = line.strip().partition(" ")
        if not is_url(url) or not key.strip():
            raise InvalidInput(f"{file}:{number}: must be a URL and a key")
        keys[url.rstrip("/")] = key.strip()
    if file.stat().st_mode & 0o077:
        raise Refused(f"{file}: other users can read it", hint=f"Run `chmod 600 {file}`.")
    return keys


def _run_once(
    out: Output,
    graphs: Graphs,
    target: SyncTarget,
    work: Callable[[PeerSync, str], SyncReport],
    *,
    key_file: Path | None = None,
    domains: tuple[str, ...] = (),
) -> None:
    """Run one round with one peer, and print its reports."""
    from fourfold.client import connect  # noqa: PLC0415 - an extra
    from fourfold.client.sync_round import PeerSync  # noqa: PLC0415 - an extra

    signer = None if key_file is None else signer_of(key_file)
    if signer is not None:
        graphs.add_identity(signer.public_key)
    with connect(target.url, target.key) as store:
        peer = PeerSync(graphs, store.graphs.sync, target.peer_id, signer)
        reports = [work(peer, name) for name in domains or peer.domains()]
    if out.as_json:
        out.document({"url": target.url, "domains": [_document(report) for report in reports]})
        return
    for report in reports:
        _show_report(out, target.url, report)


def _show_report(out: Output, url: str, report: SyncReport) -> None:
    state = "in step" if report.in_step else "not in step"
    pulled, pushed = counted(report.pulled, "envelope"), counted(report.pushed, "envelope")
    out.line(f"{url}: {report.domain}: {pulled} pulled, {pushed} pushed; {state}")
    for place, refusals in (("here", report.refused), ("by the peer", report.refused_by_peer)):
        for refusal in refusals:
            out.line(f"refused {place}: {refusal.kind}: {refusal.message}")
    for row in report.not_shareable:
        out.line(f"not shareable: {row.kind} row {row.row_id} of app {row.app_id}: {row.reason}")


def _show_status(out: Output, status: PeerStatus) -> None:
    """Print a round that exchanged something, or that failed."""
    if out.as_json:
        error = None if status.error is None else status.error.as_dict()
        domains = [_document(report) for report in status.reports]
        document = {"url": status.url, "domains": domains, "error": error}
        out.text(msgspec.json.encode(document).decode() + "\n")
    elif status.error is not None:
        out.line(f"{status.url}: {status.error.kind}: {status.error.message}")
    else:
        for report in status.reports:
            if report.pulled or report.pushed or report.refused or report.refused_by_peer:
                _show_report(out, status.url, report)
    out.flush()


def _document(report: SyncReport) -> dict[str, Any]:
    rows = {
        name: [row._asdict() for row in getattr(report, name)]
        for name in ("refused", "refused_by_peer", "not_shareable")
    }
    return {**report._asdict(), **rows}
