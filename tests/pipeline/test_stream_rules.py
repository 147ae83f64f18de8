"""Streams with rules in Spark: messages, states and registries equal the engine, and the sink
applies the rules.
"""

from __future__ import annotations

import json

import pytest
from random_streams import SMALL, collected, origins, seen

import fourfold
from fourfold.errors import InvalidInput
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import plan, sql, views
from fourfold.pipeline.options import read_options
from fourfold.pipeline.scan import read_batches
from fourfold.pipeline.spark import unwrap_error
from fourfold.pipeline.streams.ingest import BatchReport, ingest
from fourfold.pipeline.streams.published import published
from fourfold.pipeline.streams.sink import StreamColumns, stage
from fourfold.pipeline.streams.stream_source import stream_reader

pytestmark = pytest.mark.spark

JSON = "application/json"
OPERATIONS = ("insert", "update", "upsert", "delete")


def shape(required=(), **properties):
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


ORDER = shape(["id"], id="integer", by="string")
NUMBERED = shape(["number"], number="integer", by="string")
PRICED = shape(["number", "total"], number="integer", by="string", total="integer")
RENAME = {"ops": [{"op": "rename", "from": "id", "to": "number"}]}
ADD = {"ops": [{"op": "add", "name": "total", "value": 0}]}
CHANGE = shape(["headers"], type="string", key="string", value="integer", headers="object")
SAID = shape(["headers"], type="string", key="string", value="string", headers="object")
TO_TEXT = {"ops": [{"op": "convert", "name": "value", "to": "string"}]}


def messages(field, numbers, **more):
    return json.dumps([{field: n, "by": f"ü{n}", **more} for n in numbers]).encode()


def changes(values, numbers):
    return json.dumps(
        [
            {
                "type": "ab"[n % 2],
                "key": f"k{n % 5}",
                "headers": {"operation": OPERATIONS[n % 4]},
                "value": values(n),
            }
            for n in numbers
        ]
    ).encode()


def begun(store):
    """Create streams of every kind, with messages of their first version, and forks of them."""
    streams = store.streams
    orders = streams.create("orders", JSON)
    orders.set_schema(ORDER, routing_key="/by")
    orders.append(messages("id", range(7)))
    state = streams.create("state", JSON)
    state.set_schema(CHANGE)
    state.set_profile("state-protocol", touch=True)
    state.append(changes(int, range(13)))
    streams.create("plain", JSON, body=b'[{"id": 1}, {"id": 2}]')
    streams.create("notes", "text/plain", body=b"one")
    streams.create("any", JSON).set_schema(True)
    streams.create("keyed", JSON).set_schema(routing_key="/by")
    streams.create("events", JSON).set_profile("evlog")
    streams.open("any").append(b"[1, null]")


def changed(store):
    """Change some to a second version, and fork on both sides of it."""
    streams = store.streams
    orders, state = streams.open("orders"), streams.open("state")
    early = orders.fork("fork/early", at=f"{0:016d}_{5:016d}")
    early.append(messages("id", range(100, 103)))
    orders.append(messages("id", range(7, 9)))
    orders.set_schema(NUMBERED, lens=RENAME)
    orders.append(messages("number", range(9, 13)))
    orders.fork("fork/late").append(messages("number", range(200, 202)))
    state.append(changes(int, range(13, 17)))
    state.set_schema(SAID, lens=TO_TEXT)
    state.append(changes(str, range(17, 22)))
    state.fork("fork/state").append(changes(str, range(30, 34)))


