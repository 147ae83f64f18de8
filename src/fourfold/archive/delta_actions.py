"""Actions of a Delta log: their JSON, and the state of a table after a commit.

A commit is one JSON object per line, each with one action. The first line is `commitInfo`; it
contains the number of lines after it, so that a truncated commit is recognized. Unknown actions and
fields are ignored; a table that requires features that Fourfold does not implement is refused.

Paths are plain text relative to the table here, and percent-encoded in the log.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, unquote

import msgspec

from fourfold._version import __version__
from fourfold.archive.delta_schema import decode_schema, encode_schema
from fourfold.errors import CorruptData, FutureFormat

READER_VERSION: Final = 1
WRITER_VERSION: Final = 2
FEATURES_VERSION: Final = 3
"""Reader version of tables that list their features."""
FEATURES_WRITER_VERSION: Final = 7
"""Writer version of tables that list their features."""
NO_VERSION: Final = -1
"""Version of a table before its first commit."""
_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_SAFE: Final = "/-._~=,@+"
_LINES: Final = "actionCount"


class DeltaProtocol(msgspec.Struct, frozen=True, rename="camel"):
    """Features that a reader and a writer of the table must implement."""

    min_reader_version: int = READER_VERSION
    min_writer_version: int = WRITER_VERSION
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Format(msgspec.Struct, frozen=True, rename="camel"):
    """Format of the data files."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Schema and configuration of the table."""

    id: str
    schema_string: str
    name: str | None = None
    description: str | None = None
    format: Format = Format()
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str] = {}
    created_time: int | None = None


class RemoveFile(msgspec.Struct, frozen=True, rename="camel"):
    """Removal of a data file; the file itself stays for readers of older versions."""

    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None


class AddFile(msgspec.Struct, frozen=True, rename="camel"):
    """Addition of a data file. `stats` is JSON, see `delta_schema.Statistics`."""

    path: str
    size: int
    modification_time: int
    data_change: bool = True
    partition_values: dict[str, str | None] = {}
    stats: str | None = None
    tags: dict[str, str | None] | None = None

    def removed(self, deletion_timestamp: int, *, data_change: bool = True) -> RemoveFile:
        """Return the action that removes this file."""
        return RemoveFile(
            self.path,
            deletion_timestamp,
            data_change,
            extended_file_metadata=True,
            partition_values=self.partition_values,
            size=self.size,
        )


class Txn(msgspec.Struct, frozen=True, rename="camel"):
    """Newest transaction of an application, to recognize a repeated commit."""

    app_id: str
    version: int
    last_updated: int | None = None


Action: TypeAlias = DeltaProtocol | Metadata | AddFile | RemoveFile | Txn


class DeltaCommit(NamedTuple):
    """One commit: `info` is its `commitInfo`, with keys of the writer."""

    version: int
    actions: tuple[Action, ...]
    info: dict[str, Any]

    def txn(self, app_id: str) -> int | None:
        """Return the transaction of an application in this commit, or None."""
        versions = [
            action.version
            for action in self.actions
            if isinstance(action, Txn) and action.app_id == app_id
        ]
        return versions[-1] if versions else None


