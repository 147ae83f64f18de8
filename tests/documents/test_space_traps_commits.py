"""Traps of commits: what is checked when, what a name means, and what counts as a conflict."""

from __future__ import annotations

import pytest
from space_costs import counted
from space_machine import DID

import fourfold
from fourfold.errors import (
    FourfoldError,
    InvalidInput,
    PreconditionFailed,
    ReplayMismatch,
    StaleRead,
)


def patch(entity, *patches):
    return {"op": "patch", "id": entity, "patches": list(patches)}


def replace(path, value):
    return {"op": "replace", "path": path, "value": value}


def put(entity, **document):
    return {"op": "set", "id": entity, "value": document}


def read_of(entity, seq, *path, **more):
    return {"confirmed": [{"id": entity, "seq": seq, "path": list(path), **more}]}


def refused(space, error, *arguments, **keywords):
    """The transaction is refused and has left nothing."""
    before = space.seq(), space.ids(), len(space.log())
    with pytest.raises(error) as caught:
        space.transact(*arguments, **keywords)
    assert (space.seq(), space.ids(), len(space.log())) == before
    return caught.value


def test_d1_patch_that_does_not_apply_is_refused_at_commit(space, monkeypatch):
    # Without snapshots nothing reads the entity back; the patch is still applied.
    monkeypatch.setattr("fourfold.models.documents.writer.SNAPSHOT_PATCHES_MIN", 10**9)
    space.set("a", {"n": 1})
    error = refused(space, InvalidInput, [put("b", x=1), patch("a", replace("/no/where", 1))])
    assert error.details == {"entity": "a", "operation": 1}
    assert "operation 1 on 'a'" in error.message
    assert space.read("a").document == {"n": 1}


def test_d1_bad_patch_is_refused_despite_a_later_set(space):
    refused(space, InvalidInput, [patch("a", replace("/no/where", 1)), put("a", n=1)])
    assert space.read("a") is None


def test_d1_a_bad_patch_in_the_middle_takes_everything_back(space):
    space.set("a", {"n": 1})
    refused(
        space,
        InvalidInput,
        [patch("a", {"op": "increment", "path": "/n", "by": 1}), patch("a", replace("/x/y", 1))],
    )
    assert space.read("a").document == space.read("a", at=1).document == {"n": 1}


@pytest.mark.parametrize("before", ["nothing", "tombstone"])
def test_d2_patch_of_a_missing_or_deleted_document_starts_empty(space, before):
    if before == "tombstone":
        space.set("a", {"old": 1})
        space.delete("a")
    refused(space, InvalidInput, [patch("a", replace("/value/x", 1))])
    space.patch("a", [{"op": "add", "path": "/value/x", "value": 1}])
    assert space.read("a").document == {"value": {"x": 1}}


def test_d3_name_of_refused_request_may_be_used_again(space):
    name = {"session": "s", "local_seq": 1}
    refused(space, InvalidInput, [patch("a", replace("/no/where", 1))], **name)
    commit = space.transact([put("a", n=1)], **name)
    assert (commit.seq, commit.replayed) == (1, False)


def test_d4_replay_is_recognised_regardless_of_key_order(space):
    name = {"session": "s", "local_seq": 7}
    one = {"op": "set", "id": "a", "value": {"x": 1, "y": {"b": 2, "a": 1}}}
    other = {"value": {"y": {"a": 1, "b": 2}, "x": 1}, "id": "a", "op": "set"}
    first = space.transact([one], **name)
    again = space.transact([other], **name)
    assert again.replayed
    assert (again.seq, again.branch, again.revisions) == (first.seq, "", first.revisions)
    assert (again.session, again.local_seq) == ("s", 7)
    assert space.seq() == 1


@pytest.mark.parametrize(
    "other",
    [
        {"operations": [put("a", n=1.0)]},
        {"operations": [put("a", n=True)]},
        {"operations": [put("b", n=1)]},
        {"operations": [put("a", n=1), put("a", n=1)]},
        {"reads": read_of("a", 0)},
        {"branch": "f"},
        {"preconditions": [{"kind": "absent", "id": "z"}]},
    ],
)
def test_d4_another_request_under_a_used_name_is_refused(space, other):
    space.branches.create("f")
    name = {"session": "s", "local_seq": 1}
    seq = space.transact([put("a", n=1)], **name).seq
    request = {"operations": [put("a", n=1)], **other}
    error = refused(space, ReplayMismatch, **request, **name)
    assert error.details == {"session": "s", "local_seq": 1, "seq": seq}


