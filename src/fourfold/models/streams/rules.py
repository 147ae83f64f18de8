"""The rules of a stream: what it asks of its records, by its profile and its schema.

    profile ──> schema ──> routing key

The profile comes first, since it may change what is written; what is held against the schema, and
what the key is taken from, is what will be there to read. Most streams have no rules, and their
appends never come here.

What a caller says about a stream, as the JSON that its registry and its profile are changed by.
Pure, and the same for a stream of a store and for one of a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from fourfold.errors import CorruptData, InvalidInput
from fourfold.kernel import ReadTransaction, Transaction, load_queries
from fourfold.models.streams import profiles
from fourfold.models.streams.json_messages import has_lone_surrogate
from fourfold.models.streams.profiles import Profile
from fourfold.models.streams.records import Record, StreamInfo
from fourfold.models.streams.schemas import compatibility
from fourfold.models.streams.schemas import registry as registries
from fourfold.models.streams.schemas.registry import EMPTY, Registry

SQL = load_queries("fourfold.models.streams", "rules.sql")


class AdmittedRecords(NamedTuple):
    """Records as they are written, and the routing key of each where the rules give one."""

    records: Sequence[bytes]
    keys: Sequence[bytes | None] | None


class Rules(NamedTuple):
    """What one stream asks of its records."""

    profile: Profile
    registry: Registry

    def take(self, records: Sequence[bytes], now_ms: int, given: bytes | None) -> AdmittedRecords:
        """What is to be written of JSON messages; InvalidInput when one of them cannot be there.
        `given` is the routing key that came with them.
        """
        for number, record in enumerate(records, 1):
            if has_lone_surrogate(record):
                raise InvalidInput(
                    f"message {number} escapes half of a surrogate pair, which a stream with a "
                    "schema, a profile or a routing key does not accept",
                    hint="Cut text between characters, or use a stream without rules.",
                    details={"message": number},
                )
        records, keys = self.profile.take(records, now_ms)
        schema = self.registry.schema
        if schema is not None:
            validator = compatibility.compiled(schema)
            for number, record in enumerate(records, 1):
                problem = validator.problem(record)
                if problem is not None:
                    raise InvalidInput(
                        f"message {number} does not fit version {self.registry.current_version} of "
                        f"the stream's schema: {problem}",
                        details={"message": number},
                    )
        if self.registry.routing_key is not None:
            keys = list(self.registry.keys_of(records))
        if keys is not None and given is not None:
            raise InvalidInput(
                "the routing keys of this stream are taken from its messages",
                hint="Append without a key.",
            )
        return AdmittedRecords(records, keys)


def find(snapshot: ReadTransaction, info: StreamInfo) -> Rules | None:
    """The rules of a stream; None when it has none."""
    if not info.has_rules:
        return None
    return Rules(profile_of(snapshot, info), registry_of(snapshot, info))


def registry_of(snapshot: ReadTransaction, info: StreamInfo) -> Registry:
    if info.schema_version is None:
        return EMPTY
    text = snapshot.value(SQL.schema, (info.name,))
    if text is None:
        raise CorruptData(f"the registry of the stream {info.name!r} is missing")
    return registries.decoded(text)


def profile_of(snapshot: ReadTransaction, info: StreamInfo) -> Profile:
    if info.profile == profiles.GENERIC.kind:
        return profiles.GENERIC
    text = snapshot.value(SQL.profile, (info.name,))
    if text is None:
        raise CorruptData(f"the profile of the stream {info.name!r} is missing")
    return _profile(text)


@lru_cache(maxsize=64)
def _profile(text: str) -> Profile:
    return profiles.read(msgspec.json.decode(text))


def inherit(
    txn: Transaction, source: StreamInfo, offset: int, name: str, now_ms: int
) -> tuple[str, int | None]:
    """A fork at an offset has the rules that its source had there, and may change them by itself:
    its profile, and the version that it is at.
    """
    version = None
    if source.schema_version is not None:
        registry = registry_of(txn, source).until(offset)
        version = registry.current_version
        txn.execute(SQL.put_schema, (name, registries.encoded(registry).decode(), now_ms))
    profile = profile_of(txn, source)
    if profile.kind != profiles.GENERIC.kind:
        write_profile(txn, name, profile, offset, now_ms)
    return profile.kind, version


def write_profile(
    txn: Transaction, name: str, profile: Profile, next_offset: int, now_ms: int
) -> None:
    """The rows of a profile, but for that of the stream itself."""
    if profile.kind == profiles.GENERIC.kind:
        txn.execute(SQL.drop_profile, (name,))
    else:
        text = msgspec.json.encode(profile.plain()).decode()
        txn.execute(SQL.put_profile, (name, text, now_ms))
    if profile.touch_enabled:
        txn.execute(SQL.begin_touch, (name, next_offset - 1, now_ms))
    else:
        txn.execute(SQL.end_touch, (name,))
        txn.execute(SQL.drop_templates, (name,))


def begin_of_version(snapshot: ReadTransaction, info: StreamInfo) -> int:
    """The first offset that is stored in the version that a stream is at."""
    return registry_of(snapshot, info).begin_of(info.schema_version or 0)


def promoted(
    snapshot: ReadTransaction, info: StreamInfo, records: Iterable[Record]
) -> Iterable[Record]:
    """Records of a stream, each in the version that the stream is at."""
    version = info.schema_version
    return _promoted(snapshot, info, version, records) if version else records


def _promoted(
    snapshot: ReadTransaction, info: StreamInfo, version: int, records: Iterable[Record]
) -> Iterator[Record]:
    registry = registry_of(snapshot, info)
    current = registry.begin_of(version)
    for each in records:
        if each.offset >= current:
            yield each
        else:
            yield each._replace(payload=registry.promote(each.payload, each.offset, version))


UNCHANGED: Final = UNSET
"""For what stays as it is: None takes away."""


class KeyPlace(Protocol):
    """Where messages have their routing key, and whether each must have one."""

    @property
    def json_pointer(self) -> str: ...
    @property
    def required(self) -> bool: ...


KeyGiven: TypeAlias = str | KeyPlace | UnsetType | None
"""A place, a JSON pointer that not every message needs something at, or none."""
FieldsGiven: TypeAlias = Sequence[str] | UnsetType | None


def registry_change(
    schema: Any = UNCHANGED,
    lens: Any = None,
    routing_key: KeyGiven = UNCHANGED,
    search: FieldsGiven = UNCHANGED,
) -> dict[str, Any]:
    """A change of a registry: some of `schema`, `lens`, `routingKey` and `search`."""
    change: dict[str, Any] = {}
    if schema is not UNCHANGED:
        change["schema"] = schema
    if lens is not None:
        change["lens"] = lens
    if not isinstance(routing_key, UnsetType):
        change["routingKey"] = _key_place(routing_key)
    if not isinstance(search, UnsetType):
        change["search"] = None if search is None else {"fields": _names(search, "search")}
    return change


def profile(
    kind: str,
    touch: bool | None = None,
    redact: Sequence[str] | None = None,
    routing_key: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A profile with what is said of it; the rest is as it is by default."""
    given: dict[str, Any] = {"kind": kind}
    if touch is not None:
        given["touch"] = {"enabled": touch}
    if redact is not None:
        given["redact"] = _names(redact, "redact")
    if routing_key is not None:
        given["routingKey"] = _names(routing_key, "routing_key")
    return given


def _key_place(given: str | KeyPlace | None) -> dict[str, Any] | None:
    if given is None:
        return None
    if isinstance(given, str):
        return {"jsonPointer": given, "required": False}
    return {"jsonPointer": given.json_pointer, "required": given.required}


def _names(given: Sequence[str], what: str) -> list[str]:
    if isinstance(given, str):
        # Or each of its letters would be taken for a name.
        raise InvalidInput(f"{what} is a list of names", hint=f"Write [{given!r:.80}].")
    return list(given)
