"""Rules of streams: schemas, profiles and routing keys, applied by appends and reads."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial

import pytest
from opened_streams import JSON, Opened

from fourfold.errors import (
    CorruptData,
    InvalidInput,
    MissingDependency,
    NotFound,
    PreconditionFailed,
    Refused,
)
from fourfold.models.streams import Append, Fork, Producer, StreamOptions
from fourfold.models.streams.schemas import validation
from fourfold.models.streams.schemas.registry import STREAM_REGISTRY_BYTES

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "by": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}
RENAMED = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "by": {"type": "string"}},
    "required": ["number"],
    "additionalProperties": False,
}
RENAME = {"ops": [{"op": "rename", "from": "id", "to": "number"}]}
STATE = {"kind": "state-protocol", "touch": {"enabled": True}}
EVENTS = {"kind": "evlog"}


@pytest.fixture
def opened(tmp_path):
    found = Opened(tmp_path / "wal.sqlite")
    yield found
    found.database.close()


@pytest.fixture
def streams(opened):
    opened.streams.create("orders", JSON)
    return opened.streams


def texts(streams, name="orders", **asked):
    return [each.payload.decode() for each in streams.open(name).read(**asked).records]


def rows(streams, table):
    with streams.database.read() as snapshot:
        return snapshot.all(f"SELECT * FROM {table}")


# Schemas


def test_messages_are_validated_and_stored_as_received(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    orders = streams.open("orders")
    orders.append(b'{ "id" : 1.0 }')
    with pytest.raises(InvalidInput, match=r"message 2: violates version 1.*id"):
        orders.append(b'[{"id": 2}, {"id": "two"}]')
    assert texts(streams) == ['{ "id" : 1.0 }']
    assert streams.info("orders").schema_version == 1


def test_invalid_message_does_not_affect_others_in_commit(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    streams.create("free", JSON)
    asked = [
        ("orders", Append([b'{"id": 1}'], JSON)),
        ("orders", Append([b'{"id": 2}', b"{}"], JSON)),
        ("free", Append([b"{}"], JSON)),
        ("orders", Append([b'{"id": 3}'], JSON)),
    ]
    done = streams.database.transact(lambda txn: streams._append_all(txn, asked))
    assert [isinstance(each, InvalidInput) for each in done] == [False, True, False, False]
    assert texts(streams) == ['{"id": 1}', '{"id": 3}']
    assert texts(streams, "free") == ["{}"]


def test_rejected_append_changes_nothing(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    orders = streams.open("orders")
    with pytest.raises(InvalidInput):
        orders.append(b"{}", producer=Producer("p", 0, 0), seq="5", close=True)
    done = orders.append(b'{"id": 1}', producer=Producer("p", 0, 0), seq="1")
    assert not done.duplicate
    assert not done.closed


def test_duplicate_is_recognized_under_newer_schema(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    orders = streams.open("orders")
    orders.append(b'{"id": 1}', producer=Producer("p", 0, 0))
    streams.schemas.put("orders", {"schema": RENAMED, "lens": RENAME})
    assert orders.append(b'{"id": 1}', producer=Producer("p", 0, 0)).duplicate
    assert texts(streams) == ['{"number":1}']


def test_first_schema_requires_empty_stream(streams):
    streams.open("orders").append(b'{"id": 1}')
    with pytest.raises(Refused, match="'orders': cannot set the first schema"):
        streams.schemas.put("orders", {"schema": ORDER})
    assert streams.schemas.get("orders").current_version == 0
    assert rows(streams, "schemas") == []


def test_fully_trimmed_stream_accepts_first_schema(opened):
    streams = opened.streams
    kept = streams.create("kept", JSON, retention_seconds=1)
    kept.append(b"1")
    opened.clock.ms += 10_000
    streams.sweep()
    streams.schemas.put("kept", {"schema": ORDER})
    kept.append(b'{"id": 1}')
    streams.schemas.put("kept", {"schema": RENAMED, "lens": RENAME})
    chunk = kept.read(streams.schemas.get("kept").boundaries[0].offset)
    assert [each.payload for each in chunk.records] == [b'{"number":1}']


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "no change of the registry"),
        ({"scheme": ORDER}, "scheme"),
        ({"schema": {"type": "objekt"}}, "/type"),
        ({"schema": {"$ref": "http://example.org/other.json"}}, "example.org"),
        ({"schema": ORDER, "lens": RENAME}, "first version"),
        ({"lens": RENAME}, "requires the schema"),
        ({"routingKey": {"jsonPointer": "by"}}, "by"),
        ({"routingKey": {"jsonPointer": "/a~2"}}, "~2"),
        ({"search": {"fields": [""]}}, "field"),
        ({"schema": {"enum": ["x" * STREAM_REGISTRY_BYTES]}}, "at most"),
    ],
)
def test_invalid_registry_change_writes_nothing(streams, change, reason):
    with pytest.raises(InvalidInput, match=reason):
        streams.schemas.put("orders", change)
    assert rows(streams, "schemas") == []
    assert streams.info("orders").schema_version is None


def test_unproven_version_is_rejected(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    with pytest.raises(InvalidInput, match="version 2 requires a lens"):
        streams.schemas.put("orders", {"schema": RENAMED})
    with pytest.raises(InvalidInput, match="number"):
        streams.schemas.put("orders", {"schema": RENAMED, "lens": {"ops": []}})
    assert streams.schemas.get("orders").current_version == 1


def test_schema_requires_json(streams):
    streams.create("bytes", "application/octet-stream")
    with pytest.raises(InvalidInput, match="requires JSON"):
        streams.schemas.put("bytes", {"schema": ORDER})
    with pytest.raises(NotFound):
        streams.schemas.put("none", {"schema": ORDER})


def test_concurrent_registry_change_raises_precondition_failed(streams):
    plan = streams.schemas._plan("orders", {"schema": ORDER})
    streams.schemas.put("orders", {"schema": RENAMED})
    with pytest.raises(PreconditionFailed):
        streams.database.transact(streams.schemas._putting(plan))
    assert streams.schemas.get("orders").schema == RENAMED


def test_missing_schema_library_rejects_appends(streams, monkeypatch):
    streams.schemas.put("orders", {"schema": ORDER})
    streams.open("orders").append(b'{"id": 1}')
    streams.schemas.put("orders", {"schema": RENAMED, "lens": RENAME})
    validation._compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(MissingDependency, match="schema"):
        streams.open("orders").append(b'{"number": 2}')
    # Stored records can still be read.
    assert texts(streams) == ['{"number":1}']


def test_state_is_folded_from_newest_version(streams):
    change = {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "key": {"type": "string"},
            "value": {"type": "integer"},
            "headers": {"type": "object"},
        },
        "required": ["type", "key", "headers"],
        "additionalProperties": False,
    }
    streams.schemas.put("orders", {"schema": change})
    upsert = {"type": "t", "key": "k", "value": 1, "headers": {"operation": "upsert"}}
    streams.open("orders").append(json.dumps(upsert).encode())
    text = {**change, "properties": {**change["properties"], "value": {"type": "string"}}}
    lens = [{"op": "convert", "name": "value", "to": "string"}]
    streams.schemas.put("orders", {"schema": text, "lens": lens})
    assert streams.state("orders") == {("t", "k"): "1"}


@pytest.mark.parametrize("operation", ["[]", "{}", "1", "null"])
def test_state_ignores_other_messages(streams, operation):
    message = f'{{"type": "t", "key": "k", "value": 1, "headers": {{"operation": {operation}}}}}'
    streams.open("orders").append(message.encode())
    assert streams.state("orders") == {}


def test_undecodable_state_names_its_record(streams):
    streams.open("orders").append(b"[1, 1e400]")
    with pytest.raises(CorruptData, match="'orders': cannot decode record 1"):
        streams.state("orders")


# Routing keys


def test_routing_keys_come_from_messages(streams):
    streams.schemas.put("orders", {"routingKey": {"jsonPointer": "/by/0"}})
    orders = streams.open("orders")
    orders.append(b'[{"by": ["anna"]}, {"by": []}, {"by": [7]}, {"by": [null]}, 5, {"by": ["7"]}]')
    assert texts(streams, key="anna") == ['{"by": ["anna"]}']
    assert texts(streams, key="7") == ['{"by": [7]}', '{"by": ["7"]}']
    with pytest.raises(InvalidInput, match="takes keys from its messages"):
        orders.append(b"1", key="given")
    streams.schemas.put("orders", {"routingKey": {"jsonPointer": "/by", "required": True}})
    with pytest.raises(InvalidInput, match="message 2: no text at '/by'"):
        orders.append(b'[{"by": "eve"}, {"by": ["anna"]}]')
    streams.schemas.put("orders", {"routingKey": None})
    orders.append(b'{"by": "anna"}', key="given")
    assert texts(streams, key="given") == ['{"by": "anna"}']


def test_stream_without_rules_has_no_registry(streams):
    streams.schemas.put("orders", {"routingKey": None, "search": None})
    assert rows(streams, "schemas") == []
    streams.schemas.put("orders", {"routingKey": {"jsonPointer": "/by"}})
    assert streams.info("orders").schema_version == 0
    streams.schemas.put("orders", {"routingKey": None})
    assert rows(streams, "schemas") == []
    assert streams.info("orders").schema_version is None
    assert not streams.info("orders").has_rules


def test_too_long_routing_key_is_rejected(streams):
    streams.schemas.put("orders", {"routingKey": {"jsonPointer": "/by"}})
    with pytest.raises(InvalidInput, match="routing key"):
        streams.open("orders").append(json.dumps({"by": "x" * 100_000}).encode())
    assert texts(streams) == []


def test_search_fields_are_declared(streams):
    streams.schemas.put("orders", {"search": {"fields": ["by", "to.city"]}})
    with streams.database.read() as snapshot:
        found = snapshot.all("SELECT index_name FROM secondary_index_state ORDER BY index_name")
    assert found == [("by",), ("to.city",)]


# Profiles


def test_events_are_redacted_before_they_are_stored(streams):
    streams.profiles.put("orders", EVENTS)
    message = b'{"password": "hunter2", "requestId": "r1"}'

    async def heard():
        with streams.notifier.listen("orders") as listener:
            await streams.append_async("orders", Append([message], JSON))
            await listener.wait(60)
            return repr(listener.drain())

    assert "hunter2" not in asyncio.run(heard())
    assert "hunter2" not in "".join(texts(streams))
    assert len(texts(streams, key="r1")) == 1
    assert rows(streams, "stream_profiles")[0][0] == "orders"


def test_evlog_profile_requires_empty_stream(streams):
    streams.open("orders").append(b'{"password": "hunter2"}')
    with pytest.raises(Refused, match="cannot set profile 'evlog'"):
        streams.profiles.put("orders", EVENTS)
    assert streams.profiles.get("orders").kind == "generic"


def test_redaction_can_be_extended_after_first_append(streams):
    streams.profiles.put("orders", EVENTS)
    streams.open("orders").append(b'{"pin": 1}')
    streams.profiles.put("orders", {**EVENTS, "redact": ["pin"]})
    streams.open("orders").append(b'{"pin": 2}')
    assert [json.loads(each)["pin"] for each in texts(streams)] == [1, "[REDACTED]"]


def test_state_stream_accepts_changes_only(streams):
    streams.profiles.put("orders", STATE)
    with pytest.raises(InvalidInput, match="message 1"):
        streams.open("orders").append(b'{"id": 1}')
    assert streams.info("orders").profile == "state-protocol"
    assert len(rows(streams, "stream_touch_state")) == 1
    streams.profiles.put("orders", {"kind": "state-protocol"})
    assert rows(streams, "stream_touch_state") == []
    streams.profiles.put("orders", {"kind": "generic"})
    assert rows(streams, "stream_profiles") == []
    streams.open("orders").append(b'{"id": 1}')


def test_profiles_require_json(streams):
    streams.create("bytes", "text/plain")
    for profile in (EVENTS, STATE):
        with pytest.raises(InvalidInput, match="requires JSON"):
            streams.profiles.put("bytes", profile)


# Forks and deletion


def test_fork_inherits_rules_at_its_offset(streams):
    streams.schemas.put("orders", {"schema": ORDER, "routingKey": {"jsonPointer": "/by"}})
    streams.profiles.put("orders", {"kind": "generic"})
    orders = streams.open("orders")
    orders.append(b'[{"id": 1, "by": "a"}, {"id": 2}]')
    streams.schemas.put("orders", {"schema": RENAMED, "lens": RENAME})
    orders.append(b'{"number": 3}')
    early = orders.fork("early", "0000000000000000_0000000000000001")
    assert streams.schemas.get("early").current_version == 1
    early.append(b'{"id": 9, "by": "b"}')
    assert texts(streams, "early") == ['{"id": 1, "by": "a"}', '{"id": 9, "by": "b"}']
    assert texts(streams, "early", key="b") == ['{"id": 9, "by": "b"}']
    late = orders.fork("late")
    assert texts(streams, "late")[-1] == '{"number": 3}'
    with pytest.raises(InvalidInput):
        late.append(b'{"id": 4}')
    wanted = partial(StreamOptions, content_type=JSON, fork=Fork("orders"))
    with pytest.raises(InvalidInput):
        streams.create_with_options(wanted("bad"), b'{"id": 5}')
    with pytest.raises(NotFound):
        streams.info("bad")
    assert not [row for row in rows(streams, "schemas") if row[0] == "bad"]
    # Changes of a fork do not affect its source.
    streams.schemas.put("early", {"routingKey": None})
    assert streams.schemas.get("orders").routing_key is not None
    assert streams.verify() == []


def test_fork_with_first_records_stores_their_keys(streams):
    streams.schemas.put("orders", {"routingKey": {"jsonPointer": "/by"}})
    streams.open("orders").append(b'{"by": "a"}')
    wanted = StreamOptions("fork", JSON, fork=Fork("orders"))
    streams.create_with_options(wanted, b'[{"by": "b"}, {"id": 1}]')
    assert texts(streams, "fork", key="b") == ['{"by": "b"}']
    assert texts(streams, "fork", key="a") == ['{"by": "a"}']
    assert len(texts(streams, "fork")) == 3
    assert streams.verify() == []


def test_rules_are_deleted_with_their_stream(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    streams.profiles.put("orders", STATE)
    streams.delete("orders")
    for table in ("schemas", "stream_profiles", "stream_touch_state", "live_templates"):
        assert rows(streams, table) == []
    streams.create("orders", JSON).append(b"1")
    assert streams.verify() == []


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM schemas",
        "DELETE FROM stream_profiles",
        "UPDATE streams SET schema_version = 7",
        "UPDATE streams SET profile = 'generic'",
        "INSERT INTO schemas VALUES ('gone', '{}', 0, 0)",
        "INSERT INTO stream_touch_state VALUES ('gone', 0, 0)",
    ],
)
def test_verify_finds_inconsistent_rules(streams, damage):
    streams.schemas.put("orders", {"schema": ORDER})
    streams.profiles.put("orders", STATE)
    assert streams.verify() == []
    with streams.database.write() as txn:
        txn.execute(damage)
    found = " ".join(map(str, streams.verify()))
    assert "'orders'" in found or "'gone'" in found


def test_too_large_stored_schema_rejects_appends(opened, streams):
    streams.schemas.put("orders", {"schema": ORDER})
    defs = {f"a{at}": {"allOf": [{"$ref": f"#/$defs/a{at + 1}"}] * 2} for at in range(40)}
    large = {"$defs": {**defs, "a40": {"type": "object"}}, "$ref": "#/$defs/a0"}
    with streams.database.write() as txn:
        txn.execute(
            "UPDATE schemas SET schema_json = json_set(schema_json, '$.schemas.1', json(?1))",
            (json.dumps(large),),
        )
    with pytest.raises(InvalidInput, match="parts"):
        streams.append("orders", Append([b'{"id":1}'], JSON))
    assert streams.info("orders").next_offset == 0
