"""Sync of graphs over HTTP: peers compare what they have, pull packages and push them.

A key with the scope `sync` is for one peer: its prefix is the public key of the peer, as
`fourfold app sync peer` lists it. What the peer may do in a domain is decided by `allow_peer`, as
for packages in files. Signatures are verified in worker threads, and few packages at a time, so
that a peer does not delay other requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from fourfold import limits
from fourfold.errors import (
    Forbidden,
    InvalidInput,
    NotFound,
    Overloaded,
    PackageRefused,
    PackageTampered,
    Refused,
    TooLarge,
    Unauthorized,
)
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.sync.entries import SyncHeads
from fourfold.models.graphs.sync.envelope import PACKAGE_BYTES_MAX
from fourfold.models.graphs.sync.export import Export
from fourfold.models.graphs.sync.ingest import IngestReport
from fourfold.models.graphs.sync.ranges import MESSAGE_BYTES_MAX
from fourfold.models.graphs.sync.status import read_status
from fourfold.server.event_stream import (
    SSE_KEEP_ALIVE_S,
    SSE_S,
    Feed,
    FeedEvent,
    event_response,
    last_event_id,
)
from fourfold.server.graphs import OpenGraphs
from fourfold.server.request import Reply, Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.wire.pages import EventHeaders
from fourfold.wire.sync import (
    SYNC_LOGS_MAX,
    HeadsEvent,
    HeadsHeaders,
    HeadsInfo,
    HeadsReadHeaders,
    IngestInfo,
    PackageHeaders,
    PullRequest,
    RefusalList,
    RefusedEnvelope,
    StoredRefusalInfo,
    SyncEventsQuery,
    TipsInfo,
)
from fourfold.wire.sync_status import SyncStatusInfo

SYNC: Final = "/v1/sync"
SYNC_RUNNING_MAX: Final = 2
"""Packages that are made or imported at a time."""
SYNC_WAITING_MAX: Final = 32
"""Requests that may wait for that."""
HINT_EVERY_S: Final = 0.1
"""Interval at which changes become hints, at most."""
HEADS: Final = "heads"
_OCTETS: Final = "application/octet-stream"
_TIPS: Final = msgspec.json.Decoder(TipsInfo)
_MALFORMED: Final = (PackageRefused, PackageTampered, TooLarge)
T = TypeVar("T")


class GraphSyncRoutes:
    """Handlers of sync."""

    def __init__(
        self,
        workers: Workers,
        graphs: OpenGraphs,
        *,
        keep_alive_s: float = SSE_KEEP_ALIVE_S,
        lifetime_s: float = SSE_S,
    ) -> None:
        self._workers = workers
        self._graphs = graphs
        self._keep_alive_s = keep_alive_s
        self._lifetime_s = lifetime_s
        self._running = asyncio.Semaphore(SYNC_RUNNING_MAX)
        self._waiting = 0
        self._stopping = False

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """End every feed of hints; peers reconnect."""
        self._stopping = True
        graphs = self._graphs.get_if_open()
        if graphs is not None:
            graphs.notifier.notify()

    async def heads(self, request: Request, domain: str) -> Reply:
        """Return how much this node has of a domain, with the tips of its logs."""
        graphs, _ = await self._open(request, domain)
        heads, tips = await self._write(_read_heads, graphs, domain)
        info = HeadsInfo(
            domain=domain, entries=heads.entries, fingerprint=heads.fingerprint, tips=tips
        )
        return Reply(info, etag=heads.fingerprint, is_large=True)

    async def pull(self, request: Request, domain: str, body: PullRequest) -> Response:
        """Return a package with entries that the peer lacks."""
        graphs, peer = await self._open(request, domain)
        sent = await self._write(_export, graphs, peer, domain, body)
        headers = {
            "content-type": _OCTETS,
            "cache-control": "no-store",
            "sync-position": str(sent.position),
            "sync-complete": "true" if sent.complete else "false",
            "sync-envelopes": str(sent.envelopes),
        }
        return Response(200, headers, sent.data)

    async def push(self, request: Request, domain: str) -> Reply:
        """Import a package; each envelope is accepted or refused alone."""
        graphs, peer = await self._open(request, domain, writes=True)
        report = await self._write(graphs.ingest_package, peer, request.body)
        return Reply(_ingest_info(report))

    async def reconcile(self, request: Request, domain: str) -> Response:
        """Answer a message of a reconciliation."""
        graphs, _ = await self._open(request, domain)
        if not request.body:
            raise InvalidInput("body: must be a message of a reconciliation")
        data = await self._write(graphs.reconcile, domain, request.body)
        return Response(200, {"content-type": _OCTETS, "cache-control": "no-store"}, data)

    async def refusals(self, request: Request) -> Reply:
        """Return the envelopes of the peer that this node refused."""
        graphs = await self._graphs.get()
        return Reply(await self._workers.run(_read_refusals, graphs, request), is_large=True)

    async def events(self, request: Request, query: SyncEventsQuery) -> Response:
        """Return a feed of the heads of the domains that the peer may read."""
        graphs = await self._graphs.get()
        peer = await self._workers.run(_peer_of, graphs, request)
        after = _parse_arrival(last_event_id(request, query.after))
        hints = _Hints(self._workers, graphs, peer, after, lambda: self._stopping)
        return event_response(
            partial(_open_hints, hints),
            keep_alive_s=self._keep_alive_s,
            lifetime_s=self._lifetime_s,
        )

    async def status(self, _request: Request) -> Reply:
        """Return the state of sync on this node, for its operator."""
        graphs = await self._graphs.get()
        status = await self._write(read_status, graphs)
        info = msgspec.convert(_to_dicts(status), SyncStatusInfo)
        return Reply(info, is_large=True)

    async def _open(
        self, request: Request, domain: str, *, writes: bool = False
    ) -> tuple[Graphs, int]:
        """Return the graphs and the peer, which has the right to read or to write the domain."""
        graphs = await self._graphs.get()
        return graphs, await self._workers.run(_check_right, graphs, request, domain, writes)

    async def _write(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a worker, few at a time."""
        if self._waiting >= SYNC_WAITING_MAX:
            raise Overloaded(
                "too many requests of peers are waiting", retry_after=limits.RETRY_AFTER_S
            )
        self._waiting += 1
        try:
            async with self._running:
                return await self._workers.write(function, *arguments)
        finally:
            self._waiting -= 1


