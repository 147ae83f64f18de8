"""What streams ask of their records is published with them, and restored."""

from __future__ import annotations

import json

import pytest
from node import read_manifest

from fourfold.archive import manifest
from fourfold.archive.restore_points import Place
from fourfold.errors import InvalidInput
from fourfold.models.streams.archive.throttle import NO_THROTTLE
from fourfold.models.streams.publication import ObjectsAt
from fourfold.retry import Retries

JSON = "application/json"


def schema(name):
    return {
        "type": "object",
        "properties": {name: {"type": "integer"}, "by": {"type": "string"}},
        "required": [name],
        "additionalProperties": False,
    }


def rename(old, new):
    return {"schema": schema(new), "lens": [{"op": "rename", "from": old, "to": new}]}


def append(node, name, **values):
    """So many messages that they are sealed and published."""
    messages = [
        {field: value, "by": "anna"} for field, (*each,) in values.items() for value in each
    ]
    node.streams.open(name).append(json.dumps(messages).encode())


@pytest.fixture
def published(node):
    """Version 1 in segments, version 2 in segments, and a part of version 2 that is only here."""
    node.streams.create("s", JSON)
    key = {"routingKey": {"jsonPointer": "/by"}}
    node.streams.schemas.put("s", {"schema": schema("a"), **key})
    append(node, "s", a=range(4))
    node.streams.schemas.put("s", rename("a", "b"))
    append(node, "s", b=range(4, 8))
    node.archive.publish_all()
    return node


def sizes(node):
    with node.database.read() as snapshot:
        return snapshot.all("SELECT octet_length(schema_json), uploaded_size_bytes FROM schemas")


def test_segments_are_read_in_the_newest_version(published):
    assert published.log("s") == []
    assert [json.loads(record) for record in published.read("s")] == [
        {"b": n, "by": "anna"} for n in range(8)
    ]
    info, page = published.streams.page("s")
    text, at = [], 0
    while at < page.next_offset:
        piece, at = published.streams.read_joined(info, at, page.next_offset)
        text += json.loads(b"[" + piece + b"]")
    assert text == [{"b": n, "by": "anna"} for n in range(8)]
    found = published.streams.open("s").read(key="anna").records
    assert [json.loads(row.payload)["b"] for row in found] == list(range(8))


def test_a_node_that_is_built_from_manifests_asks_the_same(published, make):
    assert sizes(published)[0][0] == sizes(published)[0][1] > 0
    other = make("other")
    other.bootstrap()
    assert other.streams.schemas.get("s") == published.streams.schemas.get("s")
    assert sizes(other) == sizes(published)
    assert [json.loads(record) for record in other.read("s")] == [
        {"b": n, "by": "anna"} for n in range(8)
    ]
    with pytest.raises(InvalidInput):
        append(other, "s", a=[1])
    append(other, "s", b=[8])
    assert other.streams.verify() == []
    other.archive.publish_all()
    assert other.archive.round().idle


def test_version_that_began_after_the_published_end_begins_there(published, make):
    """Otherwise what is appended there would be taken for messages of the version before."""
    append(published, "s", b=[8])
    several = schema("b")
    several["properties"]["b"] = {"type": "array", "items": {"type": "integer"}}
    wrap = [{"op": "wrap", "name": "b"}]
    published.streams.schemas.put("s", {"schema": several, "lens": wrap})
    published.archive._publish_one("s", NO_THROTTLE)
    assert read_manifest(published.objects, "s").uploaded_through == 7
    other = make("other")
    other.bootstrap()
    assert other.row("s")["next_offset"] == 8
    append(other, "s", b=[[100]])
    renamed = {**several, "properties": {"c": several["properties"]["b"], "by": {"type": "string"}}}
    renamed["required"] = ["c"]
    lens = [{"op": "rename", "from": "b", "to": "c"}]
    other.streams.schemas.put("s", {"schema": renamed, "lens": lens})
    assert [json.loads(record)["c"] for record in other.read("s")] == [
        [n] for n in (*range(8), 100)
    ]
    assert other.streams.verify() == []


def test_a_change_of_the_rules_alone_is_published(published):
    before = read_manifest(published.objects, "s")
    assert published.archive.round().idle
    published.streams.schemas.put("s", rename("b", "c"))
    published.archive.round()
    after = read_manifest(published.objects, "s")
    assert after.generation == before.generation + 1
    assert json.loads(after.schema_json)["currentVersion"] == 3
    published.streams.schemas.put("s", {"routingKey": None})
    published.archive.round()
    assert json.loads(read_manifest(published.objects, "s").schema_json)["routingKey"] is None
    assert published.archive.round().idle


def test_deleted_registry_is_not_published(node):
    node.streams.create("s", JSON)
    node.streams.schemas.put("s", {"routingKey": {"jsonPointer": "/by"}})
    append(node, "s", a=range(4))
    node.archive.publish_all()
    assert read_manifest(node.objects, "s").schema_json is not None
    node.streams.schemas.put("s", {"routingKey": None})
    node.archive.round()
    assert read_manifest(node.objects, "s").schema_json is None
    assert node.archive.round().idle


def test_change_during_an_upload_is_in_the_next_manifest(published):
    """Between the manifest that is written and what follows from it in the database."""
    publisher = published.archive._publisher
    real = publisher._replace

    def meanwhile(*asked):
        done = real(*asked)
        publisher._replace = real
        published.streams.schemas.put("s", rename("b", "c"))
        return done

    publisher._replace = meanwhile
    append(published, "s", b=range(8, 12))
    published.archive.publish_all()
    assert json.loads(read_manifest(published.objects, "s").schema_json)["currentVersion"] == 3


def test_profile_is_published_and_waiters_start_again(node, make):
    node.streams.create("s", JSON)
    node.streams.profiles.put("s", {"kind": "state-protocol", "touch": {"enabled": True}})
    change = {"type": "t", "key": "k", "value": 1, "headers": {"operation": "insert"}}
    node.streams.open("s").append(json.dumps([change] * 4).encode())
    node.archive.publish_all()
    other = make("other")
    other.bootstrap()
    assert other.streams.profiles.get("s") == node.streams.profiles.get("s")
    with pytest.raises(InvalidInput):
        other.streams.open("s").append(b"{}")
    with other.database.read() as snapshot:
        found = snapshot.all("SELECT stream, processed_through FROM stream_touch_state")
    assert found == [("s", 3)]
    assert other.streams.verify() == []


def test_an_earlier_point_has_the_registry_of_then(published):
    published.streams.schemas.put("s", rename("b", "c"))
    append(published, "s", c=range(8, 12))
    published.archive.publish_all()
    key = manifest.manifest_key("s")
    incarnation = published.row("s")["incarnation"]
    for through, version in ((3, 2), (7, 3), (11, 3)):
        seen = ObjectsAt(
            published.objects,
            {"s": Place(1, through, incarnation)},
            take_over=False,
            retries=Retries(pause_s=0.0),
        )
        shown = json.loads(manifest.decode(seen.get(key).data, key).schema_json)
        assert shown["currentVersion"] == version
