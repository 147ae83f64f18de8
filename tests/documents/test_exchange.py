"""Claims about export and import: the space that comes out is the space that went in."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fourfold
from fourfold.blobs import TableBlobs
from fourfold.errors import CorruptData, InvalidInput, Refused
from fourfold.models.documents import HISTORIES, bundle
from fourfold.models.documents.bundle import EXPORT_PAGE_COMMITS
from support.properties import examples

SOURCE, TARGET = "did:web:source", "did:web:target"


def lived_in(space):
    """A space with a bit of everything: patches, branches of branches, deletes, sessions, reads."""
    space.set("note", {"title": "a", "list": []})
    for number in range(15):
        space.patch("note", [{"op": "append", "path": "/list", "values": [number]}])
    space.branches.create("draft", at=3)
    space.patch("note", [{"op": "replace", "path": "/title", "value": "é"}], branch="draft")
    space.branches.create("deep", parent="draft")
    space.delete("note", branch="deep")
    space.patch("note", [{"op": "add", "path": "/again", "value": 1.0}], branch="deep")
    space.transact(
        [
            {"op": "set", "id": "of:b", "value": {"big": 10**30, "zero": -0.0}},
            {"op": "patch", "id": "of:b", "patches": [{"op": "remove", "path": "/zero"}]},
            {"op": "delete", "id": "never"},
        ],
        reads={"confirmed": [{"id": "note", "seq": 16, "path": ["title"]}]},
        session="phone",
        local_seq=7,
        preconditions=[{"kind": "absent", "id": "of:b"}],
    )
    pending = {"id": "of:b", "local_seqs": [7], "basis_seq": space.seq() - 1}
    space.transact(
        [{"op": "set", "id": "of:b", "value": {}}],
        reads={"pending": [pending]},
        session="phone",
        local_seq=8,
    )
    # A merge with something in it, and one of branches that had made the same change.
    space.branches.merge("deep", resolutions={"note": {"merged": True}})
    space.set("same", {"n": 1})
    space.set("same", {"n": 1}, branch="draft")
    again = space.branches.merge("draft")
    assert again.commit
    assert not again.operations
    space.branches.delete("draft")
    space.set("last", {"value": None})
    return space


def every_state(space):
    """What every branch shows for every entity at every seq that it can be read at."""
    names = {revision["id"] for entry in space.log() for revision in operations(entry)}
    return {
        (branch.name, entity, seq): space.read(entity, branch.name, seq)
        for branch in space.branches.list(deleted=True)
        for entity in names
        for seq in range(branch.created_seq, space.seq() + 1)
    }


def operations(entry):
    return entry.original.get("operations", ())


def branches(space):
    # The default branch is as old as the file that it is in.
    return [
        (each.name, each.parent, each.fork_seq, each.created_seq, each.head_seq, each.status)
        + ((each.created_at,) if each.name else ())
        for each in space.branches.list(deleted=True)
    ]


@pytest.fixture
def source(store, history):
    return lived_in(store.space(SOURCE, history=history))


@pytest.fixture
def target(store, history):
    return store.space(TARGET, history=history)


def test_an_imported_space_has_the_same_log_branches_and_states(source, target):
    done = bundle.replay(target, bundle.export(source))
    assert done == (source.seq(), source.seq(), 0)
    assert target.log() == source.log()
    assert branches(target) == branches(source)
    assert every_state(target) == every_state(source)
    assert target.verify() == []


def test_merges_after_the_import_begin_where_those_before_it_ended(source, target):
    bundle.replay(target, bundle.export(source))
    for space in (source, target):
        space.patch("note", [{"op": "add", "path": "/later", "value": 1}], branch="deep")
    assert source.branches.merge("deep", dry_run=True) == target.branches.merge(
        "deep", dry_run=True
    )


def test_a_space_can_be_read_through_the_import_itself(source, target):
    assert target.read("note") is None
    bundle.replay(target, bundle.export(source))
    assert target.read("note") == source.read("note")
    assert target.set("note", {}).seq == source.seq() + 1


def test_a_request_sent_again_after_the_import_is_known(source, target):
    bundle.replay(target, bundle.export(source))
    again = {
        "operations": [{"op": "set", "id": "x", "value": {}}],
        "session": "phone",
        "local_seq": 9,
    }
    assert not target.transact(**again).replayed
    assert target.transact(**again).replayed
    with pytest.raises(fourfold.Conflict):
        target.transact([{"op": "delete", "id": "x"}], session="phone", local_seq=8)


def test_each_kind_of_history_can_be_imported_from_each_other(store):
    for one in HISTORIES:
        for other in HISTORIES:
            origin = lived_in(store.space(f"did:web:{one}-for-{other}", history=one))
            copy = store.space(f"did:web:{one}-to-{other}", history=other)
            bundle.replay(copy, bundle.export(origin))
            assert every_state(copy) == every_state(origin)
            assert branches(copy) == branches(origin)


def test_an_import_of_the_same_file_again_changes_nothing(source, target):
    lines = list(bundle.export(source))
    bundle.replay(target, lines)
    log = target.log()
    assert bundle.replay(target, lines).commits == 0
    assert target.log() == log


@pytest.mark.parametrize("cut", [2, 5, 20, -1])
def test_interrupted_import_is_reported_and_resumes(source, target, cut, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.bundle.EXPORT_PAGE_COMMITS", 3)
    lines = list(bundle.export(source))
    with pytest.raises(InvalidInput, match="cut off"):
        bundle.replay(target, lines[:cut])
    bundle.replay(target, lines)
    assert every_state(target) == every_state(source)
    assert target.log() == source.log()


KILLED = """
import os, signal, sys
import fourfold
from fourfold.models.documents import bundle

