"""Requests and responses of sync: each operation as a `Call`, and its result, without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from fourfold import limits
from fourfold.client import responses
from fourfold.client.requests import Address, Call, stringify
from fourfold.client.responses import Response
from fourfold.errors import BadAnswer
from fourfold.models.graphs.sync.entries import SyncHeads
from fourfold.models.graphs.sync.envelope import PACKAGE_BYTES_MAX, decode_tips
from fourfold.models.graphs.sync.ingest import IngestReport
from fourfold.models.graphs.sync.ranges import MESSAGE_BYTES_MAX
from fourfold.models.graphs.sync.refusals import EnvelopeRefusal
from fourfold.wire import sync as wire
from fourfold.wire.sync_status import SyncStatusInfo

_JSON_MAX: Final = 4 * limits.MIB
"""Bytes of heads, and of the answer to a package."""
STATUS_MAX: Final = 16 * limits.MIB
"""Bytes of the state of sync."""
_JSON: Final = {"content-type": "application/json"}
_BYTES: Final = {"content-type": "application/octet-stream"}
_EVENTS: Final = {"accept": "text/event-stream", "accept-encoding": "identity"}


class PeerHeads(NamedTuple):
    """Progress of a peer in a domain, and the tips of its logs; None if it has too many."""

    heads: SyncHeads
    tips: bytes | None


class PulledPackage(NamedTuple):
    """A package of a peer. If it is not complete, pull again with `after=position`."""

    data: bytes
    envelopes: int
    position: int
    complete: bool


class PeerRefusal(NamedTuple):
    """An envelope of this node that the peer refused, with the last reason."""

    entry: str
    """Id of the envelope in hex."""
    kind: str
    message: str
    retryable: bool
    domain: str | None
    author: str | None
    seq: int | None
    times: int
    """How often it was handed over."""
    first_at: str
    refused_at: str


class SyncCalls:
    """The requests of sync. The peer is known by the key of the connection."""

    def __init__(self, address: Address) -> None:
        self._root = f"{address.root}/v1/sync"

    def _path(self, verb: str, domain: str) -> str:
        return f"{self._root}/{verb}/{quote(domain, safe='')}"

    def heads(self, domain: str, known: str | None) -> Call:
        """Build the request for the heads of a domain; `known` is a fingerprint."""
        headers = {} if known is None else {"if-none-match": f'"{known}"'}
        call = Call("GET", self._path("heads", domain), f"compare {domain!r}", headers, {})
        return call._replace(accepted=(304,), response_max=_JSON_MAX)

    def pull(
        self, domain: str, tips: bytes | None, ids: Iterable[bytes], after: int, max_bytes: int
    ) -> Call:
        """Build the request for a package."""
        body = {"after": after, "max_bytes": max_bytes, "ids": [entry.hex() for entry in ids]}
        if tips is not None:
            body["tips"] = msgspec.Raw(tips)
        data = msgspec.json.encode(body)
        call = Call("POST", self._path("pull", domain), f"pull {domain!r}", _JSON, {}, data)
        # An envelope may be larger than the package was to be.
        return call._replace(response_max=PACKAGE_BYTES_MAX)

    def push(self, domain: str, data: bytes) -> Call:
        """Build the request that hands over a package; repeated, it changes nothing."""
        call = Call("POST", self._path("push", domain), f"push {domain!r}", _BYTES, {}, data)
        return call._replace(response_max=_JSON_MAX)

    def reconcile(self, domain: str, message: bytes) -> Call:
        """Build the request with a message of a reconciliation."""
        url = self._path("reconcile", domain)
        call = Call("POST", url, f"reconcile {domain!r}", _BYTES, {}, message)
        return call._replace(response_max=MESSAGE_BYTES_MAX)

    def refusals(self) -> Call:
        """Build the request for the envelopes that the peer refused."""
        call = Call("GET", f"{self._root}/refusals", "list what a peer refused", {}, {})
        return call._replace(response_max=_JSON_MAX)

    def status(self) -> Call:
        """Build the request for the state of sync."""
        call = Call("GET", f"{self._root}/status", "get the state of sync", {}, {})
        return call._replace(response_max=STATUS_MAX)

    def events(self, after: int | None) -> Call:
        """Build the request for the heads of all domains as they change."""
        params = stringify(("after", after))
        return Call("GET", f"{self._root}/events", "follow a peer", _EVENTS, params, live=True)


def parse_heads(response: Response) -> PeerHeads | None:
    """Return the heads of a response; None if they are those that the request named."""
    if response.status == 304:
        return None
    info = responses.decode(response, wire.HeadsInfo, "heads")
    tips = None if info.tips is None else msgspec.json.encode(info.tips)
    if tips is not None:
        # They have to be readable before anything is decided by them.
        decode_tips(tips)
    return PeerHeads(SyncHeads(info.domain, info.entries, info.fingerprint), tips)


def parse_package(response: Response) -> PulledPackage:
    """Return the package of a response."""
    headers = response.headers
    position, envelopes = headers.get("sync-position", ""), headers.get("sync-envelopes", "")
    if not (position.isdecimal() and envelopes.isdecimal()):
        raise BadAnswer("pull: the response has no Sync-Position or no Sync-Envelopes")
    complete = headers.get("sync-complete") != "false"
    return PulledPackage(response.body, int(envelopes), int(position), complete)


def parse_report(response: Response) -> IngestReport:
    """Return the answer to a package."""
    info = responses.decode(response, wire.IngestInfo, "the answer to a package")
    refused = tuple(
        EnvelopeRefusal(**{name: getattr(row, name) for name in EnvelopeRefusal._fields})
        for row in info.refused
    )
    return IngestReport(info.accepted, info.known, refused, info.added, info.parked)


def parse_refusals(response: Response) -> tuple[PeerRefusal, ...]:
    """Return the refusals of a response."""
    info = responses.decode(response, wire.RefusalList, "refusals")
    return tuple(
        PeerRefusal(**{name: getattr(row, name) for name in PeerRefusal._fields})
        for row in info.refusals
    )


def parse_status(response: Response) -> SyncStatusInfo:
    """Return the state of sync in a response."""
    return responses.decode(response, SyncStatusInfo, "the state of sync")


def decode_event(name: str, data: bytes) -> SyncHeads | None:
    """Return the heads of an event; None for other events."""
    if name != "heads":
        return None
    try:
        event = msgspec.json.decode(data, type=wire.HeadsEvent)
    except msgspec.DecodeError as error:
        raise BadAnswer(f"follow a peer: invalid event: {error}") from None
    return SyncHeads(event.domain, event.entries, event.fingerprint)
