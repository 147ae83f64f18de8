"""What streams ask of their records: schemas, profiles and routing keys, through the engine."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial

import pytest
from opened_streams import JSON, Opened

from fourfold import limits
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


def test_messages_are_held_against_the_schema_and_kept_as_they_came(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    orders = streams.open("orders")
    orders.append(b'{ "id" : 1.0 }')
    with pytest.raises(InvalidInput, match=r"message 2: violates version 1.*id"):
        orders.append(b'[{"id": 2}, {"id": "two"}]')
    assert texts(streams) == ['{ "id" : 1.0 }']
    assert streams.info("orders").schema_version == 1


def test_a_refused_append_concerns_nobody_else_in_its_commit(streams):
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


def test_a_refused_append_moves_nothing_on(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    orders = streams.open("orders")
    with pytest.raises(InvalidInput):
        orders.append(b"{}", producer=Producer("p", 0, 0), seq="5", close=True)
    done = orders.append(b'{"id": 1}', producer=Producer("p", 0, 0), seq="1")
    assert not done.duplicate
    assert not done.closed


def test_a_repeated_request_is_known_under_a_newer_schema(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    orders = streams.open("orders")
    orders.append(b'{"id": 1}', producer=Producer("p", 0, 0))
    streams.schemas.put("orders", {"schema": RENAMED, "lens": RENAME})
    assert orders.append(b'{"id": 1}', producer=Producer("p", 0, 0)).duplicate
    assert texts(streams) == ['{"number":1}']


def test_the_first_schema_comes_before_the_first_record(streams):
    streams.open("orders").append(b'{"id": 1}')
    with pytest.raises(Refused, match="'orders': cannot set the first schema"):
        streams.schemas.put("orders", {"schema": ORDER})
    assert streams.schemas.get("orders").current_version == 0
    assert rows(streams, "schemas") == []


def test_a_stream_that_gave_everything_up_is_empty(opened):
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
    ("change", "says"),
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
        ({"schema": {"enum": ["x" * limits.STREAM_REGISTRY_BYTES]}}, "at most"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(streams, change, says):
    with pytest.raises(InvalidInput, match=says):
        streams.schemas.put("orders", change)
    assert rows(streams, "schemas") == []
    assert streams.info("orders").schema_version is None


def test_a_version_that_is_not_proven_is_refused(streams):
    streams.schemas.put("orders", {"schema": ORDER})
    with pytest.raises(InvalidInput, match="version 2 requires a lens"):
        streams.schemas.put("orders", {"schema": RENAMED})
    with pytest.raises(InvalidInput, match="number"):
        streams.schemas.put("orders", {"schema": RENAMED, "lens": {"ops": []}})
    assert streams.schemas.get("orders").current_version == 1


def test_only_json_has_a_schema(streams):
    streams.create("bytes", "application/octet-stream")
    with pytest.raises(InvalidInput, match="requires JSON"):
        streams.schemas.put("bytes", {"schema": ORDER})
    with pytest.raises(NotFound):
        streams.schemas.put("none", {"schema": ORDER})


def test_of_two_changes_at_once_one_is_told_to_look_again(streams):
    plan = streams.schemas._plan("orders", {"schema": ORDER})
    streams.schemas.put("orders", {"schema": RENAMED})
    with pytest.raises(PreconditionFailed):
        streams.database.transact(streams.schemas._putting(plan))
    assert streams.schemas.get("orders").schema == RENAMED


def test_without_the_library_nothing_is_taken_unchecked(streams, monkeypatch):
    streams.schemas.put("orders", {"schema": ORDER})
    streams.open("orders").append(b'{"id": 1}')
    streams.schemas.put("orders", {"schema": RENAMED, "lens": RENAME})
    validation._compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(MissingDependency, match="schema"):
        streams.open("orders").append(b'{"number": 2}')
    # What is there can be read all the same.
    assert texts(streams) == ['{"number":1}']


def test_a_state_is_folded_from_messages_of_the_newest_version(streams):
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
def test_a_state_leaves_alone_what_is_no_change(streams, operation):
    message = f'{{"type": "t", "key": "k", "value": 1, "headers": {{"operation": {operation}}}}}'
    streams.open("orders").append(message.encode())
    assert streams.state("orders") == {}


def test_a_state_that_cannot_be_read_says_which_record_it_is(streams):
    streams.open("orders").append(b"[1, 1e400]")
    with pytest.raises(CorruptData, match="'orders': cannot decode record 1"):
        streams.state("orders")


# Routing keys


def test_routing_keys_are_taken_from_the_messages(streams):
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


def test_a_stream_that_asks_for_nothing_any_more_has_no_registry(streams):
    streams.schemas.put("orders", {"routingKey": None, "search": None})
    assert rows(streams, "schemas") == []
    streams.schemas.put("orders", {"routingKey": {"jsonPointer": "/by"}})
    assert streams.info("orders").schema_version == 0
    streams.schemas.put("orders", {"routingKey": None})
    assert rows(streams, "schemas") == []
    assert streams.info("orders").schema_version is None
    assert not streams.info("orders").has_rules


def test_a_key_that_is_too_long_is_refused(streams):
    streams.schemas.put("orders", {"routingKey": {"jsonPointer": "/by"}})
    with pytest.raises(InvalidInput, match="routing key"):
        streams.open("orders").append(json.dumps({"by": "x" * 100_000}).encode())
    assert texts(streams) == []


def test_fields_to_search_by_are_declared(streams):
    streams.schemas.put("orders", {"search": {"fields": ["by", "to.city"]}})
    with streams.database.read() as snapshot:
        found = snapshot.all("SELECT index_name FROM secondary_index_state ORDER BY index_name")
    assert found == [("by",), ("to.city",)]


# Profiles


def test_events_are_redacted_before_anybody_sees_them(streams):
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


def test_events_begin_with_an_empty_stream(streams):
    streams.open("orders").append(b'{"password": "hunter2"}')
    with pytest.raises(Refused, match="cannot set profile 'evlog'"):
        streams.profiles.put("orders", EVENTS)
    assert streams.profiles.get("orders").kind == "generic"


def test_redaction_can_be_widened_on_a_stream_that_has_records(streams):
    streams.profiles.put("orders", EVENTS)
    streams.open("orders").append(b'{"pin": 1}')
    streams.profiles.put("orders", {**EVENTS, "redact": ["pin"]})
    streams.open("orders").append(b'{"pin": 2}')
    assert [json.loads(each)["pin"] for each in texts(streams)] == [1, "[REDACTED]"]


def test_a_state_stream_takes_changes_only(streams):
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


def test_profiles_need_json(streams):
    streams.create("bytes", "text/plain")
    for profile in (EVENTS, STATE):
        with pytest.raises(InvalidInput, match="requires JSON"):
            streams.profiles.put("bytes", profile)


# Forks, and ends


def test_a_fork_has_the_rules_of_its_source_at_that_offset(streams):
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
    # A fork goes its own way: nothing of this shows in its source.
    streams.schemas.put("early", {"routingKey": None})
    assert streams.schemas.get("orders").routing_key is not None
    assert streams.verify() == []


def test_a_fork_that_begins_with_records_has_their_keys(streams):
    streams.schemas.put("orders", {"routingKey": {"jsonPointer": "/by"}})
    streams.open("orders").append(b'{"by": "a"}')
    wanted = StreamOptions("fork", JSON, fork=Fork("orders"))
    streams.create_with_options(wanted, b'[{"by": "b"}, {"id": 1}]')
    assert texts(streams, "fork", key="b") == ['{"by": "b"}']
    assert texts(streams, "fork", key="a") == ['{"by": "a"}']
    assert len(texts(streams, "fork")) == 3
    assert streams.verify() == []


def test_the_rules_go_with_their_stream(streams):
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
def test_rules_that_do_not_fit_are_named(streams, damage):
    streams.schemas.put("orders", {"schema": ORDER})
    streams.profiles.put("orders", STATE)
    assert streams.verify() == []
    with streams.database.write() as txn:
        txn.execute(damage)
    found = " ".join(streams.verify())
    assert "'orders'" in found or "'gone'" in found


def test_stored_schema_that_is_too_large_is_refused_at_append_and_not_run(opened, streams):
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