class _Hints:
    """The heads that one peer receives."""

    def __init__(
        self,
        workers: Workers,
        graphs: Graphs,
        peer: int,
        after: int | None,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._workers = workers
        self._graphs = graphs
        self._peer = peer
        self._arrival = after
        self._sent: dict[str, SyncHeads] = {}
        self._events: deque[FeedEvent] = deque()
        self.is_stopping = is_stopping

    def position(self) -> str:
        """Return the id after which the feed continues."""
        return str(self._arrival or 0)

    async def next_event(self, timeout_s: float) -> FeedEvent | None:
        """Return the heads of a domain that changed, or None if nothing happens."""
        deadline = time.monotonic() + timeout_s
        with self._graphs.notifier.listen() as listener:
            while not self._events and not self.is_stopping():
                listener.drain()
                await self._fill()
                left = deadline - time.monotonic()
                if self._events or left <= 0:
                    break
                await listener.wait(left)
                # Commits follow each other; the heads after several of them are one hint.
                await asyncio.sleep(min(HINT_EVERY_S, max(0.0, deadline - time.monotonic())))
        return self._events.popleft() if self._events else None

    async def _fill(self) -> None:
        arrival = await self._workers.run(self._graphs.newest_arrival)
        if arrival == self._arrival:
            return
        self._arrival = arrival
        for heads in await self._workers.write(_readable_heads, self._graphs, self._peer):
            if self._sent.get(heads.domain) != heads:
                self._sent[heads.domain] = heads
                data = HeadsEvent(
                    domain=heads.domain, entries=heads.entries, fingerprint=heads.fingerprint
                )
                self._events.append(FeedEvent(HEADS, data, str(arrival)))


@asynccontextmanager
async def _open_hints(hints: _Hints) -> AsyncIterator[Feed]:
    yield Feed(hints.next_event, hints.position, hints.is_stopping)


def _peer_of(graphs: Graphs, request: Request) -> int:
    """Return the peer that the key of a request is for.

    Raises:
        Unauthorized: the server requires no keys, so that it cannot know who its clients are.
        NotFound: the key is for no peer of this node.
    """
    hint = "Create it with `fourfold key add ROOT --scope sync --model graphs --prefix PUBLIC-KEY`."
    if request.grant is None:
        raise Unauthorized("sync requires a key that is for a peer", hint=hint)
    peer = graphs.find_peer(request.grant.prefix) if request.grant.prefix else None
    if peer is None:
        raise NotFound(f"no peer has the public key {request.grant.prefix!r:.100}", hint=hint)
    return peer


def _read_refusals(graphs: Graphs, request: Request) -> RefusalList:
    names = StoredRefusalInfo.__struct_fields__
    rows = graphs.sync_refusals(_peer_of(graphs, request))
    infos = [StoredRefusalInfo(**{name: getattr(row, name) for name in names}) for row in rows]
    return RefusalList(refusals=infos)


def _check_right(graphs: Graphs, request: Request, domain: str, writes: bool) -> int:
    peer = _peer_of(graphs, request)
    right = graphs.peer_right(peer, domain)
    if not (right.may_write if writes else right.may_read):
        raise Forbidden(
            f"peer {peer} may not {'write' if writes else 'read'} domain {domain!r:.100}",
            hint="Allow it with `fourfold app sync allow`.",
        )
    return peer


def _read_heads(graphs: Graphs, domain: str) -> tuple[SyncHeads, TipsInfo | None]:
    heads = graphs.sync_heads(domain)
    is_short = graphs.count_logs(domain) <= SYNC_LOGS_MAX
    return heads, _TIPS.decode(graphs.sync_tips(domain)) if is_short else None


def _readable_heads(graphs: Graphs, peer: int) -> list[SyncHeads]:
    rights = [right for right in graphs.list_peer_rights() if right.peer_id == peer]
    return [graphs.sync_heads(right.domain) for right in rights if right.may_read]


def _export(graphs: Graphs, peer: int, domain: str, body: PullRequest) -> Export:
    if body.ids:
        ids = map(bytes.fromhex, body.ids)
        return graphs.export_entries(domain, ids, after=body.after, max_bytes=body.max_bytes)
    tips = None if body.tips is UNSET else msgspec.json.encode(body.tips)
    if tips is not None and body.after == 0:
        # The tips confirm what the peer has. They may prove that this node was restored.
        graphs.confirm_tips(peer, tips)
    return graphs.export_package(
        domain,
        peer_id=peer,
        tips=tips,
        after=body.after,
        max_bytes=body.max_bytes,
        trust_seqs=True,
    )


def _to_dicts(value: Any) -> Any:
    """Return named tuples as objects, and other tuples as lists."""
    if hasattr(value, "_asdict"):
        return {name: _to_dicts(item) for name, item in value._asdict().items()}
    return [_to_dicts(item) for item in value] if isinstance(value, tuple) else value


def _ingest_info(report: IngestReport) -> IngestInfo:
    return IngestInfo(
        accepted=report.accepted,
        known=report.known,
        refused=[RefusedEnvelope(**refusal._asdict()) for refusal in report.refused],
        added=report.added,
        parked=report.parked,
    )


def _parse_arrival(text: str | int | UnsetType) -> int | None:
    if isinstance(text, UnsetType):
        return None
    if not (str(text).isascii() and str(text).isdecimal() and len(str(text)) <= 19):
        raise InvalidInput(f"Last-Event-ID: must be the id of an event, got {text!r:.80}")
    return int(text)


def _route(method: str, path: str, handler: Any, **options: Any) -> Route:
    """Return a route of sync; the handler finds the peer of the key."""
    common: dict[str, Any] = {"model": "graphs", "scope": "sync", "resource": "any"}
    return Route(method, f"{SYNC}/{path}", handler, **common, **options)


_ROUTES: Final = (
    Route(
        *("GET", f"{SYNC}/status", GraphSyncRoutes.status),
        operation="sync_status",
        model="graphs",
        scope="read",
        no_past="what peers may do and have is stored only as it is now",
        summary="Get the domains with their logs, the peers with their rights, and forks.",
        ok={200: Ok("The state of sync.", SyncStatusInfo)},
        errors=(Overloaded,),
    ),
    _route(
        *("GET", "heads/{domain:name}", GraphSyncRoutes.heads),
        operation="sync_heads",
        no_past="logs of sync only grow; the tips of a peer state what it had",
        summary="Get the number of entries of a domain, their fingerprint, and the tips of logs.",
        headers=HeadsReadHeaders,
        ok={
            200: Ok("The heads.", HeadsInfo, HeadsHeaders),
            304: Ok("The peer has the same entries.", headers=HeadsHeaders),
        },
        errors=(NotFound, Overloaded),
    ),
    _route(
        *("POST", "pull/{domain:name}", GraphSyncRoutes.pull),
        operation="sync_pull",
        summary="Get a package of signed envelopes that the peer lacks.",
        body=PullRequest,
        ok={200: Ok("The package.", "any", PackageHeaders, content_type=_OCTETS)},
        errors=(NotFound, Overloaded, PackageRefused, Refused),
    ),
    _route(
        *("POST", "push/{domain:name}", GraphSyncRoutes.push),
        operation="sync_push",
        summary="Import a package; each envelope is accepted or refused alone.",
        body=bytes,
        body_max=PACKAGE_BYTES_MAX,
        ok={200: Ok("The answer to each envelope.", IngestInfo)},
        errors=(NotFound, Overloaded, Refused, *_MALFORMED),
    ),
    _route(
        *("POST", "reconcile/{domain:name}", GraphSyncRoutes.reconcile),
        operation="sync_reconcile",
        summary="Answer fingerprints of ranges of ids with smaller ranges, or with ids.",
        body=bytes,
        body_max=MESSAGE_BYTES_MAX,
        ok={200: Ok("The next message.", "any", content_type=_OCTETS)},
        errors=(NotFound, Overloaded, PackageRefused),
    ),
    _route(
        *("GET", "refusals", GraphSyncRoutes.refusals),
        operation="sync_refusals",
        no_past="refusals are kept for operators, the newest of each peer",
        summary="List the envelopes of the peer that were refused, newest first.",
        ok={200: Ok("The refusals.", RefusalList)},
        errors=(NotFound,),
    ),
    _route(
        *("GET", "events", GraphSyncRoutes.events),
        operation="sync_events",
        summary="Follow the heads of the domains that the peer may read, as server-sent events.",
        query=SyncEventsQuery,
        headers=EventHeaders,
        ok={200: Ok("The events.", "events", content_type="text/event-stream")},
        errors=(NotFound,),
    ),
)
