"""Records of the sessions model. They are immutable, and contain plain values."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

ENTITY_OF: Final = {
    "turn/started": "turn",
    "turn/put": "turn",
    "step/started": "step",
    "step/put": "step",
    "message/appended": "message",
    "session/compacted": "message",
    "eval/added": "eval",
}
"""Types of the entities that events create, by event type."""


class _Unset(Enum):
    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


SESSION_RETENTION_IDS_MAX: Final = 1_000
"""Ids of deleted sessions in the report of a retention."""
UNSET: Final = _Unset.UNSET
"""Not given. `expected_basis=None` is a claim that there is no head yet; this is no claim."""
Unset = Literal[_Unset.UNSET]


EventRow: TypeAlias = tuple[int, int, str, str, int | None, int | None, str | None, str, bytes]
"""Position, event id, type, time, code and id of the entity, request key, body and digest."""
Decoded: TypeAlias = Callable[[str, EventRow], dict[str, Any]]
_new = object.__new__


class Event:
    """One event of a session, with the numbers that the store assigned.

    `data` is the content of the event, as in `event.data["turn"]["status"]`. It is decoded on first
    use, so that an event that is only passed on costs little. `digest` covers this event and all
    earlier ones of its session.
    """

    TABLE_COLUMNS: ClassVar = (("id", "int"), ("type", "text"), ("at", "time"), ("data", "json"))

    __slots__ = ("_data", "_row", "session")

    def __init__(
        self,
        session: str,
        id: int,  # noqa: A002 - the field is called so
        type: str,  # noqa: A002
        data: dict[str, Any],
        *,
        at: str = "",
        entity_id: int | None = None,
        key: str | None = None,
        position: int = 0,
        digest: bytes = b"",
    ) -> None:
        self.session = session
        self._row: EventRow = (position, id, type, at, None, entity_id, key, "", digest)
        self._data: dict[str, Any] | Decoded = data

    @classmethod
    def of_row(cls, session: str, row: EventRow, decoded: Decoded) -> Event:
        """Return the event of a row of the log; `decoded` returns its data on first use."""
        event = _new(cls)
        event.session = session
        event._row = row  # noqa: SLF001 - its own class
        event._data = decoded  # noqa: SLF001
        return event

    @property
    def position(self) -> int:
        """Number of the event among those of all sessions of the store."""
        return self._row[0]

    @property
    def id(self) -> int:
        """Number of the event in its session, from 1 on."""
        return self._row[1]

    @property
    def type(self) -> str:
        """Type of the event, such as "turn/started"."""
        return self._row[2]

    @property
    def at(self) -> str:
        """Time of the append, as ISO 8601 text."""
        return self._row[3]

    @property
    def entity_id(self) -> int | None:
        """Id of the turn, step, message or other entity that the event is about."""
        return self._row[5]

    @property
    def key(self) -> str | None:
        """Idempotency key of the append, if it had one."""
        return self._row[6]

    @property
    def digest(self) -> bytes:
        """Digest of this event and all earlier ones of its session."""
        return self._row[8]

    @property
    def data(self) -> dict[str, Any]:
        """Content of the event, decoded on first use."""
        if not isinstance(self._data, dict):
            self._data = self._data(self.session, self._row)
        return self._data

    def as_dict(self) -> dict[str, Any]:
        """Return the event as one dict, as in the specification."""
        return {"id": self.id, "type": self.type, "at": self.at, **self.data}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self._identity() == other._identity() and self.data == other.data

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return (self.session, self.id, self.type, self.at, self.entity_id, self.key, self.digest)

    def __repr__(self) -> str:
        return f"<Event {self.id} {self.type} of {self.session}>"


_CONTAINERS: Final = frozenset({dict, list})


def copied(value: Any) -> Any:
    """Copy a decoded value: dicts and lists, since nothing else in one can be changed."""
    kind = type(value)
    if kind is dict:
        return {
            name: copied(item) if type(item) in _CONTAINERS else item
            for name, item in value.items()
        }
    if kind is list:
        return [copied(item) if type(item) in _CONTAINERS else item for item in value]
    return value


class Head(msgspec.Struct, frozen=True):
    """An immutable point from which a session can be continued, named by its content.

    `event_range` is what it covers beyond its basis, first and last event id. `events_digest`
    covers all events of the session up to there, so that an edited history is found out.
    """

    id: str
    session: str
    basis: str | None
    event_range: tuple[int, int]
    events_digest: str
    kind: str
    turn_id: int | None = None
    vars_ref: Any = None
    final_ref: Any = None
    compact_from_event_id: int | None = None
    extra: dict[str, Any] = {}
    version: int = 1

    def content(self) -> dict[str, Any]:
        """Return the content that the id is the hash of."""
        fields = {name: getattr(self, name) for name in HEAD_FIELDS}
        return {**self.extra, **fields, "event_range": list(self.event_range)}


class LineageEdge(msgspec.Struct, frozen=True):
    """A lineage edge of a session, identified by its content."""

    id: str
    type: str
    from_session: str
    to_session: str
    from_head: str | None
    to_head: str
    extra: dict[str, Any] = {}
    version: int = 1

    def content(self) -> dict[str, Any]:
        """The edge as it is stored in its event."""
        return {**self.extra, **{name: getattr(self, name) for name in EDGE_FIELDS}}


HEAD_FIELDS: Final = tuple(name for name in Head.__struct_fields__ if name not in {"id", "extra"})
EDGE_FIELDS: Final = tuple(
    name for name in LineageEdge.__struct_fields__ if name not in {"id", "extra"}
)


def head_of(stored: dict[str, Any]) -> Head:
    """Return the head in a `head/published` event."""
    fields = {name: stored[name] for name in ("id", *HEAD_FIELDS)}
    fields["event_range"] = tuple(stored["event_range"])
    return Head(**fields, extra={k: v for k, v in stored.items() if k not in fields})


def edge_of(stored: dict[str, Any]) -> LineageEdge:
    """Return the edge in a `lineage/edge-added` event."""
    fields = {name: stored[name] for name in ("id", *EDGE_FIELDS)}
    return LineageEdge(**fields, extra={k: v for k, v in stored.items() if k not in fields})


class SessionInfo(msgspec.Struct, frozen=True):
    """A session as a list shows it.

    `events` is the id of its newest event and `updated_at` the time of that; `status` is None
    before `session/started`. `turn_status` is that of the newest turn: `waiting` if it waits for
    a person; None without a turn. `kind` is that of `session/started`, if it is text.
    """

    id: str
    created_at: str
    events: int
    deleted_at: str | None = None
    status: str | None = None
    updated_at: str = ""
    turn_status: str | None = None
    kind: str | None = None


class Claim(msgspec.Struct, frozen=True):
    """A lease of a session. `epoch` is passed with each write; `holder` is only a name."""

    session: str
    epoch: int
    holder: str
    expires_at: str
    """Time from which another worker may claim the session."""


Epoch: TypeAlias = int | Claim
"""What a write passes to prove its lease: the epoch of a claim of its session, or a claim.