def killed_half_way(_label, done, total):
    if done == total // 2:
        os.kill(os.getpid(), signal.SIGKILL)

with fourfold.open(sys.argv[1]) as store, open(sys.argv[2], "rb") as lines:
    bundle.replay(store.space(sys.argv[3], history=sys.argv[4]), lines, killed_half_way)
"""


def test_an_import_that_was_killed_goes_on_when_run_again(source, history, tmp_path):
    for number in range(3 * EXPORT_PAGE_COMMITS):
        source.patch("note", [{"op": "add", "path": "/n", "value": number}])
    lines = list(bundle.export(source))
    (tmp_path / "file").write_bytes(b"".join(lines))
    arguments = [tmp_path / "other", tmp_path / "file", TARGET, history]
    child = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert child.returncode == -signal.SIGKILL
    with fourfold.open(tmp_path / "other") as store:
        target = store.space(TARGET)
        assert 0 < target.seq() < source.seq()
        assert target.verify() == []
        bundle.replay(target, lines)
        assert target.log(limit=10_000) == source.log(limit=10_000)
        assert target.verify() == []


def test_what_came_later_can_be_brought_over_alone(source, target):
    seq = source.seq()
    bundle.replay(target, bundle.export(source))
    source.set("later", {"n": 1})
    source.branches.create("later")
    more = list(bundle.export(source, after=seq))
    assert len(more) == 4
    assert bundle.replay(target, more).commits == 2
    assert target.log() == source.log()


def test_later_part_is_refused_while_earlier_one_is_missing(source, target):
    lines = list(bundle.export(source, after=5))
    with pytest.raises(Refused, match="begins after seq 5"):
        bundle.replay(target, lines)
    assert target.seq() == 0


def test_a_space_with_other_commits_is_refused_and_left_alone(source, target):
    target.set("mine", {"n": 1})
    with pytest.raises(Refused, match="another commit at seq 1"):
        bundle.replay(target, bundle.export(source))
    assert target.seq() == 1


def test_seqs_that_a_restore_skipped_stay_skipped(source, target):
    with source.database.write() as txn:
        txn.execute(source.history_kind.seq.advance, (100,))
    assert source.set("after", {}).seq == 101
    bundle.replay(target, bundle.export(source))
    assert target.read("after").seq == 101


def test_blobs_come_along(source, target):
    stored = TableBlobs(source.database).put(b"\x00 bytes", content_type="text/odd")
    done = bundle.replay(target, bundle.export(source))
    assert done.blobs == 1
    copied = TableBlobs(target.database)
    assert (copied.get(stored), copied.content_type(stored)) == (b"\x00 bytes", "text/odd")


def changed(lines, number, change):
    """The lines with one of them changed as a thief would."""
    line = json.loads(lines[number])
    change(line)
    return [*lines[:number], json.dumps(line).encode(), *lines[number + 1 :]]


def change_value(line):
    line["original"]["operations"][0]["value"]["title"] = "b"


@pytest.mark.parametrize(
    ("number", "change", "error"),
    [
        (1, change_value, CorruptData),
        (1, lambda line: line.update(branch="nowhere"), fourfold.NotFound),
        (2, lambda line: line.update(seq=1), InvalidInput),
        (2, lambda line: line.update(session=""), InvalidInput),
        (2, lambda line: line.update(original=5), InvalidInput),
        (2, lambda line: line.pop("seq"), InvalidInput),
        (2, lambda line: line.update(created_at="yesterday"), InvalidInput),
        (2, lambda line: line.update(created_at="2020-01-01T00:00:00.000Z"), CorruptData),
        (2, lambda line: line.update(kind="space"), InvalidInput),
        (-1, lambda line: line.update(states="sha256:0"), CorruptData),
        (-1, lambda line: line.update(kind="other"), InvalidInput),
        (0, lambda line: line.update(version=3), InvalidInput),
        (0, lambda line: line.update(kind="end"), InvalidInput),
    ],
)
def test_a_changed_line_is_found(store, number, change, error):
    lines = list(bundle.export(lived_in(store.space(SOURCE))))
    with pytest.raises(error):
        bundle.replay(store.space(TARGET), changed(lines, range(len(lines))[number], change))


def test_a_missing_commit_is_found(source, target):
    lines = list(bundle.export(source))
    with pytest.raises(fourfold.FourfoldError):
        bundle.replay(target, lines[:3] + lines[4:])


@pytest.mark.parametrize("data", ["%%%", base64.b64encode(b"other").decode()])
def test_a_damaged_blob_is_found(source, target, data):
    TableBlobs(source.database).put(b"bytes")
    lines = list(bundle.export(source))
    with pytest.raises((InvalidInput, CorruptData), match="blob"):
        bundle.replay(target, changed(lines, 1, lambda line: line.update(data=data)))


@pytest.mark.parametrize("text", [[], [b"\n"], [b"{}\n"], [b"\xff"], [b"[" * 5000], [b"null\n"]])
def test_a_file_that_is_no_export_is_refused(target, text):
    with pytest.raises(InvalidInput):
        bundle.replay(target, text)
    assert target.seq() == 0


def test_an_export_from_beyond_the_newest_seq_is_refused(source):
    with pytest.raises(InvalidInput):
        list(bundle.export(source, after=source.seq() + 1))


def test_export_shows_space_as_it_was_when_it_began(source, target):
    lines = bundle.export(source)
    first = next(lines)
    seq = source.seq()
    source.set("meanwhile", {"n": 1})
    bundle.replay(target, [first, *lines])
    assert target.seq() == seq
    assert target.read("meanwhile") is None


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["set", "patch", "delete", "branch", "end"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 20),
    ),
    max_size=12,
)


@settings(max_examples=examples(25), deadline=None)
@given(actions=ACTIONS, kind=st.sampled_from(sorted(HISTORIES)))
def test_whatever_happened_to_a_space_it_comes_back_equal(actions, kind):
    with fourfold.open(":memory:") as store:
        space = store.space(SOURCE, history=kind)
        for action, entity, number in actions:
            act(space, action, entity, number)
        copy = store.space(TARGET, history=kind)
        bundle.replay(copy, bundle.export(space))
        assert copy.log() == space.log()
        assert every_state(copy) == every_state(space)


def act(space, action, entity, number):
    alive = space.branches.list()
    branch = alive[number % len(alive)].name
    if action == "set":
        space.set(entity, {"n": number}, branch=branch)
    elif action == "patch":
        space.patch(entity, [{"op": "add", "path": f"/{number}", "value": []}], branch=branch)
    elif action == "delete":
        space.delete(entity, branch=branch)
    elif action == "branch":
        space.branches.create(f"b{space.seq()}", parent=branch)
    elif branch:
        space.branches.delete(branch)
