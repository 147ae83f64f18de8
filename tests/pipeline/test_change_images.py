"""Changes of documents in an archive have the images of a naive model, batch by batch."""

from __future__ import annotations

import json
import random

import pytest
from archive_reads import publish
from stream_driver import follow

import fourfold
from fourfold.errors import HistoryTruncated, InvalidInput
from fourfold.models.documents import GcPolicy
from fourfold.pipeline.source import FourfoldSource
from fourfold.pipeline.spark import unwrap_error
from fourfold.store import retention

COLUMNS = "space string, id string, seq long, change string, before string, after string"
SPACES = [f"did:web:s{number}.example" for number in range(3)]


class Model:
    """A store, and what its changes are by a dict."""

    def __init__(self, store, seed):
        self.store, self.draw = store, random.Random(seed)
        self.state, self.changes = {}, []

    def step(self):
        """Commit one or two operations to a space."""
        did = self.draw.choice(SPACES)
        space = self.store.space(did)
        known = {}
        operations = []
        for name in self.draw.sample("abcd", self.draw.randint(1, 2)):
            before = known[name] = self.state.get((did, name))
            operations.append(self.operation(did, name, before))
        seq = space.transact(operations).seq
        for name, before in known.items():
            after = self.state.get((did, name))
            kind = "delete" if after is None else "insert" if before is None else "update"
            self.changes.append((did, name, seq, kind, _text(before), _text(after)))
        if self.draw.random() < 0.1:
            space.set("a", {"n": -1}, branch=self.branch(space))

    def operation(self, did, name, before):
        chosen = self.draw.random()
        value = {"n": self.draw.randrange(100), "é": ["ü"]}
        if before is None or chosen < 0.3:
            self.state[did, name] = value
            return {"op": "set", "id": name, "value": value}
        if chosen < 0.5:
            del self.state[did, name]
            return {"op": "delete", "id": name}
        self.state[did, name] = {**before, "m": value["n"]}
        patch = {"op": "add", "path": "/m", "value": value["n"]}
        return {"op": "patch", "id": name, "patches": [patch]}

    def branch(self, space):
        """Return a new branch, whose rows are no changes."""
        name = f"branch-{self.draw.random()}"
        space.branches.create(name)
        return name


def _text(value):
    return None if value is None else json.dumps(value, sort_keys=True)


def changes(store, **options):
    rows, sizes, end = follow(
        COLUMNS, archive=store.root / "objects", table="documents.changes", **options
    )
    texts = [
        (*row[:4], *(None if text is None else _text(json.loads(text)) for text in row[4:]))
        for row in rows
    ]
    return texts, sizes, end


def ordered(rows):
    return sorted(rows, key=repr)


@pytest.mark.parametrize("seed", range(3))
def test_changes_equal_a_naive_model_in_every_batch(tmp_path, seed):
    with fourfold.open(tmp_path / "store") as store:
        model = Model(store, seed)
        start, seen = None, []
        for number in range(5):
            for _ in range(12):
                model.step()
            publish(store)
            if number % 2:
                assert not retention.merge(store).failures
            rows, _, start = changes(store, start=start, max_rows=10)
            assert ordered(rows) == ordered(model.changes[len(seen) :])
            seen += rows
        assert ordered(changes(store)[0]) == ordered(model.changes)


def test_columns_are_selected_and_checked(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.space(SPACES[0]).set("a", {"n": 1})
        store.space("did:web:facts.example", history="facts").set("a", {"n": 1})
        publish(store)
        options = {"archive": store.root / "objects", "table": "documents.changes"}
        rows, _, end = follow("change string, _point long", **options)
    assert rows == [("insert", end["point"])]
    with pytest.raises(Exception, match="columns must be distinct names") as caught:
        FourfoldSource(
            {name: str(value) for name, value in options.items()} | {"columns": "x"}
        ).schema()
    assert isinstance(unwrap_error(caught.value), InvalidInput)


def test_space_that_is_created_again_has_changes_of_its_own(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.space(SPACES[0]).set("a", {"n": 1})
        publish(store)
        _, _, end = changes(store)
    (tmp_path / "store" / "spaces" / f"{SPACES[0]}.sqlite").unlink()
    with fourfold.open(tmp_path / "store") as store:
        store.space(SPACES[0]).set("a", {"n": 2})
        publish(store)
        rows, _, _ = changes(store, start=end)
    assert rows == [(SPACES[0], "a", 1, "insert", None, '{"n": 2}')]


def test_images_that_gc_removed_are_refused(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        space = store.space(SPACES[0])
        for number in range(5):
            space.set("a", {"n": number})
        for number in range(5):
            space.set("b", {"n": number})
        publish(store)
        _, _, end = changes(store)
        space.gc(GcPolicy(keep_seqs=1))
        space.patch("a", [{"op": "add", "path": "/m", "value": 1}])
        publish(store)
        rows, _, _ = changes(store, start=end)
        assert rows == [(SPACES[0], "a", 11, "update", '{"n": 4}', '{"m": 1, "n": 4}')]
        for compact in (False, True):
            if compact:
                assert not retention.merge(store).failures
            with pytest.raises(Exception, match="gc removed rows") as caught:
                changes(store)
            assert isinstance(unwrap_error(caught.value), HistoryTruncated)
