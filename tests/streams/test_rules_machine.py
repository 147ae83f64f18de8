"""State machine of streams with schemas, checked against a simple model of dicts and versions.

Valid and invalid appends, new versions, routing keys, forks before and after a new version,
deletion and reopening. After every step, each kind of read returns every message in the current
version, and messages are stored as received.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fourfold.errors import InvalidInput, Refused
from fourfold.kernel import Database
from fourfold.models.streams import MIGRATIONS, PROFILE, Append, Fork, StreamOptions, Streams
from fourfold.models.streams.validation import JSON
from support.properties import examples, repeats

NAMES = st.sampled_from(["a", "a", "a", "b", "c/d"])
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


def schema(**properties):
    return {
        "type": "object",
        "properties": {"k": TEXT, **properties},
        "required": sorted(properties),
        "additionalProperties": False,
    }


# Each version: its schema, the lens to it, its effect on a dict, and a message.
VERSIONS = [
    (schema(n=NUMBER), None, None, lambda n: {"n": n}),
    (
        schema(count=NUMBER),
        [{"op": "rename", "from": "n", "to": "count"}],
        lambda old: {**{k: v for k, v in old.items() if k != "n"}, "count": old["n"]},
        lambda n: {"count": n},
    ),
    (
        schema(count=NUMBER, unit=TEXT),
        [{"op": "add", "name": "unit", "value": "kg"}],
        lambda old: {**old, "unit": "kg"},
        lambda n: {"count": n, "unit": "lb"},
    ),
    (
        schema(count={"type": "array", "items": NUMBER}, unit=TEXT),
        [{"op": "wrap", "name": "count"}],
        lambda old: {**old, "count": [old["count"]]},
        lambda n: {"count": [n, n], "unit": "t"},
    ),
    (
        schema(count={"type": "array", "items": NUMBER}),
        [{"op": "remove", "name": "unit"}],
        lambda old: {k: v for k, v in old.items() if k != "unit"},
        lambda n: {"count": []},
    ),
]


class Modelled:
    def __init__(self, records=(), version=0, keyed=False, source=None):
        self.records = list(records)
        self.version = version
        """Current version; 0 without a schema."""
        self.begins = {}
        self.keyed = keyed
        self.source = source
        self.forks = 0

    def read(self):
        return [self.promoted(*each[:2]) for each in self.records]

    def promoted(self, message, stored):
        for version in range(stored, self.version):
            message = VERSIONS[version][2](message)
        return message


class RulesMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="fourfold-rules-"))
        self.model = {}
        self.open()
        self.create("a")
        self.next_version("a")

    def open(self):
        profile = PROFILE.with_(synchronous="OFF")
        path = self.root / "wal.sqlite"
        self.database = Database.open(path, profile=profile, migrations=MIGRATIONS)
        self.streams = Streams(self.database, clock=lambda: 1_000_000)

    def teardown(self):
        self.database.close()
        shutil.rmtree(self.root)

    def create(self, name):
        made = (
            self.streams.create_with_options(StreamOptions(name, JSON))
            if name not in self.model
            else None
        )
        if made is not None:
            assert made.created
            self.model[name] = Modelled()

    def next_version(self, name):
        found = self.model.get(name)
        if found is None or found.version == len(VERSIONS):
            return
        wanted, ops, _, _ = VERSIONS[found.version]
        change = {"schema": wanted} | ({} if ops is None or not found.version else {"lens": ops})
        if not found.version and found.records:
            with pytest.raises(Refused):
                self.streams.schemas.put(name, change)
            return
        registry = self.streams.schemas.put(name, change)
        found.version += 1
        found.begins[found.version] = len(found.records)
        assert registry.current_version == found.version
        # Repeating it changes nothing.
        assert self.streams.schemas.put(name, change) == registry

    created = rule(name=NAMES)(create)
    upgraded = rule(name=NAMES)(next_version)

    @rule(name=NAMES, keyed=st.booleans())
    def routing_key(self, name, keyed):
        found = self.model.get(name)
        if found is not None:
            wanted = {"jsonPointer": "/k"} if keyed else None
            self.streams.schemas.put(name, {"routingKey": wanted})
            found.keyed = keyed

    @rule(
        name=NAMES,
        given=st.lists(
            st.tuples(st.integers(-5, 5), st.sampled_from([None, "x", "y"])),
            min_size=1,
            max_size=3,
        ),
        wrong=st.sampled_from([False, False, False, True]),
    )
    def append(self, name, given, wrong):
        found = self.model.get(name)
        if found is None:
            return
        make = VERSIONS[max(found.version - 1, 0)][3]
        messages = [{**make(n), **({} if k is None else {"k": k})} for n, k in given]
        if wrong:
            messages[-1]["odd"] = 1
        request = Append([json.dumps(each).encode() for each in messages], JSON)
        if found.version and wrong:
            with pytest.raises(InvalidInput):
                self.streams.append(name, request)
            return
        done = self.streams.append(name, request)
        for each in messages:
            key = each.get("k") if found.keyed else None
            found.records.append((each, found.version, key))
        assert done.next_offset == len(found.records)

    @rule(name=NAMES, source=NAMES, part=st.floats(0, 1), body=st.booleans())
    def fork(self, name, source, part, body):
        found = self.model.get(source)
        if found is None or name in self.model:
            return
        at = round(part * len(found.records))
        version = max((v for v, begin in found.begins.items() if begin <= at), default=0)
        made = Modelled(found.records[:at], version, found.keyed, found)
        made.begins = {v: begin for v, begin in found.begins.items() if v <= version}
        first = {**VERSIONS[max(version - 1, 0)][3](7), "k": "z"}
        wanted = StreamOptions(name, JSON, fork=Fork(source, at))
        self.streams.create_with_options(wanted, json.dumps(first).encode() if body else b"")
        if body:
            made.records.append((first, version, "z" if made.keyed else None))
        found.forks += 1
        self.model[name] = made

    @rule(name=NAMES)
    def delete(self, name):
        found = self.model.get(name)
        if found is None or found.forks:
            return
        self.streams.delete(name)
        if found.source is not None:
            found.source.forks -= 1
        del self.model[name]

    @rule()
    def reopen(self):
        self.database.close()
        self.open()

    @rule(name=NAMES, start=st.integers(0, 6), limit=st.integers(1, 3))
    def read_from(self, name, start, limit):
        found = self.model.get(name)
        if found is None or start > len(found.records):
            return
        info, chunk = self.streams.read(name, start, records_max=limit)
        assert info.schema_version in {None, found.version} or not found.version
        expected = found.read()[start : start + limit]
        assert [json.loads(each.payload) for each in chunk.records] == expected

    @rule(name=NAMES, number=st.integers(-5, 5), key=st.sampled_from([None, "x"]))
    def read_where(self, name, number, key):
        """Read by a filter, which sees messages in the current version."""
        found = self.model.get(name)
        if found is None:
            return
        where = {"$or": [{"n": {"$gte": number}}, {"count": number}, {"unit": "kg"}]}
        expected = [
            message
            for message, (_, _, held) in zip(found.read(), found.records, strict=True)
            if key in {None, held}
            and (
                message.get("n", -9) >= number
                or message.get("count") == number
                or message.get("unit") == "kg"
            )
        ]
        values, at = [], "-1"
        for _ in range(len(found.records) + 1):
            chunk = self.streams.open(name).read(at, 2, where=where, key=key)
            values += [record.value for record in chunk]
            at = chunk.offset
            if chunk.up_to_date:
                break
        assert values == expected

    @invariant()
    def everything_reads_as_the_model_says(self):
        for name, found in self.model.items():
            info, page = self.streams.page(name)
            text, at = b"", 0
            while at < page.next_offset:
                piece, at = self.streams.read_joined(info, at, page.next_offset)
                text += b"," + piece if text else piece
            assert json.loads(b"[" + text + b"]") == found.read()
            newest = {}
            own = 0 if found.source is None else self.streams.info(name).fork_offset
            for offset, (_, _, held) in enumerate(found.records):
                if held is not None and offset >= own:
                    newest[held.encode()] = offset
            page = self.streams.open(name).keys()
            assert {row.key: row.offset.record for row in page} == newest
            for key in ("x", "y", "z"):
                chunk = self.streams.open(name).read(key=key)
                expected = [
                    found.promoted(message, version)
                    for message, version, held in found.records
                    if held == key
                ]
                assert [json.loads(each.payload) for each in chunk.records] == expected

    @invariant()
    def what_is_stored_is_what_came(self):
        with self.database.read() as snapshot:
            for name, found in self.model.items():
                rows = snapshot.all(
                    "SELECT offset, payload FROM wal WHERE stream = ?1 ORDER BY offset", (name,)
                )
                for offset, payload in rows:
                    assert json.loads(payload) == found.records[offset][0]

    @invariant()
    def verify(self):
        assert self.streams.verify() == []


RulesMachine.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=40)
TestRulesMachine = RulesMachine.TestCase


class LongLives(RulesMachine):
    """Run the state machine with more and longer examples."""


LongLives.TestCase.settings = settings(max_examples=repeats(300), stateful_step_count=50)
TestLongLives = pytest.mark.slow(pytest.mark.timeout(1800)(LongLives.TestCase))