The claim may be that of another session, which stands for several.
"""


class Resumption(msgspec.Struct, frozen=True):
    """A claim of a session whose newest turn was recorded as running: its worker had stopped.

    The events of the turn up to `after` are of earlier workers, later ones of this holder.
    """

    after: int
    """Newest event at the claim."""
    epoch: int
    holder: str
    at: str
    """Time of the claim."""


class Transient(msgspec.Struct, frozen=True):
    """Something live that is not kept, such as a token. `event_id` is the last event before it."""

    session: str
    item: Any
    event_id: int
    position: int


class Gap(msgspec.Struct, frozen=True):
    """Transient items were dropped here, because the subscriber was too slow.

    No durable event is ever dropped: they go on after `last_delivered_event_id`.
    """

    last_delivered_event_id: int
    dropped: int
    type: str = "subscribe/gap"


class GcReport(msgspec.Struct, frozen=True):
    """Counts of what gc of the sessions removed or, in a dry run, would remove."""

    sessions: int
    events: int
    payloads: int
    bytes: int
    dry_run: bool = False


class StoredRetention(msgspec.Struct, frozen=True):
    """A stored retention policy: `Sessions.apply_retention` with these limits, again and again."""

    prefix: str
    max_age_s: float | None = None
    keep_latest: int | None = None
    updated_at: str = ""


class RetentionReport(msgspec.Struct, frozen=True):
    """Sessions that a retention deleted, or would delete, and old ones that it kept."""

    deleted: int
    kept: int
    sessions: list[str]
    """Ids of deleted sessions, at most 1,000."""
    next_after: str | None = None
    """Where it continues, if a limit ended it; None at the end."""

    def plus(
        self, sessions: list[str], deleted: int, kept: int, next_after: str | None
    ) -> RetentionReport:
        """Return this report together with what the next part of the retention did."""
        ids = [*self.sessions, *sessions][:SESSION_RETENTION_IDS_MAX]
        return RetentionReport(self.deleted + deleted, self.kept + kept, ids, next_after)


class BundleReport(msgspec.Struct, frozen=True):
    """Counts of the contents of a bundle."""

    sessions: int
    events: int
    payloads: int


class HeadComparison(msgspec.Struct, frozen=True):
    """Difference of another head: names of variables, and messages that are still in effect.
    `common` is the nearest head that both go back to.
    """

    one: str
    other: str
    common: str | None
    added: list[str]
    removed: list[str]
    changed: list[str]
    new_messages: list[dict[str, Any]]
    gone_messages: list[dict[str, Any]]


class LineageGraph(msgspec.Struct, frozen=True):
    """Connected heads and edges. An edge may lead to a head of another store.

    `complete` is False if a limit left some of them out.
    """

    heads: tuple[Head, ...]
    edges: tuple[LineageEdge, ...]
    complete: bool = True
