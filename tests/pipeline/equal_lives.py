"""Random lives of each model in one store, each beside a naive record of what was written.

A life writes (`write`), removes history (`collect`), changes what readers see of old rows
(`change_schema`), and begins again in a new file (`recreate`). `expected(at)` returns the rows that
tables must have at a position, from lists and dicts alone; `view` reduces rows of such a table to
the columns that are compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import random_sessions
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from random_spaces import LIVES, Life

from fourfold.models.documents import GcPolicy
from support.document_model import text

RESTORED = "restored"
"""Name of the folder of a store that was restored."""


def drawn(strategy, seed):
    """Return one example of a strategy."""
    found = []

    @seeded(seed)
    @settings(max_examples=1, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def draw(value):
        found.append(value)

    draw()
    return found[-1]


def remove_files(root, pattern):
    paths = [path for path in root.glob(pattern) if path.is_file()]
    assert paths
    for path in paths:
        path.unlink()


class Documents:
    """Spaces of both histories; one is collected, one is created again."""

    KEPT, FACTS, COLLECTED, AGAIN = (f"did:key:{name}" for name in ("k", "f", "c", "z"))
    files = f"spaces/{AGAIN}.sqlite*"
    naive = ("state", "history", "revisions")

    def __init__(self, draw):
        self.draw = draw
        self.models = {}

    def write(self, store):
        for number, did in enumerate((self.KEPT, self.FACTS, self.COLLECTED, self.AGAIN)):
            space = store.space(did, history=("revisions", "facts")[number % 2])
            life = Life(space, self.models[did]) if did in self.models else Life(space)
            self.models[did] = life.model
            steps = drawn(LIVES, self.draw.randrange(1 << 30))
            life.live([step for step in steps if step[0] != "collect"])
            life.transact("", [{"op": "set", "id": "a", "value": {"n": number}}])

    def collect(self, store):
        store.space(self.COLLECTED).gc(GcPolicy(keep_seqs=2))

    def change_schema(self, store):
        """Documents have no schema: a branch and an entity of another shape."""
        for did in (self.KEPT, self.FACTS):
            life = Life(store.space(did), self.models[did])
            life.transact("", [{"op": "set", "id": "shape", "value": {"deep": [{"l": [1]}]}}])

    def forget(self):
        del self.models[self.AGAIN]

    def past(self, store):
        """Return a seq at which every space can be read."""
        low = max(store.space(did).horizon() for did in self.models)
        return self.draw.randint(low, max(model.seq for model in self.models.values()))

    def logs(self, store, at):
        """Return what has a seq of its own, each space, with its seq at a position."""
        if at is None:
            return [(store, None)]
        return [(store.space(did), min(at, model.seq)) for did, model in self.models.items()]

    def expected(self, at):
        states, versions, revisions = [], [], []
        for did, model in self.models.items():
            seq = model.seq if at is None else min(at, model.seq)
            for name, line in model.lines.items():
                if line.created_seq > seq:
                    continue
                for entity, state in model.states(name, seq).items():
                    states.append((did, name, entity, *state))
                written = [row for row in line.written if row.branch == name and row.seq <= seq]
                if did == self.COLLECTED:
                    continue
                for past in range(1, seq + 1):
                    for entity, state in model.states(name, past).items():
                        if state.seq == past:
                            versions.append((did, name, entity, *state))
                revisions += [(did, *row[:5]) for row in written]
        return {"state": states, "history": versions, "revisions": revisions}

    def view(self, table, row):
        if table == "revisions":
            names = ("space", "branch", "id", "seq", "op_index", "op")
            kept = row["space"] != self.COLLECTED
            return tuple(row[name] for name in names) if kept else None
        if table == "history" and row["space"] == self.COLLECTED:
            return None
        document = None if row["document"] is None else text(json.loads(row["document"]))
        return (row["space"], row["branch"], row["id"], document, row["op"], row["seq"])


@dataclass
class Session:
    """What was appended to one session: (position, kind, number, value), in order."""

    items: list = field(default_factory=list)
    counts: dict = field(default_factory=dict)


class Sessions:
    """Sessions with messages, turns and steps; one is deleted. Beside them, lives of any events."""

    files = "sessions/*"
    naive = ("events", "messages", "turns", "view")

    def __init__(self, draw):
        self.draw = draw
        self.kept, self.number = {}, 0

    def write(self, store):
        sessions = store.sessions
        self.number += 1
        steps = drawn(random_sessions.LIVES, self.draw.randrange(1 << 30))
        random_sessions.Life(sessions, self.number).live(steps)
        created = f"naive-{self.number}"
        sessions.create_session({"id": created})
        self.kept[created] = Session()
        for sid in self.draw.sample(sorted(self.kept), min(2, len(self.kept))):
            for _ in range(self.draw.randint(1, 5)):
                self._append(sessions, sid, self.draw.choice(["message", "turn", "turn", "step"]))

    def _append(self, sessions, sid, kind):
        session, drawn_number = self.kept[sid], self.draw.randrange(99)
        value = {"role": "user", "content": f"é {drawn_number}"}
        if kind != "message":
            value = {"status": self.draw.choice(["running", "final"]), "n": drawn_number}
        known = session.counts.get(kind, 0)
        if kind == "message" or not known or self.draw.random() < 0.5:
            number = session.counts[kind] = known + 1
            event = {"type": f"{kind}/{'appended' if kind == 'message' else 'started'}"}
            event[kind] = value
        else:
            number = self.draw.randint(1, known)
            event = {"type": f"{kind}/put", kind: {**value, "id": number}}
        sessions.append_event(sid, event)
        session.items.append((sessions.position(), kind, event["type"], number, value))

    def collect(self, store):
        sid = min(self.kept)
        store.sessions.delete_session(sid)
        del self.kept[sid]
        store.sessions.gc(0)

    def change_schema(self, store):
        """Events of a type that no version knows yet."""
        sid = max(self.kept)
        store.sessions.append_event(sid, {"type": "invented/later", "held": {"n": [1]}})
        place = (store.sessions.position(), "", "invented/later", None, None)
        self.kept[sid].items.append(place)

    def forget(self):
        self.kept = {}

    def past(self, store):
        newest = store.sessions.position()
        return self.draw.randint(newest // 2, newest)

    def logs(self, store, at):
        return [(store, at)]

    def expected(self, at):
        rows = {name: [] for name in self.naive}
        for sid, session in self.kept.items():
            items = [item for item in session.items if at is None or item[0] <= at]
            turns, numbers = {}, {"message": 0, "turn": 0, "step": 0}
            for event_id, (position, kind, type_, number, value) in enumerate(items, 1):
                rows["events"].append((sid, event_id, position, type_))
                if kind:
                    numbers[kind] = max(numbers[kind], number)
                if kind == "message":
                    rows["messages"].append((sid, number, value["role"], value["content"]))
                if kind == "turn":
                    turns[number] = (sid, number, value["n"])
            rows["turns"] += turns.values()
            if items or not session.items:
                rows["view"].append((sid, len(items), *numbers.values()))
        return rows

    def view(self, table, row):
        if not row["session"].startswith("naive-"):
            return None
        if table == "events":
            names = ("session", "event_id", "position", "type")
        elif table == "messages":
            names = ("session", "message_id", "role", "content")
            return (*(row[name] for name in names[:3]), json.loads(row["content"]))
        elif table == "turns":
            return (row["session"], row["turn_id"], json.loads(row["turn"])["n"])
        else:
            names = ("session", "event_id", "messages", "turns", "steps")
            if not row["event_id"] and row["session"] not in self.kept:
                return None
        return tuple(row[name] for name in names)


class Graphs:
    """Objects of one app with versions and suppressions, beside two nodes of random apps."""

    files = "graphs/*"
    naive = ("changes", "current")
    APP = "naive"

    def __init__(self, draw):
        self.draw = draw
        self.rows, self.other, self.apps = [], None, 1

    def write(self, store):
        graphs = store.graphs
        if self.APP not in {app.slug for app in graphs.list_apps()}:
            self.app = graphs.register_app(self.APP, "Naive").app_id
            self.types = {
                "note": graphs.register_type(self.app, "parent", "note"),
                "text": graphs.register_type(self.app, "attr", "text"),
                "suppress": graphs.register_type(self.app, "rating", "suppress"),
            }
        for _ in range(self.draw.randint(3, 6)):
            self._change(graphs)

    def _change(self, graphs):
        chosen = self.draw.random()
        parents, attrs = self._objects("parent"), self._objects("attr")
        owner = self.draw.randint(1, 2)
        made = {"owner_identity": owner}
        if chosen < 0.3 or not parents:
            number = graphs.insert_parent(self.app, {**made, "type_id": self.types["note"]})
            self._keep(graphs, "parent", number, owner)
        elif chosen < 0.6 or not attrs:
            parent, value = self.draw.choice(parents), f"ü {self.draw.randrange(99)}"
            row = {**made, "type_id": self.types["text"], "parent_id": parent}
            number = graphs.insert_attr(self.app, {**row, "value_text": value})
            self._keep(graphs, "attr", number, owner, target=parent, value=value)
        elif chosen < 0.85:
            number, value = self.draw.choice(attrs), f"new {self.draw.randrange(99)}"
            graphs.update(self.app, "attr", number, {"value_text": value})
            self._keep(graphs, "attr", number, None, value=value)
        else:
            target = self.draw.choice(attrs)
            row = {**made, "type_id": self.types["suppress"], "target_attr_id": target}
            number = graphs.insert_rating(self.app, row)
            self._keep(graphs, "rating", number, owner, target=target)

    def _objects(self, kind):
        return sorted({row["object"] for row in self.rows if row["kind"] == kind})

    def _keep(self, graphs, kind, number, owner, **more):
        before = [row for row in self.rows if (row["kind"], row["object"]) == (kind, number)]
        row = {**(before[-1] if before else {}), "kind": kind, "object": number, **more}
        row |= {} if owner is None else {"owner": owner}
        row |= {"seq": graphs.get_global_seq(), "version": len(before) + 1}
        self.rows.append(row)

    def collect(self, store):
        """Nothing is removed from a graph; rows that were published change."""
        numbers = self._objects("parent")
        store.graphs.update_sync_flags(self.app, "parent", numbers[:2], 0)

    def change_schema(self, store):
        """A new app: four tables more."""
        self.apps += 1
        app = store.graphs.register_app(f"more-{self.apps}", "More").app_id
        kind = store.graphs.register_type(app, "parent", "thing")
        store.graphs.insert_many_parents(app, [{"type_id": kind, "owner_identity": 1}] * 2)

    def forget(self):
        self.rows, self.apps = [], 1

    def past(self, store):
        return self.draw.randint(1, store.graphs.get_global_seq())

    def logs(self, store, at):
        return [(store, at)]

    def expected(self, at):
        seen = [row for row in self.rows if at is None or row["seq"] <= at]
        newest = {(row["kind"], row["object"]): row for row in seen}
        hidden = set()
        for (kind, number), row in newest.items():
            target = newest.get(("attr", row.get("target")))
            if kind == "rating" and target["owner"] == row["owner"]:
                hidden |= {("attr", row["target"]), (kind, number)}
        for (kind, number), row in newest.items():
            if kind == "rating" and ("attr", row["target"]) in hidden:
                hidden.add((kind, number))
        return {
            "changes": [self._shown(row) for row in seen],
            "current": [self._shown(row) for key, row in newest.items() if key not in hidden],
        }

    def _shown(self, row):
        return (row["kind"], row["object"], row["version"], row["seq"], row.get("value"))

    def view(self, table, row):
        del table
        names = ("kind", "object_id", "version", "global_seq", "value_text")
        return tuple(row[name] for name in names) if row["app"] == self.APP else None


class Streams:
    """Streams of states with forks and a schema; one is deleted and created again."""

    files = None
    naive = ("records", "messages", "state")

    def __init__(self, draw):
        self.draw = draw
        self.records, self.forks, self.position, self.number = {}, {}, 0, 0

    def write(self, store):
        self.number += 1
        for name in ("kept", "again", f"new/{self.number}"):
            if name not in self.records:
                store.streams.create(name, "application/json")
                self.records[name] = []
        if self.number % 2:
            self._fork(store, "kept", f"fork/{self.number}")
        for _ in range(self.draw.randint(4, 9)):
            self._append(store, self.draw.choice(sorted({*self.records} - {"schema"})))

    def _append(self, store, name):
        operation = self.draw.choice(["upsert", "upsert", "delete"])
        change = {"type": "t", "key": self.draw.choice("abü"), "headers": {"operation": operation}}
        change |= {"value": self.draw.choice([1, "é", None, {"x": [1.5]}])}
        store.streams.open(name).append(json.dumps(change).encode())
        self.position += 1
        self.records[name].append((self.position, change))

    def _fork(self, store, name, fork):
        store.streams.open(name).fork(fork)
        self.forks[fork] = (name, len(self._of(name)))
        self.records[fork] = []

    def _of(self, name):
        """Return all records that a stream shows, with those that a fork shares."""
        source, count = self.forks.get(name, (None, 0))
        return (self._of(source)[:count] if source else []) + self.records[name]

    def collect(self, store):
        """Delete a stream, and create it again with the same name."""
        store.streams.delete("again")
        store.streams.gc()
        store.streams.create("again", "application/json")
        self.records["again"] = []

    def change_schema(self, store):
        """A stream whose old messages are promoted by a lens."""
        stream = store.streams.create("schema", "application/json")
        closed = {"type": "object", "additionalProperties": False}
        stream.set_schema(closed | {"properties": {"n": {"type": "integer"}}})
        self.records["schema"] = []
        stream.append({"n": 1})
        store.archive.publish_all()
        newer = closed | {"properties": {"m": {"type": "integer"}}}
        stream.set_schema(newer, lens=[{"op": "rename", "from": "n", "to": "m"}])
        stream.append({"m": 2})
        for value in ({"n": 1}, {"m": 2}):
            self.position += 1
            self.records["schema"].append((self.position, value))

    def forget(self):
        self.__init__(self.draw)

    def past(self, store):
        """Return a position; None in a restored store, which counts from its own first record."""
        if store.root.name == RESTORED:
            return None
        return self.draw.randint(max(1, self.position - 3), self.position)

    def logs(self, store, at):
        return [(store, at)]

    def expected(self, at):
        records, messages, states = [], [], []
        for name, rows in self.records.items():
            shared = len(self._of(name)) - len(rows)
            for offset, (position, value) in enumerate(rows, shared):
                if at is None or position <= at:
                    records.append((name, offset, json.dumps(value)))
                    promoted = {"m": 1} if value == {"n": 1} else value
                    messages.append((name, offset, json.dumps(promoted)))
            state = {}
            for position, value in self._of(name):
                if "key" in value and (at is None or position <= at):
                    state.pop(value["key"], None)
                    if value["headers"]["operation"] == "upsert":
                        state[value["key"]] = value["value"]
            states += [(name, "t", key, json.dumps(value)) for key, value in state.items()]
        return {"records": records, "messages": messages, "state": states}

    def view(self, table, row):
        if table == "state":
            value = json.dumps(json.loads(row["value"]))
            return (row["stream"], row["type"], row["key"], value)
        return (row["stream"], row["offset"], json.dumps(json.loads(row["text"])))


LIVES_OF = {"documents": Documents, "sessions": Sessions, "graphs": Graphs, "streams": Streams}
"""The class of lives of each model."""
