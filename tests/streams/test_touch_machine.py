"""State machine of touch streams, checked against a simple model that scans all records.

Two streams compete for one journal, with few keys, values and templates and small limits, so that
they interact often. Every cursor that was ever returned is kept and used again on either stream. No
wait misses a change or reports one without a reason in the design, and a result is stale only if
the changes cannot be known.
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

from fourfold.errors import NotFound
from fourfold.models.streams.touch import EntityKey, RowKey, Template, TemplateKey, journal
from fourfold.models.streams.touch.templates import TOUCH_TTL_MS_MIN
from support.properties import examples, repeats

NAMES, ENTITIES, KEYS = ("s", "t"), ("user", "order"), ("1", "2")
VALUES = {"a": (None, 1, 2.5), "b": (None, "x")}
TTL_MS = TOUCH_TTL_MS_MIN
TEMPLATES = (
    Template("user", {"a": "number"}, TTL_MS),
    Template("user", {"b": "string", "a": "number"}, 2 * TTL_MS),
    Template("order", {"a": "number"}, TTL_MS),
)
# Records and bytes per read, and keys per journal: everything is known, evicted marks can be read
# again, and nearly nothing is known.
ROOMY = (60, 20_000, 100)
LIMITS = [ROOMY, ROOMY, ROOMY, (60, 20_000, 12), (16, 5_000, 4), (6, 800, 8)]
LIMIT_NAMES = ("TOUCH_BACK_RECORDS", "TOUCH_BACK_BYTES", "TOUCH_MARKS_MAX")
RARE = ("version", "recreate", "opened", "failed", "time", "time", "more time", 0, 1)
RETENTION_S = TTL_MS * 3 // 4 // 1_000


class Draft(NamedTuple):
    """A change that is not yet applied to the current row."""

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
    """Draw waits: keys, cursors and their order."""

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
    """A message, and its row before and after, even if the message does not contain it."""

    payload: bytes
    before: dict | None
    after: dict | None

    @property
    def message(self):
        return json.loads(self.payload)


class Modelled:
    """Model of a stream: all messages ever written, and the current rows."""

    def __init__(self, incarnation):
        self.incarnation = incarnation
        self.written = []
        self.rows = {}
        self.version_from = 0
        self.versions = 0
        self.used_ms = {}
        """Templates with the time of their last use."""

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
    """Return the names of touched keys by the design; None is all of them."""
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
    """Return the names that touch a key."""
    if isinstance(key, EntityKey):
        return {("entity", key.entity)}
    if isinstance(key, RowKey):
        return {("row", key.entity, key.key)}
    rows = ("rows", key.template_id, values_in(key.values, templates[key.template_id]))
    return {rows, ("all rows", key.template_id)}


def concerns(written, key, templates):
    """Return True if the change of a row matches a key, whatever the message contains."""
    message = written.message
    if "control" in message["headers"]:
        return True
    if not isinstance(key, TemplateKey):
        return key == (message["type"], message["key"])[: len(key)]
    template = templates[key.template_id]
    rows = [row for row in (written.before, written.after) if row is not None]
    return message["type"] == template.entity and any(
        values_in(row, template) == values_in(key.values, template) for row in rows
    )


def every_key(templates):
    """Return all valid keys."""
    keys = [EntityKey(entity) for entity in ENTITIES]
    keys += [RowKey(entity, key) for entity in ENTITIES for key in KEYS]
    for template in templates.values():
        choices = itertools.product(*(VALUES[field] for field in template.fields))
        keys += [
            TemplateKey(template.id, dict(zip(template.fields, values, strict=True)))
            for values in choices
        ]
    return keys


def is_too_far(later, templates):
    """Return True if the changes after a cursor may be unknown: too many records, bytes or keys.

    Changes before a message that touches everything do not count.
    """
    touched, size = set(), sum(len(each.payload) for each in later)
    for each in later:
        marks = touched_by(each, templates)
        touched = set() if marks is None else touched | marks
    return (
        len(later) > journal.TOUCH_BACK_RECORDS
        or (len(later) > 1 and size > journal.TOUCH_BACK_BYTES)
        or len(touched) > journal.TOUCH_MARKS_MAX
    )


class TouchMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="fourfold-touch-"))
        self.opened = Opened(self.root / "s.sqlite")
        self.ids = {}
        self.cursors = {}
        """All cursors that were ever returned, in order."""
        self.model = {}

    @initialize(sizes=st.sampled_from(LIMITS), has_schemas=st.booleans(), number=NUMBERS)
    def begin(self, sizes, has_schemas, number):
        for limit, size in zip(LIMIT_NAMES, sizes, strict=True):
            setattr(journal, limit, size)
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

    # Changes of streams

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
            # A check that ends within a batch returns such a cursor.
            self.keep(f"{found.incarnation}:{offset + 1}")
        assert self.touches.meta(name).cursor in self.cursors
        if asked is not None:
            self.wait_from_everywhere(name, asked)

    @rule(name=st.sampled_from(NAMES), what=st.sampled_from(RARE))
    def something_rare(self, name, what):
        if what == "version":
            self.change_the_schema(name)
        elif what == "recreate":
            self.opened.streams.delete(name)
            self.make(name, bool(self.model[name].versions))
        elif what == "opened":
            # Buffered uses are lost; then a template may be retired earlier.
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
        """Sweep: retention trims records, and unused templates are retired."""
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
        """Wait with a template: it is found only if active, and the wait counts as use."""
        template = self.ids[sorted(self.ids)[number % len(self.ids)]]
        keys = [TemplateKey(template.id, dict.fromkeys(template.fields))]
        if template.id in self.model[name].used_ms:
            self.keep(self.wait(name, None, keys).cursor)
        else:
            with pytest.raises(NotFound):
                self.touches.wait(name, None, keys, 0)

    # Waits

    def wait_from_everywhere(self, name, asked):
        """Wait from every cursor of the stream, and from some of others."""
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
        """Draw keys of no template, of an active one, or of all."""
        active = self.active(name)
        if isinstance(asked, int):
            active = dict(sorted(active.items())[asked : asked + 1])
        return every_key({} if asked == "rows" else active)

    def wait(self, name, cursor, keys):
        result = self.touches.wait(name, cursor, keys, 0)
        self.judge(name, cursor, keys, result)
        return result

    @rule(name=st.sampled_from(NAMES), batch=BATCHES, number=st.integers(0, 6))
    def wait_together(self, name, batch, number):
        """Wait on an event loop for each key from one cursor, while something is appended."""
        cursor = [None, *self.own_cursors(name)][-number % (len(self.own_cursors(name)) + 1)]
        keys = self.keys_of(name, "everything")[number % 2 :: 2]
        stream, found = self.opened.streams.open(name), self.model[name]
        start_cursor = cursor or self.touches.meta(name).cursor

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

        results = asyncio.run(main())
        for key, result in zip(keys, results, strict=True):
            self.judge(name, start_cursor, [key], result, stopped=True)
            self.keep(result.cursor)

    # Expected results

    def judge(self, name, cursor, keys, result, *, stopped=False):
        found, active = self.model[name], self.active(name)
        incarnation, _, reached = result.cursor.partition(":")
        end = len(found.written)
        assert incarnation == found.incarnation
        asked = {key.template_id for key in keys if isinstance(key, TemplateKey)}
        found.used_ms |= dict.fromkeys(asked, self.opened.clock.ms)
        if cursor is None:
            assert result == (False, False, f"{incarnation}:{end}", ())
            return
        mine, _, start = cursor.partition(":")
        if result.stale:
            assert (result.touched, result.keys) == (True, tuple(range(len(keys))))
            assert int(reached) == end or (stopped and int(reached) <= end)
            later = found.written[int(start) : int(reached)]
            assert self.is_lost(name, mine, int(start)) or is_too_far(later, active)
            return
        assert not self.is_lost(name, mine, int(start))
        assert int(start) <= int(reached) <= end
        assert result.touched or stopped or int(reached) == end
        self.judge_keys(keys, result, found.written[int(start) : int(reached)], active)

    def judge_keys(self, keys, result, seen, active):
        scanned = [touched_by(each, active) for each in seen]
        wanted = [names_of(key, active) for key in keys]
        assert result.keys == tuple(
            number
            for number, names in enumerate(wanted)
            if any(marks is None or marks & names for marks in scanned)
        )
        assert result.touched == bool(result.keys)
        for number, key in enumerate(keys):
            assert number in result.keys or not any(concerns(each, key, active) for each in seen)

    def is_lost(self, name, incarnation, start):
        """Return True if the changes after a cursor cannot be known, however much is read."""
        found = self.model[name]
        first = max(self.opened.streams.info(name).first_offset, found.version_from)
        return incarnation != found.incarnation or start < first


@pytest.fixture(autouse=True)
def _tiny_limits(monkeypatch):
    for name in LIMIT_NAMES:
        monkeypatch.setattr(journal, name, getattr(journal, name))
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_LOOP_RECORDS", 2)
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_LOOP_BYTES", 300)
    monkeypatch.setattr("fourfold.models.streams.touch.journal.TOUCH_JOURNALS_MAX", 1)
    quick = opened_streams.PROFILE.with_(synchronous="OFF")
    monkeypatch.setattr(opened_streams, "PROFILE", quick)


TouchMachine.TestCase.settings = settings(max_examples=examples(70), stateful_step_count=30)
TestTouches = TouchMachine.TestCase


class LongLives(TouchMachine):
    """Run the state machine with more and longer examples."""


LongLives.TestCase.settings = settings(max_examples=repeats(400), stateful_step_count=50)
TestLongLives = pytest.mark.slow(pytest.mark.timeout(1800)(LongLives.TestCase))