def test_d4_replay_gives_what_was_committed_and_checks_nothing_again(space):
    name = {"session": "s", "local_seq": 1}
    request = {
        "operations": [put("a", n=1), {"op": "delete", "id": "b"}],
        "reads": read_of("a", 0),
        "preconditions": [{"kind": "absent", "id": "a"}],
    }
    first = space.transact(**request, **name)
    space.set("a", {"n": 2})
    again = space.transact(**request, **name)
    assert again.replayed
    assert again.revisions == first.revisions
    assert space.read("a").document == {"n": 2}


def test_d4_the_request_is_stored_as_it_came(space):
    space.set("a", {})
    space.transact(
        [patch("a", {"op": "add", "path": "/n", "value": 1.0})],
        session="s",
        local_seq=3,
        reads=read_of("a", 1, "n"),
    )
    entry = space.log(after=1)[0]
    assert entry.original["operations"] == [patch("a", {"op": "add", "path": "/n", "value": 1.0})]
    assert entry.original["local_seq"] == entry.local_seq == 3
    assert entry.resolution["seq"] == entry.seq == 2


def test_d5_two_equal_blind_commits_are_two_commits(space):
    operations = [patch("a", {"op": "increment", "path": "/n", "by": 1})]
    assert [space.transact(operations).seq for _ in range(3)] == [1, 2, 3]
    assert space.read("a").document == {"n": 3}
    assert [space.transact([put("b", n=1)]).seq for _ in range(2)] == [4, 5]
    assert [each.seq for each in space.history("b")] == [4, 5]


