"""Settings of a stream that can be changed later: its lifetime and its retention.

Trimmed records stay trimmed: a longer retention applies to the remaining records.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from msgspec import UnsetType

from fourfold.errors import InvalidInput
from fourfold.kernel import Transaction
from fourfold.models.streams import writer
from fourfold.models.streams.records import StreamInfo
from fourfold.models.streams.rule_changes import UNCHANGED
from fourfold.models.streams.validation import check_name
from fourfold.models.streams.writer import SQL, StreamClock

Setting = int | UnsetType | None
"""A number, None to remove the setting, or UNCHANGED."""
Value = TypeVar("Value")


class SettingsChange(NamedTuple):
    """New settings of a stream. A TTL and a fixed expiry replace each other."""

    ttl_seconds: Setting = UNCHANGED
    expires_at_ms: Setting = UNCHANGED
    retention_seconds: Setting = UNCHANGED
    retention_bytes: Setting = UNCHANGED


def check(name: str, settings: SettingsChange) -> None:
    """Raise InvalidInput if the settings are invalid or change nothing."""
    check_name(name)
    values = {key: _or(value, None) for key, value in settings._asdict().items()}
    writer.check_settings(**values)
    if all(isinstance(value, UnsetType) for value in settings):
        raise InvalidInput(
            f"stream {name!r}: no setting to change",
            hint="Pass a ttl, expires_at_ms or a retention.",
        )


def change(txn: Transaction, name: str, settings: SettingsChange, now: StreamClock) -> StreamInfo:
    """Change the settings of a stream, and return its new metadata."""
    info = writer.get_stream(txn, name, now)
    ttl, end = info.ttl_seconds, info.expires_at_ms
    fixed = end if ttl is None else None
    if not isinstance(settings.ttl_seconds, UnsetType):
        ttl = settings.ttl_seconds
        end = fixed if ttl is None else now.ms + 1000 * ttl
    if not isinstance(settings.expires_at_ms, UnsetType):
        if settings.expires_at_ms is not None:
            ttl, end = None, settings.expires_at_ms
        elif ttl is None:
            end = None
    params = (
        info.sid,
        ttl,
        end,
        _or(settings.retention_seconds, info.retention_seconds),
        _or(settings.retention_bytes, info.retention_bytes),
        now.ms,
    )
    txn.execute(SQL.configure, params)
    txn.execute(SQL.manifest_due, (name,))
    return writer.info_of(txn.one(SQL.stream_by_sid, (info.sid,)) or ())


def _or(setting: Value | UnsetType, default: Value | None) -> Value | None:
    return default if isinstance(setting, UnsetType) else setting