def ended(store):
    """Append messages of older and current versions that stay in the log."""
    streams = store.streams
    streams.open("orders").append(messages("number", range(13, 15)))
    streams.open("orders").set_schema(PRICED, lens=ADD)
    streams.open("orders").append(messages("number", range(15, 17), total=5))
    streams.open("fork/early").set_schema(NUMBERED, lens=RENAME)
    streams.open("fork/early").set_schema(PRICED, lens=ADD)
    streams.open("fork/early").append(messages("number", range(103, 104), total=9))
    streams.open("state").append(changes(str, range(22, 25)))
    streams.open("plain").append(b'{"id": 3}')


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A mostly published store, its reads at that time, and one with the same streams that never
    published.
    """
    folder = tmp_path_factory.mktemp("rules")
    with fourfold.open(folder / "archived", settings=SMALL) as store:
        begun(store)
        store.archive.publish_all()
        changed(store)
        store.archive.publish_all()
    then = seen(folder / "archived")
    with fourfold.open(folder / "archived") as store:
        ended(store)
    with fourfold.open(folder / "whole") as store:
        for step in (begun, changed, ended):
            step(store)
    return folder / "archived", then, folder / "whole"


@pytest.fixture
def by_source(spark):
    """Return a function that reads published messages with Fourfold's own reader."""

    def reader(store, **options):
        given = {"objects": str(store / "objects"), "table": "messages", **options}
        return spark.read.format("fourfold").options(**given).load()

    return reader


def own(root, found):
    """Return each record once, under the stream that it was appended to."""
    start = origins(root)
    return nonempty(
        {name: [row for row in rows if row[0] >= start[name]] for name, rows in found.items()}
    )


def nonempty(found):
    return {name: rows for name, rows in found.items() if rows}


def stored(root, name):
    """Return the stored payloads of a stream by offset."""
    with fourfold.open(root) as store, store.streams.database.read() as snapshot:
        rows = snapshot.all(
            "SELECT w.offset, w.payload FROM wal_log AS w JOIN streams AS s USING (sid) "
            "WHERE s.stream = ?",
            (name,),
        )
    return {offset: bytes(payload) for offset, payload in rows}


def states_of(root):
    with fourfold.open(root, mode="r") as store:
        infos = [info for info in store.streams.list() if info.is_json]
        return nonempty({info.name: store.streams.state(info.name) for info in infos})


def states_in(rows):
    result = {}
    for stream, kind, key, value in rows:
        result.setdefault(stream, {})[kind, key] = json.loads(value)
    return result


def works(root, table, **options):
    """Return the rows of a table, read without Spark."""
    given = read_options({"root": str(root), "model": "streams", "table": table, **options})
    columns = given.table.select_columns(given.columns)
    planned = plan.plan(cuts.read_cut(given).bounds, given, columns)
    return [row for work in planned for batch in read_batches(work) for row in batch.to_pylist()]


def test_messages_of_log_equal_stream_reads(read, stores):
    _, _, whole = stores
    frame = read(whole, "messages", model="streams", partition_bytes=20_000)
    assert collected(frame) == own(whole, seen(whole))
    for row in frame.collect():
        text = bytes(row.payload).decode()
        assert (row.text, row.size) == (text, len(row.payload))
    # Stored payloads are unchanged, and a condition on the size applies to the promoted ones.
    old = stored(whole, "orders")[0]
    assert json.loads(old) == {"id": 0, "by": "ü0"}
    first = frame.where("stream = 'orders' and offset = 0")
    [shown] = first.collect()
    assert json.loads(shown.text) == {"number": 0, "by": "ü0", "total": 0}
    assert first.where(f"size = {shown.size}").count() == 1
    assert first.where(f"size = {len(old)}").count() == 0
    [row] = works(whole, "records", stream="orders", columns="offset,payload")[:1]
    assert row == {"offset": 0, "payload": old}


def test_messages_select_columns_and_streams(stores):
    _, _, whole = stores
    expected = own(whole, seen(whole))["fork/early"]
    rows = works(whole, "messages", stream="fork/e*", columns="size,root,offset")
    assert rows == [
        {"size": len(payload), "root": str(whole), "offset": offset}
        for offset, _, payload in expected
    ]


def test_streamed_messages_have_current_version(tmp_path):
    from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: PLC0415 - optional
    from pyspark.sql.types import StructType  # noqa: PLC0415

    columns = StructType().add("stream", "string").add("offset", "long").add("text", "string")
    options = {"root": str(tmp_path), "model": "streams", "table": "messages"}
    actual = {}
    with fourfold.open(tmp_path) as store:
        begun(store)
        reader = stream_reader(options, columns)
        first = reader.latestOffset({}, ReadAllAvailable())
        changed(store)
        second = reader.latestOffset(first, ReadAllAvailable())
        for start, end in (({}, first), (first, second)):
            for part in reader.partitions(start, end):
                for batch in reader.read(part):
                    for row in batch.to_pylist():
                        actual.setdefault(row["stream"], {})[row["offset"]] = row["text"]
    expected = {
        name: {offset: payload.decode() for offset, _, payload in rows}
        for name, rows in own(tmp_path, seen(tmp_path)).items()
    }
    assert actual == expected
    assert json.loads(actual["orders"][0])["number"] == 0


