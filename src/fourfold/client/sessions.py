"""Requests and responses of sessions: each operation as a `Call`, and its result, without I/O.

Values are sent and received in the canonical encoding, so that bytes, times, sets and references to
payloads stay what they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Raw

from fourfold import limits
from fourfold.client import responses
from fourfold.client.requests import Address, Call, format_time, stringify
from fourfold.client.responses import Response
from fourfold.content import InternedPayload, PayloadRef, content_id, decode, encode
from fourfold.content.filters import Filter
from fourfold.errors import BadAnswer, CorruptData, InvalidInput, NotFound
from fourfold.models.documents.timestamps import stored_time
from fourfold.models.sessions.feed import Item
from fourfold.models.sessions.fold import Counters, FoldState
from fourfold.models.sessions.hits import (
    SessionHit,
    SessionHitKind,
    SessionHitOrder,
    SessionHitPage,
)
from fourfold.models.sessions.leases import check_holder, check_ttl
from fourfold.models.sessions.listing import ListingOptions
from fourfold.models.sessions.records import (
    UNSET,
    Claim,
    Epoch,
    Event,
    Gap,
    Head,
    HeadComparison,
    LineageEdge,
    LineageGraph,
    Resumption,
    RetentionReport,
    SessionInfo,
    StoredRetention,
    Transient,
    Unset,
)
from fourfold.models.sessions.request import At, check_count
from fourfold.models.sessions.request_builder import RequestBuilder
from fourfold.models.sessions.retention import check_policy, parse_place
from fourfold.models.sessions.search import check_search
from fourfold.models.sessions.transcript import Transcript, TranscriptEntry, TranscriptHeader
from fourfold.tabular import Rows
from fourfold.wire import sessions as wire

_JSON = {"content-type": "application/json"}
_NDJSON = {"content-type": "application/x-ndjson"}
EntityName = Literal["messages", "turns", "steps", "evals"]


class SessionCalls:
    """The requests about the sessions of a server."""

    def __init__(self, address: Address) -> None:
        self._root = address.root
        self._retention = f"{address.root}/v1/sessions/retention"
        # A wrong call raises the error of a local store.
        self._checks = RequestBuilder(lambda: datetime.now(UTC), None)

    def _verb(self, verb: str, sid: str) -> str:
        return f"{self._root}/v1/sessions/{verb}/{_segment(sid)}"

    def _get(self, verb: str, sid: str, *params: tuple[str, object]) -> Call:
        operation = f"read {verb} of session {sid!r}"
        return Call("GET", self._verb(verb, sid), operation, {}, stringify(*params))

    def _post(self, url: str, operation: str, body: bytes, *, key: str | None = None) -> Call:
        # A request with a key of the caller can be repeated as it is.
        headers = _JSON if key is not None else {**_JSON, "idempotency-key": uuid.uuid4().hex}
        return Call("POST", url, operation, headers, {}, body)

    def create(self, session: Mapping[str, Any] | None) -> Call:
        """Build the request that creates a session."""
        self._checks.creation(session)
        url = f"{self._root}/v1/sessions"
        return self._post(url, "create a session", encode(dict(session or {})))

    def get(self, sid: str, at: At = None) -> Call:
        """Build the request for a session, now or at a point."""
        url = f"{self._root}/v1/session/{_segment(sid)}"
        return Call("GET", url, f"get the session {sid!r}", {}, stringify(("at", format_at(at))))

    def delete(self, sid: str) -> Call:
        """Build the request that deletes a session."""
        headers = {"idempotency-key": uuid.uuid4().hex}
        return self.get(sid)._replace(
            method="DELETE", operation=f"delete the session {sid!r}", headers=headers
        )

    def list(
        self, listing: ListingOptions, where: Filter | None, at: datetime | None = None
    ) -> Call:
        """Build the request for a list of sessions, now or at a time."""
        params = stringify(
            ("prefix", listing.prefix or None),
            ("after", listing.after),
            ("deleted", "true" if listing.deleted else None),
            ("after_updated_at", listing.after_updated),
            ("order", f"{'-' if listing.newest_first else ''}{listing.order}"),
            ("status", listing.status),
            ("kind", listing.kind),
            ("since", listing.since),
            ("where", None if where is None else msgspec.json.encode(where.where).decode()),
            ("at", format_time(at)),
        )
        return Call("GET", f"{self._root}/v1/sessions", "list the sessions", {}, params)

    def append(
        self,
        sid: str,
        events: Sequence[Mapping[str, Any]],
        expected_last_id: int | Unset,
        key: str | None,
        epoch: Epoch | None = None,
    ) -> Call:
        """Build the request that appends events."""
        self._checks.appending(sid, events, expected_last_id, key, epoch)
        body = encode({"events": [dict(event) for event in events], "key": key})
        call = self._post(self._verb("events", sid), f"append to {sid!r}", body, key=key)
        call = _with_epoch(call, epoch)
        return call if expected_last_id is UNSET else _if_match(call, str(expected_last_id))

    def publish_head(  # noqa: PLR0917 - as the façade has them
        self,
        sid: str,
        head: Mapping[str, Any] | None,
        expected_basis: str | Unset | None,
        to_event_id: int | None,
        key: str | None,
        events: Sequence[Mapping[str, Any]],
        epoch: Epoch | None = None,
    ) -> Call:
        """Build the request that publishes a head."""
        self._checks.publishing(
            sid, head, expected_basis, to_event_id, key, events=events, epoch=epoch
        )
        body = {
            "head": dict(head or {}),
            "to_event_id": to_event_id,
            "events": [dict(event) for event in events],
            "key": key,
        }
        url = self._verb("heads", sid)
        call = self._post(url, f"publish a head of {sid!r}", encode(body), key=key)
        call = _with_epoch(call, epoch)
        return call if expected_basis is UNSET else _if_match(call, expected_basis or "none")

    def append_edge(self, sid: str, edge: Mapping[str, Any], epoch: Epoch | None = None) -> Call:
        """Build the request that appends a lineage edge."""
        self._checks.joining(sid, edge, epoch)
        url = self._verb("lineage", sid)
        call = self._post(url, f"append an edge to {sid!r}", encode(dict(edge)))
        return _with_epoch(call, epoch)

    def claim(self, sid: str, holder: str, ttl_s: float, *, steal: bool) -> Call:
        """Build the request that claims a session."""
        check_holder(holder)
        body = {"holder": holder, "ttl_s": check_ttl(ttl_s), "steal": steal}
        url = self._verb("lease", sid)
        return self._post(url, f"claim the session {sid!r}", msgspec.json.encode(body))

    def renew(self, sid: str, epoch: int, ttl_s: float) -> Call:
        """Build the request that renews a lease. It can be repeated as it is."""
        body = {"epoch": check_count(epoch, "epoch", least=1), "ttl_s": check_ttl(ttl_s)}
        url, operation = self._verb("lease", sid), f"renew the lease of {sid!r}"
        return Call("PUT", url, operation, _JSON, {}, msgspec.json.encode(body))

    def release(self, sid: str, epoch: int) -> Call:
        """Build the request that releases a lease. It can be repeated as it is."""
        check_count(epoch, "epoch", least=1)
        url, operation = self._verb("lease", sid), f"release the lease of {sid!r}"
        return Call("DELETE", url, operation, {}, stringify(("epoch", epoch)))

    def retention(
        self,
        prefix: str,
        *,
        max_age_s: float | None,
        keep_latest: int | None,
        dry_run: bool,
        after: str | None,
    ) -> Call:
        """Build the request for the next part of a retention. It can be repeated as it is."""
        check_policy(self._checks, prefix, max_age_s, keep_latest)
        parse_place(after)
        body = {
            "max_age_s": max_age_s,
            "keep_latest": keep_latest,
            "dry_run": dry_run,
            "after": after,
        }
        return Call(
            "POST",
            self._retention,
            "apply a retention to sessions",
            _JSON,
            stringify(("prefix", prefix or None)),
            msgspec.json.encode(body),
        )

    def policies(self) -> Call:
        """Build the request for the stored retention policies."""
        return Call("GET", self._retention, "list retention policies", {}, {})

    def put_policy(self, prefix: str, max_age_s: float | None, keep_latest: int | None) -> Call:
        """Build the request that stores a retention policy. It can be repeated as it is."""
        check_policy(self._checks, prefix, max_age_s, keep_latest)
        body = msgspec.json.encode({"max_age_s": max_age_s, "keep_latest": keep_latest})
        params = stringify(("prefix", prefix or None))
        return Call("PUT", self._retention, "store a retention policy", _JSON, params, body)

    def delete_policy(self, prefix: str) -> Call:
        """Build the request that deletes a retention policy."""
        params = stringify(("prefix", prefix or None))
        return Call("DELETE", self._retention, "delete a retention policy", {}, params)

    def lease(self, sid: str) -> Call:
        """Build the request for the lease of a session."""
        return self._get("lease", sid)

    def leases(self, after: str | None, prefix: str) -> Call:
        """Build the request for a list of leases."""
        params = stringify(("after", after), ("prefix", prefix or None))
        return Call("GET", f"{self._root}/v1/sessions/leases", "list the leases", {}, params)

    def fork(self, sid: str, session: Mapping[str, Any] | None, at: At) -> Call:
        """Build the request that forks a session."""
        self._checks.creation(session)
        body: dict[str, Any] = {"session": dict(session or {})}
        if at is not None:
            body["at"] = format_at(at)
        return self._post(self._verb("forks", sid), f"fork the session {sid!r}", encode(body))

    def events(self, sid: str, after: int, until: int | None, key: str | None = None) -> Call:
        """Build the request for events."""
        return self._get("events", sid, ("after", after), ("until", until), ("key", key))

    def view(self, sid: str, at: At) -> Call:
        """Build the request for the state of a session."""
        return self._get("view", sid, ("at", format_at(at)))

    def entities(self, name: EntityName, sid: str, event_id: int, after: int) -> Call:
        """Build the request for messages, turns, steps or evals."""
        return self._get(name, sid, ("at", event_id), ("after", after))

    def heads(self, sid: str, event_id: int) -> Call:
        """Build the request for heads."""
        return self._get("heads", sid, ("at", event_id))

    def head(self, head_id: str) -> Call:
        """Build the request for one head."""
        url = f"{self._root}/v1/sessions/head/{_segment(head_id)}"
        return Call("GET", url, f"get the head {head_id}", {}, {})

    def relatives(self, relation: Literal["ancestors", "descendants"], head_id: str) -> Call:
        """Build the request for the heads that a head derives from, or that derive from it."""
        url = f"{self._root}/v1/sessions/{relation}/{_segment(head_id)}"
        return Call("GET", url, f"list the {relation} of head {head_id}", {}, {})

    def compare_heads(self, one: str, other: str) -> Call:
        """Build the request for the differences between two heads."""
        url = f"{self._root}/v1/sessions/compare/{_segment(one)}/{_segment(other)}"
        return Call("GET", url, f"compare the heads {one} and {other}", {}, {})

    def lineage(self, sid: str, limit: int | None, at: datetime | None) -> Call:
        """Build the request for a lineage graph, now or at a time."""
        return self._get("lineage", sid, ("limit", limit), ("at", format_time(at)))

    def put_payload(self, payload: InternedPayload) -> Call:
        """Build the request that stores a payload. Repeated, it changes nothing."""
        url = self._payload(payload.ref.id)
        return Call("PUT", url, "store a payload", {}, {"kind": payload.ref.kind}, payload.data)

    def get_payload(self, ref: PayloadRef) -> Call:
        """Build the request for a payload."""
        return Call("GET", self._payload(ref.id), f"get the payload {ref.id}", {}, {})

    def _payload(self, payload_id: str) -> str:
        return f"{self._root}/v1/sessions/payloads/{quote(payload_id, safe=':')}"

    def transcript(self, sid: str, at: At, limit: int | None, *, whole: bool, full: bool) -> Call:
        """Build the request for the entries of a transcript."""
        if limit is not None and limit > limits.PAGE_ITEMS_MAX:
            limit = None  # All of it is read, and its newest entries are returned.
        flags = [(name, "true") for name, flag in (("whole", whole), ("full", full)) if flag]
        return self._get("transcript", sid, ("at", format_at(at)), ("limit", limit), *flags)

    def search(  # noqa: PLR0917 - as the façade has them
        self,
        query: str,
        sid: str | None,
        prefix: str,
        at: At,
        kinds: Sequence[SessionHitKind] | None,
        order: SessionHitOrder,
        limit: int,
        after: str | None,
    ) -> Call:
        """Build the request for a page of hits."""
        check_search(query, sid=sid, prefix=prefix, at=at, kinds=kinds, order=order)
        params = stringify(
            ("q", query),
            ("prefix", prefix or None),
            ("at", format_at(at)),
            ("order", order),
            ("limit", check_count(limit, "limit", least=1)),
            ("cursor", after),
        )
        if kinds is not None:
            params["kind"] = list(kinds)
        url = f"{self._root}/v1/sessions/search" if sid is None else self._verb("search", sid)
        return Call("GET", url, "search sessions", {}, params)

    def export_bundle(self, sid: str) -> Call:
        """Build the request for the bundle of a session."""
        return Call("GET", self._verb("bundles", sid), f"export session {sid!r}", {}, {})

    def import_bundle(self, path: str | Path) -> Call:
        """Build the request that imports a bundle. Repeated, it changes nothing."""
        file = Path(path)
        if not file.exists():
            raise NotFound(f"{file}: there is no such file")
        if not file.is_file():
            raise InvalidInput(f"{file}: a bundle must be a file")
        url = f"{self._root}/v1/sessions/bundles"
        return Call("POST", url, "import a bundle", _NDJSON, {}, file.read_bytes())

    def send_transient(self, sid: str, item: Any) -> Call:
        """Build the request that delivers a transient item. It is not repeated."""
        call = self._post(
            self._verb("transients", sid), f"notify {sid!r}", encode({"items": [item]})
        )
        return call._replace(headers=_JSON, repeatable=False)

    def live(self, sid: str | None, after: int | None) -> Call:
        """Build the request for the feed of a session, or of all sessions."""
        url = f"{self._root}/v1/sessions/live" if sid is None else self._verb("live", sid)
        headers = {"accept": "text/event-stream", "accept-encoding": "identity"}
        operation = "follow the sessions" if sid is None else f"follow session {sid!r}"
        return Call("GET", url, operation, headers, stringify(("after", after)), live=True)


def format_at(at: At) -> str | int | None:
    """Return a point of a session as a parameter."""
    if isinstance(at, datetime):
        return stored_time(at)
    if at is not None and type(at) is not int and not isinstance(at, str):
        raise InvalidInput(f"at must be an event id, a head or a datetime, got {at!r:.100}")
    return at


def _segment(name: str) -> str:
    """Return a name as one part of a path; one that is only dots would be removed."""
    return quote(name, safe="").replace(".", "%2E")


def _if_match(call: Call, version: str) -> Call:
    return call._replace(headers={**call.headers, "if-match": f'"{version}"'})


def _with_epoch(call: Call, epoch: Epoch | None) -> Call:
    if epoch is None:
        return call
    headers = {**call.headers, "fourfold-epoch": str(epoch)}
    if isinstance(epoch, Claim):
        headers.update({"fourfold-epoch": str(epoch.epoch), "fourfold-lease": epoch.session})
    return call._replace(headers=headers)


def _value(raw: Raw) -> Any:
    """Return the value of canonical bytes."""
    return decode(bytes(raw))


def to_info(record: wire.SessionRecord) -> SessionInfo:
    """Return a session as a list shows it."""
    return SessionInfo(
        record.id,
        record.created_at,
        record.events,
        record.deleted_at,
        status=record.status,
        updated_at=record.updated_at,
        turn_status=record.turn_status,
        kind=record.kind,
    )


def to_hit_page(record: wire.SessionHitPageRecord) -> SessionHitPage:
    """Return a page of hits as callers receive it."""
    hits = [
        SessionHit(
            **{**msgspec.structs.asdict(hit), "highlights": tuple(map(tuple, hit.highlights))}
        )
        for hit in record.items
    ]
    return SessionHitPage(Rows(hits, SessionHit), record.next_cursor)


def to_policy(record: wire.PolicyRecord) -> StoredRetention:
    """Return a stored retention policy as callers receive it."""
    return StoredRetention(**msgspec.structs.asdict(record))


def to_retention(record: wire.RetentionRecord) -> RetentionReport:
    """Return a part of a retention as callers receive it."""
    return RetentionReport(record.deleted, record.kept, record.sessions, record.next_after)


def to_resumptions(owner: wire.SessionLease) -> list[Resumption]:
    """Return the claims of a session while a turn was running, oldest first."""
    return [Resumption(row.after, row.epoch, row.holder, row.at) for row in owner.resumptions]


def to_claim(record: wire.LeaseRecord) -> Claim:
    """Return a lease."""
    return Claim(record.session, record.epoch, record.holder, record.expires_at)


def to_event(record: wire.EventRecord) -> Event:
    """Return an event."""
    return Event(
        record.session,
        record.id,
        record.type,
        _value(record.data),
        at=record.at,
        entity_id=record.entity_id,
        key=record.key,
        position=record.position,
        digest=bytes.fromhex(record.digest),
    )


def to_head(record: wire.HeadRecord) -> Head:
    """Return a head."""
    return Head(
        record.id,
        record.session,
        record.basis,
        (record.event_range[0], record.event_range[1]),
        record.events_digest,
        record.kind,
        record.turn_id,
        _value(record.vars_ref),
        _value(record.final_ref),
        record.compact_from_event_id,
        _value(record.extra),
        record.version,
    )


def to_edge(record: wire.EdgeRecord) -> LineageEdge:
    """Return an edge."""
    return LineageEdge(
        record.id,
        record.type,
        record.from_session,
        record.to_session,
        record.from_head,
        record.to_head,
        _value(record.extra),
        record.version,
    )


def to_comparison(record: wire.HeadDifference) -> HeadComparison:
    """Return the differences between two heads."""
    return HeadComparison(
        record.one,
        record.other,
        record.common,
        record.added,
        record.removed,
        record.changed,
        to_values(record.new_messages),
        to_values(record.gone_messages),
    )


def to_graph(record: wire.LineageRecord) -> LineageGraph:
    """Return a lineage graph."""
    return LineageGraph(
        tuple(map(to_head, record.heads)), tuple(map(to_edge, record.edges)), record.complete
    )


def to_state(record: wire.ViewRecord) -> FoldState:
    """Return the state of a session without its lists."""
    counters = record.counters
    return FoldState(
        _value(record.session),
        Counters(counters.event, counters.message, counters.turn, counters.step, counters.eval),
        record.current_head,
        record.covered,
        _value(record.vars_ref),
        record.compact_from_event_id,
        _value(record.error),
        bytes.fromhex(record.digest),
    )


def to_values(items: Iterable[Raw]) -> list[Any]:
    """Return values of canonical bytes."""
    return [_value(item) for item in items]


def parse(response: Response, kind: type[responses.B]) -> responses.B:
    """Return the body of a response."""
    return responses.decode(response, kind, "a request about sessions")


def parse_transcript(lines: list[bytes], limit: int | None) -> Transcript:
    """Return the transcript of the lines of a response, at most its newest `limit` entries."""
    try:
        header = msgspec.json.decode(lines[0], type=TranscriptHeader)
        entries = [msgspec.json.decode(line, type=TranscriptEntry) for line in lines[1:-1]]
        end = msgspec.json.decode(lines[-1], type=wire.TranscriptEnd)
    except (msgspec.DecodeError, IndexError) as error:
        raise BadAnswer(f"read a transcript: invalid line: {error}") from None
    if end.entries != len(entries):
        raise BadAnswer(f"read a transcript: expected {end.entries} entries, got {len(entries)}")
    if limit is not None and len(entries) > limit:
        return Transcript(header, entries[-limit:], complete=False)
    return Transcript(header, entries, end.complete)


def parse_ref(response: Response) -> PayloadRef:
    """Return the reference to a payload."""
    record = parse(response, wire.PayloadRecord)
    return PayloadRef(record.id, record.kind, record.size)


def parse_payload(response: Response, ref: PayloadRef) -> Any:
    """Return the value of a payload, verified by its hash."""
    if content_id(response.body) != ref.id:
        raise CorruptData(f"payload {ref.id}: the bytes do not match the hash")
    return decode(response.body)


def decode_item(name: str, data: bytes) -> Item | None:
    """Return the item of an event of a feed of sessions."""
    try:
        if name == "event":
            return to_event(msgspec.json.decode(data, type=wire.EventRecord))
        if name == "transient":
            item = msgspec.json.decode(data, type=wire.TransientEvent)
            return Transient(item.session, _value(item.item), item.after, 0)
        if name == "gap":
            gap = msgspec.json.decode(data, type=wire.SessionGap)
            return Gap(gap.after, gap.dropped)
    except msgspec.DecodeError as error:
        raise BadAnswer(f"follow sessions: invalid event: {error}") from None
    return None