class _Line(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    protocol: DeltaProtocol | None = None
    meta_data: Metadata | None = None
    add: AddFile | None = None
    remove: RemoveFile | None = None
    txn: Txn | None = None
    commit_info: dict[str, Any] | None = None


_DECODER: Final = msgspec.json.Decoder(_Line)
_PROTOCOL: Final = DeltaProtocol()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a table at a version; -1 is the state before the first commit."""

    version: int = NO_VERSION
    protocol: DeltaProtocol = _PROTOCOL
    metadata: Metadata | None = None
    files: Mapping[str, AddFile] = field(default_factory=lambda: MappingProxyType({}))
    """Data files by path, with `data_change` False: a state has no changes."""
    removed: Mapping[str, RemoveFile] = field(default_factory=lambda: MappingProxyType({}))
    """Removed files by path, until a checkpoint omits them."""
    txns: Mapping[str, Txn] = field(default_factory=lambda: MappingProxyType({}))
    """Newest transaction of each application."""

    @property
    def exists(self) -> bool:
        """True if the table has a commit."""
        return self.version != NO_VERSION

    @property
    def schema(self) -> Any:
        """Arrow schema of the table."""
        return decode_schema(self.defined().schema_string)

    def defined(self) -> Metadata:
        """Return the metadata; raise CorruptData if no commit has any."""
        if self.metadata is None:
            raise CorruptData(f"Delta table at version {self.version} has no metadata")
        return self.metadata

    def metadata_with(self, schema: Any, options: Mapping[str, str] | None = None) -> Metadata:
        """Return the metadata of the table with another Arrow schema, and more configuration."""
        metadata = self.defined()
        return msgspec.structs.replace(
            metadata,
            schema_string=encode_schema(schema),
            configuration={**metadata.configuration, **(options or {})},
        )

    def check_writable(self) -> None:
        """Raise FutureFormat if a writer of the table needs features that are not implemented."""
        if self.protocol.min_writer_version > WRITER_VERSION:
            raise FutureFormat(
                f"Delta table requires writer version {self.protocol.min_writer_version}, "
                f"expected at most {WRITER_VERSION}",
                hint="Write it with the program that created it.",
            )

    def apply(self, commit: DeltaCommit) -> Snapshot:
        """Return the state after the next commit."""
        return replay(self, (commit,))


EMPTY: Final = Snapshot()


def table_actions(
    schema: Any,
    *,
    name: str,
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    created_ms: int | None = None,
    table_id: str | None = None,
) -> tuple[DeltaProtocol, Metadata]:
    """Return the actions that create a table with an Arrow schema, for its first commit."""
    metadata = Metadata(
        table_id or str(uuid.uuid4()),
        encode_schema(schema),
        name,
        partition_columns=tuple(partition_columns),
        configuration=dict(configuration or {}),
        created_time=_now_ms() if created_ms is None else created_ms,
    )
    return DeltaProtocol(), metadata


def encode_commit(
    actions: Sequence[Action], info: Mapping[str, Any] | None = None, *, token: str
) -> bytes:
    """Encode a commit. The token tells it from an equal commit of another writer."""
    stated = {
        "timestamp": _now_ms(),
        "operation": "WRITE",
        "operationParameters": {},
        "engineInfo": f"fourfold/{__version__}",
        **(info or {}),
        "txnId": token,
        _LINES: len(actions),
    }
    lines = [
        {"commitInfo": stated},
        *({_NAMES[type(action)]: to_json(action)} for action in actions),
    ]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def decode_commit(version: int, data: bytes) -> DeltaCommit | None:
    """Decode a commit; return None if its end is missing.

    Raises:
        CorruptData: If it is damaged in another way.
    """
    lines = [line for line in data.split(b"\n") if line.strip()]
    info: dict[str, Any] = {}
    actions: list[Action] = []
    for number, line in enumerate(lines, 1):
        try:
            decoded = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if number == len(lines) and not isinstance(error, msgspec.ValidationError):
                return None
            raise CorruptData(
                f"commit {version} of a Delta log: line {number} is not an action: {error}"
            ) from error
        if decoded.commit_info is not None:
            info = decoded.commit_info
        actions += _actions(decoded)
    expected = info.get(_LINES)
    if not lines or (isinstance(expected, int) and len(lines) - 1 < expected):
        return None
    return DeltaCommit(version, tuple(actions), info)


def replay(snapshot: Snapshot, commits: Iterable[DeltaCommit]) -> Snapshot:
    """Return the state after consecutive commits."""
    version, protocol, metadata = snapshot.version, snapshot.protocol, snapshot.metadata
    files, removed, txns = dict(snapshot.files), dict(snapshot.removed), dict(snapshot.txns)
    for commit in commits:
        if commit.version != version + 1:
            raise CorruptData(f"Delta log: expected commit {version + 1}, found {commit.version}")
        version = commit.version
        for action in commit.actions:
            if isinstance(action, AddFile):
                files[action.path] = _state(action)
                removed.pop(action.path, None)
            elif isinstance(action, RemoveFile):
                files.pop(action.path, None)
                removed[action.path] = _state(action)
            elif isinstance(action, Txn):
                txns[action.app_id] = action
            elif isinstance(action, Metadata):
                metadata = action
            else:
                protocol = check_protocol(action)
    proxy = MappingProxyType
    return Snapshot(version, protocol, metadata, proxy(files), proxy(removed), proxy(txns))


F = TypeVar("F", AddFile, RemoveFile)


def _state(file: F) -> F:
    """Return a file as part of a state, in which it is not a change."""
    return msgspec.structs.replace(file, data_change=False) if file.data_change else file


def check_protocol(protocol: DeltaProtocol) -> DeltaProtocol:
    """Return the protocol; raise FutureFormat if a reader needs features that are missing."""
    version, features = protocol.min_reader_version, protocol.reader_features or ()
    if version == READER_VERSION or (version == FEATURES_VERSION and not features):
        return protocol
    required = f"reader version {version}" + (f" with {', '.join(features)}" if features else "")
    raise FutureFormat(
        f"Delta table requires {required}, expected at most version {READER_VERSION}",
        hint="Read it with a Delta reader that has these features.",
    )


def encode_path(path: str) -> str:
    """Return a path as it is written to the log."""
    return path if _URI.match(path) else quote(path, safe=_SAFE)


def decode_path(text: str) -> str:
    """Return a path of the log as plain text."""
    return text if _URI.match(text) else unquote(text)


def to_json(action: Action) -> dict[str, Any]:
    """Return the fields of an action as in the log."""
    fields = {
        name: value
        for name, value in msgspec.to_builtins(action).items()
        # Optional fields are omitted, not null.
        if value is not None
    }
    if isinstance(action, AddFile | RemoveFile):
        fields["path"] = encode_path(action.path)
    return fields


_NAMES: Final[dict[type, str]] = {
    DeltaProtocol: "protocol",
    Metadata: "metaData",
    AddFile: "add",
    RemoveFile: "remove",
    Txn: "txn",
}


def _actions(line: _Line) -> Iterable[Action]:
    if line.protocol is not None:
        yield line.protocol
    if line.meta_data is not None:
        yield line.meta_data
    if line.txn is not None:
        yield line.txn
    for file in (line.remove, line.add):
        if file is not None:
            yield msgspec.structs.replace(file, path=decode_path(file.path))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