def test_messages_of_a_store_equal_stream_reads(read, stores):
    root, _, _ = stores
    expected = nonempty(seen(root))
    assert {frozenset(json.loads(row[2])) for row in expected["orders"]} == {
        frozenset(PRICED["required"]) | {"by"}
    }
    messages = read(root, "messages", model="streams")
    assert collected(messages) == own(root, expected)
    for row in messages.collect():
        assert (row.text, row.size) == (bytes(row.payload).decode(), len(row.payload))


def test_messages_without_node_have_published_version(spark, by_source, stores):
    root, then, _ = stores
    expected = own(root, then)
    assert collected(published(spark, root / "objects", table="messages")) == expected
    assert collected(by_source(root)) == expected
    narrow = by_source(root, stream="orders", columns="size").collect()
    assert sorted(row.size for row in narrow) == sorted(len(row[2]) for row in expected["orders"])


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_only_outdated_objects_are_promoted_in_python(spark, stores):
    root, _, _ = stores
    objects = root / "objects"
    assert "Python" not in plan_of(published(spark, objects))
    assert "Python" not in plan_of(published(spark, objects, streams="plain", table="messages"))
    orders = published(spark, objects, streams="orders", table="messages")
    assert plan_of(orders).count("EvalPython") == 1
    assert plan_of(orders).count("FileScan parquet") == 2
    # The condition skips files, and columns that are not selected are not promoted.
    assert "Python" not in plan_of(orders.where("offset > 3").select("stream", "offset"))


def test_state_equals_engine_for_log_and_objects(spark, read, stores):
    root, _, whole = stores
    expected = states_of(root)
    assert set(expected) == {"state", "fork/state"}
    assert all(isinstance(value, str) for value in expected["state"].values())
    assert states_in(read(root, "state", model="streams").collect()) == expected
    assert states_of(whole) == expected
    assert states_in(read(whole, "state", model="streams").collect()) == expected
    assert states_in(tuple(row.values()) for row in works(whole, "state", stream="state")) == {
        "state": expected["state"]
    }


def test_schemas_and_streams_tables_show_registries(read, stores):
    root, _, _ = stores
    rows = {row.stream: row for row in read(root, "streams", model="streams").collect()}
    versions = read(root, "schemas", model="streams").collect()
    with fourfold.open(root, mode="r") as store:
        infos = store.streams.list()
        registries = {info.name: store.streams.schemas.get(info.name) for info in infos}
    assert {name: (row.profile, row.schema_version) for name, row in rows.items()} == {
        info.name: (info.profile, info.schema_version) for info in infos
    }
    assert rows["state"].profile == "state-protocol"
    actual = {
        (row.stream, row.version): (
            row.from_offset,
            json.loads(row.schema),
            row.lens and json.loads(row.lens),
            row.current,
        )
        for row in versions
    }
    assert len(actual) == len(versions)
    assert actual == {
        (name, int(version)): (
            registry.begin_of(int(version)),
            schema,
            registry.lenses.get(str(int(version) - 1)),
            int(version) == registry.current_version,
        )
        for name, registry in registries.items()
        for version, schema in registry.schemas.items()
    }
    # In Python, True equals 1; in JSON it does not.
    assert [row.schema for row in versions if row.stream == "any"] == ["true"]
    only = read(root, "schemas", model="streams", stream="fork/*").where("version = 3")
    assert [row.stream for row in only.collect()] == ["fork/early"]


