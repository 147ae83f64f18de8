"""Errors in responses, and the health of the server."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from fourfold.wire.fields import Count


class ErrorFields(Struct, kw_only=True, frozen=True):
    """An error: its stable kind, and what happened in words."""

    kind: str
    message: str
    hint: str
    retryable: bool
    details: dict[str, Any] | UnsetType = UNSET
    retry_after: float | UnsetType = UNSET
    code: str | UnsetType = UNSET
    """Code of the Durable Streams protocol, in responses about subscriptions."""


class ErrorBody(Struct, frozen=True):
    """Body of a response with an error."""

    error: ErrorFields


class Problem(Struct, kw_only=True, frozen=True):
    """An error as a problem document (RFC 9457), for requests that accept one."""

    type: str
    """Path of the page about the kind."""
    title: str
    status: int
    detail: str
    kind: str
    hint: str
    retryable: bool
    details: dict[str, Any]
    code: str | UnsetType = UNSET
    """Code of the Durable Streams protocol, in responses about subscriptions."""


class ProblemKind(Struct, kw_only=True, frozen=True):
    """A kind of error: what it means, and what to do."""

    kind: str
    title: str
    status: int
    hint: str
    retryable: bool


class HealthError(Struct, kw_only=True, frozen=True):
    """Reason for bad health; only the kind for a client that may not read everything."""

    kind: str
    retryable: bool
    message: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET
    retry_after: float | UnsetType = UNSET


class ObjectsHealth(Struct, kw_only=True, frozen=True):
    """State of the object store that the server publishes to."""

    ok: bool
    error: HealthError | None


class DatabasesHealth(Struct, kw_only=True, frozen=True):
    """State of the publication of the databases."""

    count: Count
    last_point: str | None
    last_round_ms: int | None
    unpublished_count: Count
    unpublished: dict[str, str] | UnsetType = UNSET
    """Kind of the error by database."""


class Health(Struct, kw_only=True, frozen=True):
    """State of the server."""

    ok: bool
    error: HealthError | None
    front: str
    unpublished_count: Count
    fenced_count: Count
    databases: DatabasesHealth | None
    objects: ObjectsHealth | None
    started_at_ms: Count = 0
    """Time at which the server was started."""
    free_bytes: Count | UnsetType = UNSET
    """Free space on the disk of the store, for keys that may read the store."""
    unpublished: list[str] | UnsetType = UNSET
