"""Rules of a stream: the constraints of its profile and its schema on its records.

    profile ──> schema ──> routing key

The profile is applied first, since it may change the records; the schema and the routing key apply
to the records as they will be stored. Most streams have no rules, and their appends skip this
module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from fourfold.errors import CorruptData, InvalidInput
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.streams import profiles
from fourfold.models.streams.json_messages import has_lone_surrogate
from fourfold.models.streams.profiles import GenericProfile
from fourfold.models.streams.records import Record, StreamInfo
from fourfold.models.streams.schemas import compatibility
from fourfold.models.streams.schemas import registry as registries
from fourfold.models.streams.schemas.registry import EMPTY, Registry
from fourfold.models.streams.search.companions import plans

SQL = load_queries("fourfold.models.streams", "rules.sql")


class AdmittedRecords(NamedTuple):
    """Records to store, and their routing keys if the rules assign any."""

    records: Sequence[bytes]
    keys: Sequence[bytes | None] | None


class Rules(NamedTuple):
    """The profile and the schema registry of one stream."""

    profile: GenericProfile
    registry: Registry

    @property
    def cost(self) -> int:
        """Checks per byte of a message that the schema takes, at most; 0 without a schema."""
        schema = self.registry.schema
        return 0 if schema is None else compatibility.compiled(schema).cost

    def admit(
        self, records: Sequence[bytes], now_ms: int, routing_key: bytes | None
    ) -> AdmittedRecords:
        """Return the records to store for JSON messages, with their routing keys.

        `routing_key` is the key that was passed with the append.

        Raises:
            InvalidInput: a message violates the rules.
        """
        for number, record in enumerate(records, 1):
            if has_lone_surrogate(record):
                raise InvalidInput(
                    f"message {number}: escapes a lone surrogate, which a stream with a schema, a "
                    "profile or a routing key does not accept",
                    hint="Split text between characters, or use a stream without rules.",
                    details={"message": number},
                )
        records, keys = self.profile.admit(records, now_ms)
        schema = self.registry.schema
        if schema is not None:
            validator = compatibility.compiled(schema)
            if validator.is_too_much(records):
                raise InvalidInput(
                    "append: too many values for a schema with so many parts",
                    hint="Append fewer messages at once.",
                )
            for number, record in enumerate(records, 1):
                problem = validator.problem(record)
                if problem is not None:
                    raise InvalidInput(
                        f"message {number}: violates version {self.registry.current_version} of "
                        f"the stream's schema: {problem}",
                        details={"message": number},
                    )
        if self.registry.routing_key is not None:
            keys = list(self.registry.keys_of(records))
        if keys is not None and routing_key is not None:
            raise InvalidInput(
                "cannot pass a routing key: this stream takes keys from its messages",
                hint="Append without a key.",
            )
        return AdmittedRecords(records, keys)


def find(snapshot: ReadTransaction, info: StreamInfo) -> Rules | None:
    """Return the rules of a stream, or None if it has none."""
    if not info.has_rules:
        return None
    return Rules(profile_of(snapshot, info), registry_of(snapshot, info))


def registry_of(snapshot: ReadTransaction, info: StreamInfo) -> Registry:
    """Return the schema registry of a stream; an empty one if none was set."""
    if info.schema_version is None:
        return EMPTY
    text = snapshot.value(SQL.schema, (info.name,))
    if text is None:
        raise CorruptData(f"stream {info.name!r}: the schema registry is missing")
    return registries.decoded(text)


def profile_of(snapshot: ReadTransaction, info: StreamInfo) -> GenericProfile:
    """Return the profile of a stream; the generic one if none was set."""
    if info.profile == profiles.GENERIC.kind:
        return profiles.GENERIC
    text = snapshot.value(SQL.profile, (info.name,))
    if text is None:
        raise CorruptData(f"stream {info.name!r}: the profile is missing")
    return _profile(text)


@lru_cache(maxsize=64)
def _profile(text: str) -> GenericProfile:
    return profiles.read(msgspec.json.decode(text))


def inherit(
    txn: Transaction, source: StreamInfo, offset: int, name: str, now_ms: int
) -> tuple[str, int | None]:
    """Copy the rules that a source had at an offset to its fork.

    Returns the profile kind and the schema version of the fork.
    """
    version = None
    if source.schema_version is not None:
        registry = registry_of(txn, source).until(offset)
        version = registry.current_version
        txn.execute(SQL.put_schema, (name, registries.encoded(registry).decode(), now_ms))
        plans.refresh(txn, name, registry, now_ms)
    profile = profile_of(txn, source)
    if profile.kind != profiles.GENERIC.kind:
        write_profile(txn, name, profile, offset, now_ms)
    return profile.kind, version


def write_profile(
    txn: Transaction, name: str, profile: GenericProfile, next_offset: int, now_ms: int
) -> None:
    """Write the rows of a profile, except the column in `streams`."""
    if profile.kind == profiles.GENERIC.kind:
        txn.execute(SQL.drop_profile, (name,))
    else:
        text = msgspec.json.encode(profile.to_json()).decode()
        txn.execute(SQL.put_profile, (name, text, now_ms))
    if profile.touch_enabled:
        txn.execute(SQL.begin_touch, (name, next_offset - 1, now_ms))
    else:
        txn.execute(SQL.end_touch, (name,))
        txn.execute(SQL.drop_templates, (name,))


def begin_of_version(snapshot: ReadTransaction, info: StreamInfo) -> int:
    """Return the first offset that is stored in the current schema version."""
    return registry_of(snapshot, info).begin_of(info.schema_version or 0)


def promote_records(
    snapshot: ReadTransaction, info: StreamInfo, records: Iterable[Record]
) -> Iterable[Record]:
    """Return records of a stream, each promoted to its current schema version."""
    return map(make_promote(snapshot, info), records) if info.schema_version else records


def make_promote(snapshot: ReadTransaction, info: StreamInfo) -> Callable[[Record], Record]:
    """Return the function that promotes a record of a stream to its current schema version."""
    version = info.schema_version
    if not version:
        return lambda record: record
    registry = registry_of(snapshot, info)
    current = registry.begin_of(version)

    def promote(record: Record) -> Record:
        if record.offset >= current:
            return record
        return record._replace(payload=registry.promote(record.payload, record.offset, version))

    return promote