def test_messages_and_state_are_views_in_sql(spark, stores):
    root, then, _ = stores
    query = "select sum(size) as size, (select count(*) from state) as keys from messages"
    frame, made = sql(spark, query, root, model="streams")
    assert set(made.names) == {"messages", "state"}
    [row] = frame.collect()
    shown = own(root, seen(root))
    assert row.size == sum(len(each[2]) for rows in shown.values() for each in rows)
    assert row["keys"] == sum(map(len, states_of(root).values()))
    made = views(spark, objects=root / "objects", prefix="alone_")
    assert set(made.names) == {"alone_records", "alone_messages", "alone_state"}
    assert spark.table("alone_messages").count() == sum(map(len, own(root, then).values()))


# The sink


@pytest.fixture
def ruled(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.streams.create("a", JSON)
        store.streams.create("orders", JSON).set_schema(ORDER)
        store.streams.create("state", JSON).set_profile("state-protocol")
    return tmp_path / "store"


def payloads(root):
    with fourfold.open(root, mode="r") as store:
        names = [info.name for info in store.streams.list()]
        return {
            name: [row.payload for row in store.streams.open(name).read().records] for name in names
        }


def staged(folder, rows):
    import pyarrow as pa  # noqa: PLC0415 - the tests of the library alone have none

    batch = pa.RecordBatch.from_pylist([{"stream": name, "payload": text} for name, text in rows])
    return [stage(iter([batch]), StreamColumns(), folder / "staged")]


GOOD = [("a", b"1"), ("orders", b'{"id": 1}'), ("orders", b'{"id": 2}')]
CHANGED = ("state", changes(int, [0])[1:-1])


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (("orders", b'{"id": "three"}'), r"stream 'orders': message 3: .*version 1.*id"),
        (("state", b'{"type": "t"}'), r"stream 'state': message 1: .*headers"),
    ],
)
def test_refused_batch_writes_nothing_and_can_be_retried(ruled, tmp_path, bad, says):
    send = {"shape": StreamColumns(), "producer": "query:q", "batch": 4}
    before = payloads(ruled)
    with pytest.raises(InvalidInput, match=says):
        ingest(ruled, staged(tmp_path, [*GOOD, bad]), **send)
    assert payloads(ruled) == before
    mended = staged(tmp_path, [*GOOD, CHANGED])
    assert ingest(ruled, mended, **send) == BatchReport(4, 3, 0)
    assert ingest(ruled, mended, **send) == BatchReport(0, 3, 3)
    expected = {"a": [b"1"], "orders": [b'{"id": 1}', b'{"id": 2}'], "state": [CHANGED[1]]}
    assert payloads(ruled) == expected


def test_accepted_batch_is_duplicate_under_newer_schema(ruled, tmp_path):
    rows, send = staged(tmp_path, GOOD), {"shape": StreamColumns(), "producer": "query:q"}
    ingest(ruled, rows, batch=0, **send)
    with fourfold.open(ruled) as store:
        store.streams.open("orders").set_schema(NUMBERED, lens=RENAME)
    assert ingest(ruled, rows, batch=0, **send) == BatchReport(0, 2, 2)
    with pytest.raises(InvalidInput, match="version 2"):
        ingest(ruled, rows, batch=1, **send)
    assert payloads(ruled)["orders"] == [b'{"number":1}', b'{"number":2}']


def test_refused_write_can_be_corrected_and_repeated(spark, ruled):
    def write(condition):
        rows = spark.range(0, 20, 1, 4).selectExpr(
            "if(id % 2 = 0, 'a', 'orders') as stream",
            f"if({condition}, '{{\"id\": null}}', to_json(struct(id))) as payload",
            "id",
        )
        options = {"root": str(ruled), "model": "streams", "job": "j", "order": "id"}
        rows.write.format("fourfold").mode("append").options(**options).save()

    with pytest.raises(Exception) as refused:
        write("id = 7")
    error = unwrap_error(refused.value)
    assert isinstance(error, InvalidInput)
    assert "stream 'orders': message 4: violates version 1" in error.message
    assert not any(payloads(ruled).values())
    for _ in range(2):
        write("false")
    numbers = {
        name: [json.loads(each)["id"] for each in rows] for name, rows in payloads(ruled).items()
    }
    assert numbers == {"a": list(range(0, 20, 2)), "orders": list(range(1, 20, 2)), "state": []}
