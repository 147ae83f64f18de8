"""Checkpoints of a Delta log: the state of a table as one Parquet file, one row per action."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec

from fourfold.archive.delta_actions import (
    Action,
    AddFile,
    DeltaProtocol,
    Metadata,
    RemoveFile,
    Snapshot,
    Txn,
    check_protocol,
    decode_path,
    to_json,
)
from fourfold.archive.parquet import arrow
from fourfold.errors import CorruptData

_COLUMNS = ("protocol", "metaData", "txn", "add", "remove")


def encode_checkpoint(snapshot: Snapshot) -> bytes:
    """Return the Parquet file of a state."""
    pa, pq = arrow()
    rows = [
        {"protocol": to_json(snapshot.protocol)},
        {"metaData": to_json(snapshot.defined())},
        *({"txn": to_json(txn)} for txn in snapshot.txns.values()),
        *({"add": to_json(file)} for file in snapshot.files.values()),
        *({"remove": to_json(file)} for file in snapshot.removed.values()),
    ]
    table = pa.Table.from_pylist([_with_maps(row) for row in rows], schema=_schema())
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def count_actions(snapshot: Snapshot) -> int:
    """Return the number of rows of a checkpoint."""
    return 2 + len(snapshot.txns) + len(snapshot.files) + len(snapshot.removed)


def decode_checkpoint(version: int, data: bytes) -> Snapshot:
    """Decode a checkpoint; raise CorruptData if it is damaged."""
    pa, pq = arrow()
    try:
        table = pq.read_table(io.BytesIO(data))
        rows = table.select([name for name in _COLUMNS if name in table.column_names]).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptData(f"checkpoint {version} of a Delta log is damaged: {error}") from error
    protocol, metadata = DeltaProtocol(), None
    files: dict[str, AddFile] = {}
    removed: dict[str, RemoveFile] = {}
    txns: dict[str, Txn] = {}
    try:
        for action in _actions(rows):
            if isinstance(action, AddFile):
                files[action.path] = action
            elif isinstance(action, RemoveFile):
                removed[action.path] = action
            elif isinstance(action, Txn):
                txns[action.app_id] = action
            elif isinstance(action, Metadata):
                metadata = action
            else:
                protocol = check_protocol(action)
    except msgspec.ValidationError as error:
        raise CorruptData(f"checkpoint {version} of a Delta log is damaged: {error}") from error
    if metadata is None:
        raise CorruptData(f"checkpoint {version} of a Delta log has no metadata")
    proxy = MappingProxyType
    return Snapshot(version, protocol, metadata, proxy(files), proxy(removed), proxy(txns))


def _actions(rows: Iterable[dict[str, Any]]) -> Iterable[Action]:
    types: dict[str, type[Action]] = {
        "protocol": DeltaProtocol,
        "metaData": Metadata,
        "txn": Txn,
        "add": AddFile,
        "remove": RemoveFile,
    }
    for row in rows:
        for name, kind in types.items():
            fields = row.get(name)
            if fields is None:
                continue
            action = msgspec.convert(_without_maps(fields), type=kind)
            if isinstance(action, AddFile | RemoveFile):
                action = msgspec.structs.replace(action, path=decode_path(action.path))
            yield action


def _with_maps(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its maps as pyarrow expects them: lists of pairs."""
    return {name: _pairs(value) for name, value in row.items()}


_MAPS = {"partitionValues", "configuration", "options", "tags"}


def _pairs(fields: dict[str, Any]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _MAPS:
            pairs[name] = list(value.items())
        elif name == "format":
            pairs[name] = _pairs(value)
        else:
            pairs[name] = value
    return pairs


def _without_maps(fields: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in _MAPS:
            plain[name] = dict(value)
        elif name == "format":
            plain[name] = _without_maps(value)
        else:
            plain[name] = value
    return plain


@cache
def _schema() -> Any:
    pa, _ = arrow()
    text, number, flag = pa.string(), pa.int64(), pa.bool_()
    texts, map_ = pa.list_(pa.field("element", text)), pa.map_(text, text)
    return pa.schema(
        [
            (
                "protocol",
                pa.struct(
                    [
                        ("minReaderVersion", pa.int32()),
                        ("minWriterVersion", pa.int32()),
                        ("readerFeatures", texts),
                        ("writerFeatures", texts),
                    ]
                ),
            ),
            (
                "metaData",
                pa.struct(
                    [
                        ("id", text),
                        ("name", text),
                        ("description", text),
                        ("format", pa.struct([("provider", text), ("options", map_)])),
                        ("schemaString", text),
                        ("partitionColumns", texts),
                        ("configuration", map_),
                        ("createdTime", number),
                    ]
                ),
            ),
            ("txn", pa.struct([("appId", text), ("version", number), ("lastUpdated", number)])),
            (
                "add",
                pa.struct(
                    [
                        ("path", text),
                        ("partitionValues", map_),
                        ("size", number),
                        ("modificationTime", number),
                        ("dataChange", flag),
                        ("stats", text),
                        ("tags", map_),
                    ]
                ),
            ),
            (
                "remove",
                pa.struct(
                    [
                        ("path", text),
                        ("deletionTimestamp", number),
                        ("dataChange", flag),
                        ("extendedFileMetadata", flag),
                        ("partitionValues", map_),
                        ("size", number),
                    ]
                ),
            ),
        ]
    )
