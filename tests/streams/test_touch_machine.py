"""Random lives of streams that are waited at, against a dumb model that looks through all records
for every wait.

Two streams that take the one journal from each other, and so few keys, values and templates, and
such tiny limits, that everything meets. Every cursor that was ever handed out is kept, and asked
again at either stream. Nobody misses a change, nobody is told of one without a reason that the
design knows, and an answer is stale only where nothing else can be said.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import opened_streams
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from opened_streams import JSON, Opened
from touched_streams import CONTROL, TOUCHED

from fourfold import limits
from fourfold.errors import NotFound
from fourfold.models.streams.touch import Entity, Row, Rows, Template

NAMES, ENTITIES, KEYS = ("s", "t"), ("user", "order"), ("1", "2")
VALUES = {"a": (None, 1, 2.5), "b": (None, "x")}
TTL_MS = limits.TOUCH_TTL_MS_MIN
TEMPLATES = (
    Template("user", {"a": "number"}, TTL_MS),
    Template("user", {"b": "string", "a": "number"}, 2 * TTL_MS),
    Template("order", {"a": "number"}, TTL_MS),
)
# How many records and bytes a look reads, and how many keys a journal has: so that all goes well,
# that much is forgotten and can be looked up again, that nearly nothing can be told.
ROOMY = (60, 20_000, 100)
LIMITS = [ROOMY, ROOMY, ROOMY, (60, 20_000, 12), (16, 5_000, 4), (6, 800, 8)]
LIMIT_NAMES = ("TOUCH_BACK_RECORDS", "TOUCH_BACK_BYTES", "TOUCH_MARKS_MAX")
RARE = ("version", "anew", "opened", "failed", "time", "time", "more time", 0, 1)
RETENTION_S = TTL_MS * 3 // 4 // 1_000


class Draft(NamedTuple):
    """A change that is still to be brought to the row that there is."""

    kind: str
    entity: str
    key: str
    row: dict
    tells_before: bool


DRAFTS = st.builds(
    Draft,
    st.sampled_from(["put"] * 6 + ["upsert", "delete", "delete", "control"]),
    st.sampled_from(ENTITIES),
    st.sampled_from(KEYS),
    st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in VALUES.items()}),
    st.sampled_from([True, True, False]),
)
BATCHES = st.lists(DRAFTS, min_size=1, max_size=4)
NUMBERS = st.integers(0, len(TEMPLATES) - 1)
WANTED = st.sets(NUMBERS, min_size=1)


class Asked(NamedTuple):
    """Some waits: for which keys, from which of all cursors, and in which order."""

    keys: str | int
    order: str
    at_most: int


ASKED = st.builds(
    Asked,
    st.sampled_from(["everything", "everything", "rows", 0, 1]),
    st.sampled_from(["newest", "newest", "oldest", "mixed"]),
    st.sampled_from([1_000, 1_000, 2]),
)


class Written(NamedTuple):
    """A message, and what became of its row; also where the message does not tell that."""

    payload: bytes
    before: dict | None
    after: dict | None

    @property
    def message(self):
        return json.loads(self.payload)


class Modelled:
    """A stream as the model sees it: all that was ever written, and the rows as they are."""

    def __init__(self, incarnation):
        self.incarnation = incarnation
        self.written = []
        self.rows = {}
        self.version_from = 0
        self.versions = 0
        self.used_ms = {}
        """The templates, and when each was asked for."""

    def take(self, draft):
        place = (draft.entity, draft.key)
        before = self.rows.get(place)
        if draft.kind == "control":
            return Written(CONTROL, None, None)
        operation = {"put": "insert" if before is None else "update"}.get(draft.kind, draft.kind)
        message = {"type": draft.entity, "key": draft.key, "headers": {"operation": operation}}
        if before is not None and draft.tells_before:
            message["old_value"] = before
        if operation == "delete":
            after = None
            self.rows.pop(place, None)
        else:
            after = message["value"] = self.rows[place] = draft.row
        return Written(json.dumps(message).encode(), before, after)


def values_in(row, template):
    return tuple(row.get(field) for field in sorted(template.fields))


def touched_by(written, templates):
    """By which names keys are touched, as the design says; None is all of them."""
    message = written.message
    operation, entity = message["headers"].get("operation"), message.get("type")
    if operation is None:
        return None
    found = {("entity", entity), ("row", entity, message["key"])}
    for each in templates.values():
        if each.entity != entity:
            continue
        if operation != "delete":
            found.add(("rows", each.id, values_in(message["value"], each)))
        if "old_value" in message:
            found.add(("rows", each.id, values_in(message["old_value"], each)))
        elif operation != "insert":
            found.add(("all rows", each.id))
    return found


def names_of(key, templates):
    """The same for what is waited for: each of them touches it."""
    if isinstance(key, Entity):
        return {("entity", key.entity)}
    if isinstance(key, Row):
        return {("row", key.entity, key.key)}
    rows = ("rows", key.template_id, values_in(key.values, templates[key.template_id]))
    return {rows, ("all rows", key.template_id)}


def concerns(written, key, templates):
    """Whether what happened to the rows concerns a key, whatever the message tells of it."""
    message = written.message
    if "control" in message["headers"]:
        return True
    if not isinstance(key, Rows):
        return key == (message["type"], message["key"])[: len(key)]
    template = templates[key.template_id]
    rows = [row for row in (written.before, written.after) if row is not None]
    return message["type"] == template.entity and any(
        values_in(row, template) == values_in(key.values, template) for row in rows
    )


def every_key(templates):
    """All that can be waited for."""
    keys = [Entity(entity) for entity in ENTITIES]
    keys += [Row(entity, key) for entity in ENTITIES for key in KEYS]
    for template in templates.values():
        choices = itertools.product(*(VALUES[field] for field in template.fields))
        keys += [
            Rows(template.id, dict(zip(template.fields, values, strict=True))) for values in choices
        ]
    return keys


def is_too_far(behind, templates):
    """Whether all that was written behind a cursor need not be told: it is too much, or touches too
    many keys. What was before a message that touches everything need not be known one by one.
    """
    touched, size = set(), sum(len(each.payload) for each in behind)
    for each in behind:
        marks = touched_by(each, templates)
        touched = set() if marks is None else touched | marks
    return (
        len(behind) > limits.TOUCH_BACK_RECORDS
        or (len(behind) > 1 and size > limits.TOUCH_BACK_BYTES)
        or len(touched) > limits.TOUCH_MARKS_MAX
    )


class TouchMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="fourfold-touch-"))
        self.opened = Opened(self.root / "s.sqlite")
        self.ids = {}
        self.cursors = {}
        """All that were ever handed out, in order."""
        self.model = {}

    @initialize(sizes=st.sampled_from(LIMITS), has_schemas=st.booleans(), number=NUMBERS)
    def begin(self, sizes, has_schemas, number):
        for limit, size in zip(LIMIT_NAMES, sizes, strict=True):
            setattr(limits, limit, size)
        for name in NAMES:
            self.make(name, has_schemas)
            self.activate(name, {number})

    def teardown(self):
        assert self.opened.streams.verify() == []
        self.opened.database.close()
        shutil.rmtree(self.root)

    @property
    def touches(self):
        return self.opened.streams.touches

    # What happens to streams

    def make(self, name, has_schemas):
        self.opened.streams.create(name, JSON, retention_seconds=RETENTION_S)
        self.opened.streams.profiles.put(name, TOUCHED)
        self.model[name] = Modelled(self.opened.streams.info(name).incarnation)
        if has_schemas:
            self.opened.streams.schemas.put(name, {"schema": {"type": "object"}})
            self.model[name].versions = 1
        self.keep(self.touches.meta(name).cursor)

    def keep(self, cursor):
        self.cursors[cursor] = None

    @rule(name=st.sampled_from("ssst"), batch=BATCHES, asked=st.none() | ASKED | ASKED)
    def append(self, name, batch, asked):
        found = self.model[name]
        new = [found.take(draft) for draft in batch]
        self.opened.streams.open(name).append([each.payload for each in new])
        found.written += new
        for offset in range(len(found.written) - len(new), len(found.written)):
            # A look that ends within a batch gives such a cursor.
            self.keep(f"{found.incarnation}:{offset + 1}")
        assert self.touches.meta(name).cursor in self.cursors
        if asked is not None:
            self.wait_from_everywhere(name, asked)

    @rule(name=st.sampled_from(NAMES), what=st.sampled_from(RARE))
    def something_rare(self, name, what):
        if what == "version":
            self.change_the_schema(name)
        elif what == "anew":
            self.opened.streams.delete(name)
            self.make(name, bool(self.model[name].versions))
        elif what == "opened":
            # What is not written down is lost; then a template may go earlier.
            self.touches.flush()
            self.opened.reopen()
        elif isinstance(what, int):
            self.wait_with_one_template(name, what)
        elif what == "failed":
            self.append_and_roll_back(name)
        else:
            self.time_passes(TTL_MS if what == "more time" else TTL_MS // 2)

    def append_and_roll_back(self, name):
        def fail():
            with self.opened.database.write():
                self.opened.streams.open(name).append(CONTROL)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()

    def change_the_schema(self, name):
        found = self.model[name]
        if 0 < found.versions < 4:
            found.versions += 1
            schema = {"type": "object", "title": f"version {found.versions}"}
            self.opened.streams.schemas.put(name, {"schema": schema, "lens": []})
            found.version_from = len(found.written)

    def time_passes(self, ms):
        """Retention gives records up, and templates that nobody asked for are retired."""
        self.opened.clock.ms += ms
        self.opened.streams.sweep()
        for name, found in self.model.items():
            lives_until = {
                each: used_ms + self.ids[each].inactivity_ttl_ms
                for each, used_ms in found.used_ms.items()
            }
            living = {each for each, end in lives_until.items() if end > self.opened.clock.ms}
            assert self.active(name).keys() == living
            found.used_ms = {each: found.used_ms[each] for each in living}

    # Templates

    @rule(name=st.sampled_from("ssst"), wanted=WANTED, asked=ASKED)
    def activate_and_wait(self, name, wanted, asked):
        self.activate(name, wanted)
        self.wait_from_everywhere(name, asked)

    def activate(self, name, wanted):
        for made in self.touches.activate(name, [TEMPLATES[number] for number in sorted(wanted)]):
            self.ids[made.id] = made
            self.model[name].used_ms[made.id] = self.opened.clock.ms

    def active(self, name):
        found = self.touches.templates(name)
        return {each.id: each for each in found if each.state == "active"}

    def wait_with_one_template(self, name, number):
        """It is found exactly when it is active, and counts as used."""
        template = self.ids[sorted(self.ids)[number % len(self.ids)]]
        keys = [Rows(template.id, dict.fromkeys(template.fields))]
        if template.id in self.model[name].used_ms:
            self.keep(self.wait(name, None, keys).cursor)
        else:
            with pytest.raises(NotFound):
                self.touches.wait(name, None, keys, 0)

    # Waits

    def wait_from_everywhere(self, name, asked):
        """From every cursor of the stream, and from some of others."""
        keys = self.keys_of(name, asked.keys)
        own = self.own_cursors(name)
        others = [each for each in self.cursors if each not in own]
        cursors = [*others[-1:], *own, None]
        if asked.order == "newest":
            cursors.reverse()
        elif asked.order == "mixed":
            cursors = [each for start in (2, 0, 1) for each in cursors[start::3]]
        for cursor in cursors[: asked.at_most]:
            self.keep(self.wait(name, cursor, keys).cursor)

    def own_cursors(self, name):
        incarnation = self.model[name].incarnation
        return [each for each in self.cursors if each.startswith(incarnation)]

    def keys_of(self, name, asked):
        """Keys of no template, of one of the active ones, or all."""
        active = self.active(name)
        if isinstance(asked, int):
            active = dict(sorted(active.items())[asked : asked + 1])
        return every_key({} if asked == "rows" else active)

    def wait(self, name, cursor, keys):
        told = self.touches.wait(name, cursor, keys, 0)
        self.judge(name, cursor, keys, told)
        return told

    @rule(name=st.sampled_from(NAMES), batch=BATCHES, number=st.integers(0, 6))
    def wait_together(self, name, batch, number):
        """On an event loop: one for each key, from one cursor, while something is appended."""
        cursor = [None, *self.own_cursors(name)][-number % (len(self.own_cursors(name)) + 1)]
        keys = self.keys_of(name, "everything")[number % 2 :: 2]
        stream, found = self.opened.streams.open(name), self.model[name]
        told_at = cursor or self.touches.meta(name).cursor

        async def main():
            stop = False
            waits = [
                self.touches.wait_async(name, cursor, [key], 600, should_stop=lambda: stop)
                for key in keys
            ]
            waiters = [asyncio.ensure_future(each) for each in waits]
            await asyncio.sleep(0)
            new = [found.take(draft) for draft in batch]
            found.written += new
            await stream.append_async([each.payload for each in new])
            for _ in range(4):
                await asyncio.sleep(0)
            stop = True
            self.touches.wake_all()
            return await asyncio.gather(*waiters)

        told_all = asyncio.run(main())
        for key, told in zip(keys, told_all, strict=True):
            self.judge(name, told_at, [key], told, stopped=True)
            self.keep(told.cursor)

    # What the answers must be

    def judge(self, name, cursor, keys, told, *, stopped=False):
        found, active = self.model[name], self.active(name)
        incarnation, _, reached = told.cursor.partition(":")
        end = len(found.written)
        assert incarnation == found.incarnation
        asked = {key.template_id for key in keys if isinstance(key, Rows)}
        found.used_ms |= dict.fromkeys(asked, self.opened.clock.ms)
        if cursor is None:
            assert told == (False, False, f"{incarnation}:{end}", ())
            return
        mine, _, start = cursor.partition(":")
        if told.stale:
            assert (told.touched, told.keys) == (True, tuple(range(len(keys))))
            assert int(reached) == end or (stopped and int(reached) <= end)
            behind = found.written[int(start) : int(reached)]
            assert self.is_lost(name, mine, int(start)) or is_too_far(behind, active)
            return
        assert not self.is_lost(name, mine, int(start))
        assert int(start) <= int(reached) <= end
        assert told.touched or stopped or int(reached) == end
        self.judge_keys(keys, told, found.written[int(start) : int(reached)], active)

    def judge_keys(self, keys, told, seen, active):
        scanned = [touched_by(each, active) for each in seen]
        wanted = [names_of(key, active) for key in keys]
        assert told.keys == tuple(
            number
            for number, names in enumerate(wanted)
            if any(marks is None or marks & names for marks in scanned)
        )
        assert told.touched == bool(told.keys)
        for number, key in enumerate(keys):
            assert number in told.keys or not any(concerns(each, key, active) for each in seen)

    def is_lost(self, name, incarnation, start):
        """Whether nothing can be told from a cursor, however much is read."""
        found = self.model[name]
        first = max(self.opened.streams.info(name).first_offset, found.version_from)
        return incarnation != found.incarnation or start < first


@pytest.fixture(autouse=True)
def _tiny_limits(monkeypatch):
    for name in LIMIT_NAMES:
        monkeypatch.setattr(limits, name, getattr(limits, name))
    monkeypatch.setattr(limits, "TOUCH_LOOP_RECORDS", 2)
    monkeypatch.setattr(limits, "TOUCH_LOOP_BYTES", 300)
    monkeypatch.setattr(limits, "TOUCH_JOURNALS_MAX", 1)
    quick = opened_streams.PROFILE.with_(synchronous="OFF")
    monkeypatch.setattr(opened_streams, "PROFILE", quick)


TouchMachine.TestCase.settings = settings(max_examples=70, stateful_step_count=30)
TestTouches = TouchMachine.TestCase


class LongLives(TouchMachine):
    """The same, for longer and more often."""


LongLives.TestCase.settings = settings(max_examples=400, stateful_step_count=50)
TestLongLives = pytest.mark.slow(pytest.mark.timeout(1800)(LongLives.TestCase))