def test_d6_equal_changes_on_two_branches_are_two_commits(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    for branch in ("", "f"):
        space.set("a", {"n": 2}, branch=branch)
        space.delete("a", branch=branch)
    assert [each.branch for each in space.history("a", "f")] == ["", "f", "f"]
    assert space.verify() == []


@pytest.mark.parametrize("made_by", ["patch", "parent", "delete"])
def test_d10_entity_is_not_absent_however_it_came_to_be(space, made_by):
    if made_by == "patch":
        space.patch("a", [{"op": "add", "path": "/n", "value": 1}])
    elif made_by == "parent":
        space.set("a", {})
    else:
        space.delete("a")
    space.branches.create("f")
    condition = {"kind": "absent", "id": "a"}
    for branch in ("", "f"):
        error = refused(
            space, PreconditionFailed, [put("b")], branch=branch, preconditions=[condition]
        )
        assert error.details == {"entity": "a", "conflict_seq": 1}
    absent = [{"kind": "absent", "id": "b"}]
    assert space.transact([put("b")], branch="f", preconditions=absent).seq == 3
    assert space.transact([put("b")], preconditions=absent).seq == 4


def test_d11_a_read_in_the_future_is_refused(space):
    space.set("a", {})
    refused(space, InvalidInput, [put("a")], reads=read_of("a", 2))
    pending = {"pending": [{"id": "a", "local_seqs": [1], "basis_seq": 2}]}
    refused(space, InvalidInput, [put("a")], reads=pending, session="s", local_seq=2)


@pytest.mark.parametrize(
    "shift",
    [
        {"op": "add", "path": "/l/0", "value": 9},
        {"op": "remove", "path": "/l/0"},
        {"op": "move", "from": "/l/0", "path": "/x"},
        {"op": "move", "from": "/x", "path": "/l/0"},
        {"op": "splice", "path": "/l", "index": 0, "remove": 1, "add": []},
        {"op": "add", "path": "/l/-", "value": 9},
    ],
)
def test_d12_array_shift_conflicts_with_reads_of_elements(space, shift):
    space.set("a", {"l": [1, 2, 3], "x": 0})
    space.patch("a", [shift])
    error = refused(space, StaleRead, [put("b")], reads=read_of("a", 1, "l", "2"))
    assert error.details == {"entity": "a", "read_seq": 1, "conflict_seq": 2}


def test_d12_a_change_elsewhere_is_no_conflict(space):
    space.set("a", {"votes": {"alice": {"n": 1}, "bob": 1}})
    space.patch("a", [{"op": "remove", "path": "/votes/alice/n"}])
    assert space.transact([put("b")], reads=read_of("a", 1, "votes", "bob")).seq == 3
    refused(space, StaleRead, [put("b")], reads=read_of("a", 1, "votes"))
    refused(space, StaleRead, [put("b")], reads=read_of("a", 1, "votes", "alice"))
    refused(space, StaleRead, [put("b")], reads=read_of("a", 1))
    assert space.transact([put("b")], reads=read_of("a", 1, "votes", shape=True)).seq == 4
    space.patch("a", [{"op": "add", "path": "/votes/carol", "value": 1}])
    refused(space, StaleRead, [put("b")], reads=read_of("a", 1, "votes", shape=True))


@pytest.mark.parametrize("whole", [put("a", n=1), {"op": "delete", "id": "a"}])
def test_d12_set_or_delete_conflicts_with_every_read_of_entity(space, whole):
    space.set("a", {"n": 1, "m": 1})
    space.transact([whole])
    for path in ((), ("n",), ("far", "away")):
        refused(space, StaleRead, [put("b")], reads=read_of("a", 1, *path))
        refused(space, StaleRead, [put("b")], reads=read_of("a", 1, *path, shape=True))
    assert space.transact([put("b")], reads=read_of("a", 2)).seq == 3


def test_d12_a_read_of_nothing_conflicts_with_the_first_write(space):
    reads = read_of("a", 0)
    assert space.transact([put("a", n=1)], reads=reads).seq == 1
    refused(space, StaleRead, [put("a", n=2)], reads=reads)


def test_d13_reads_are_kept_in_the_log_with_their_paths(space):
    space.set("a", {"n": {"m": 1}})
    space.transact([put("b")], reads=read_of("a", 1, "n", "m"))
    [kept] = space.log(after=1)[0].original["reads"]["confirmed"]
    assert (kept["id"], kept["seq"], kept["path"]) == ("a", 1, ["n", "m"])


def test_d15_a_whole_write_ends_the_search_for_a_conflict(space):
    space.set("a", {"n": 0})
    for number in range(300):
        space.patch("a", [replace("/n", number)])
    space.set("a", {"m": 0})
    with counted() as cost:
        refused(space, StaleRead, [put("b")], reads=read_of("a", 1, "m"))
    old = cost.steps
    with counted() as cost:
        refused(space, StaleRead, [put("b")], reads=read_of("a", 301, "m"))
    assert old <= 1.5 * cost.steps


def test_d15_fresh_read_costs_same_after_long_history(space):
    def cost_of_a_commit():
        seq = space.seq()
        with counted() as cost:
            space.transact([put("b")], reads=read_of("a", seq, "m"))
        return cost.steps

    space.set("a", {"n": 0, "m": 0})
    early = cost_of_a_commit()
    for number in range(300):
        space.patch("a", [replace("/n", number)])
    assert cost_of_a_commit() <= 1.5 * early


def test_d16_local_seqs_may_come_in_any_order(space):
    for number in (501, 7, 8):
        space.transact([put("a", n=number)], session="s", local_seq=number)
    assert [entry.local_seq for entry in space.log()] == [501, 7, 8]


def test_d16_ordered_session_refuses_late_commits(space):
    def send(number, session="s"):
        return {
            "operations": [put("a", n=number)],
            "session": session,
            "local_seq": number,
            "preconditions": [{"kind": "in_order"}],
        }

    for number in (3, 7):
        space.transact(**send(number))
    error = refused(space, PreconditionFailed, **send(5))
    assert error.details == {"session": "s", "local_seq": 5}
    # What was accepted is replayed, however far the session has come; others have their own order.
    assert space.transact(**send(3)).replayed
    assert space.transact(**send(5, "t")).seq == 3
    assert space.transact(**send(8)).seq == 4
    assert space.transact([put("a")], session="s", local_seq=4).seq == 5


def test_d16_equal_local_seqs_of_two_sessions_are_two_requests(space):
    for session in ("s", "t"):
        assert not space.transact([put("a")], session=session, local_seq=1).replayed
    assert space.seq() == 2


def pending(entity, local_seqs, basis, *path):
    return {
        "pending": [
            {"id": entity, "local_seqs": local_seqs, "basis_seq": basis, "path": list(path)}
        ]
    }


def test_a_pending_read_is_resolved_and_the_resolution_is_kept(space):
    space.transact([put("a", n=1)], session="s", local_seq=4)
    space.transact([put("b", n=1)])
    commit = space.transact(
        [put("a", n=2)], session="s", local_seq=5, reads=pending("a", [4], 0, "n")
    )
    resolution = space.log(after=commit.seq - 1)[0].resolution
    assert resolution["resolved_pending_reads"] == [{"local_seq": 4, "seq": 1}]


def test_pending_read_of_request_that_was_not_accepted_is_refused(space):
    refused(space, StaleRead, [put("a")], session="s", local_seq=2, reads=pending("a", [1], 0))
    # The same number of another session is another request.
    space.transact([put("a")], session="t", local_seq=1)
    refused(space, StaleRead, [put("a")], session="s", local_seq=2, reads=pending("a", [1], 0))


def test_pending_read_conflicts_with_a_write_of_another_in_between(space):
    space.transact([put("a", n=1)], session="s", local_seq=1)
    space.set("a", {"n": 5})
    error = refused(
        space, StaleRead, [put("b")], session="s", local_seq=2, reads=pending("a", [1], 0, "n")
    )
    assert error.details == {"entity": "a", "read_seq": 0, "conflict_seq": 2}


def test_pending_read_conflicts_with_unnamed_own_writes(space):
    space.transact([put("a", n=1)], session="s", local_seq=1)
    space.transact([put("a", n=2)], session="s", local_seq=2)
    request = {"session": "s", "local_seq": 3}
    refused(space, StaleRead, [put("b")], reads=pending("a", [1], 0), **request)
    assert space.transact([put("b")], reads=pending("a", [2, 1], 0), **request).seq == 3


def test_preconditions_hold_or_nothing_is_written(space):
    seq = space.transact([put("a", n=1)], session="s", local_seq=1).seq
    for failing in (
        {"kind": "seq", "id": "a", "seq": 0},
        {"kind": "seq", "id": "b", "seq": 1},
        {"kind": "committed", "local_seq": 2},
    ):
        refused(
            space,
            PreconditionFailed,
            [put("b")],
            session="s",
            local_seq=3,
            preconditions=[failing],
        )
    for holding in (
        {"kind": "seq", "id": "a", "seq": seq},
        {"kind": "seq", "id": "b", "seq": 0},
        {"kind": "committed", "local_seq": 1},
    ):
        space.transact([put("c")], session="s", local_seq=space.seq() + 10, preconditions=[holding])


@pytest.mark.parametrize(
    "did",
    [
        "",
        "did",
        "did:key",
        "did:key:",
        "did:KEY:x",
        "key:did:x",
        "did:key:../x",
        "did:key:a/b",
        "did:key:a\\b",
        "did:key:a b",
        "did:key:a\n",
        "did:key:a\x00",
        "did:key:é",
        "did:key:..",
        " did:key:a",
        "did:key:" + "a" * 300,
        "../../etc/passwd",
        "/did:key:a",
        None,
        5,
        b"did:key:a",
    ],
)
def test_d20_what_is_not_did_never_becomes_file_name(root, history, did):
    with fourfold.open(root) as store:
        before = sorted(root.rglob("*"))
        with pytest.raises(InvalidInput):
            store.space(did, history=history)
        assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("did", [DID, "did:web:a.example", "did:web:a.b:user:c", "did:x:a%3A1"])
def test_d20_a_did_becomes_a_file_of_its_own(root, history, did):
    with fourfold.open(root) as store:
        store.space(did, history=history).set("a", {"n": did})
        store.space("did:key:other", history=history).set("a", {"n": 0})
        assert store.space(did, history=history).read("a").document == {"n": did}
        assert store.spaces() == sorted([did, "did:key:other"])
    assert len(list((root / "spaces").glob("*.sqlite"))) == 2


def test_errors_of_a_commit_are_of_one_tree():
    for error in (StaleRead, ReplayMismatch, PreconditionFailed, InvalidInput):
        assert issubclass(error, FourfoldError)
