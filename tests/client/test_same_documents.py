"""One program on the documents of a folder and of a server: the same results and errors."""

from __future__ import annotations

import asyncio
import threading
import uuid
from datetime import datetime

import pytest
from same_program import refused, take

import fourfold
from fourfold import errors
from fourfold.models import documents
from fourfold.models.documents import Distance


@pytest.fixture
def space(store):
    return store.space(f"did:web:{uuid.uuid4().hex}.example")


def test_documents_are_written_and_read(space):
    first = space.set("a/b", {"n": 1, "é": [None, 1.5]})
    assert (first.seq, first.branch, first.replayed) == (1, "", False)
    assert [(row.op, row.id, row.data) for row in first.revisions] == [
        ("set", "a/b", {"n": 1, "é": [None, 1.5]})
    ]
    space.patch("a/b", [{"op": "replace", "path": "/n", "value": 2}])
    assert space.read("a/b") == fourfold.State({"n": 2, "é": [None, 1.5]}, "patch", 2)
    assert space["a/b"]["n"] == 2
    assert space.read("a/b", at=1).document["n"] == 1
    assert space.read("never") is None
    space.delete("a/b")
    assert space.read("a/b") == fourfold.State(None, "delete", 3)
    assert "a/b" not in space
    assert (space.position(), space.seq(), space.horizon()) == (3, 3, 0)
    assert repr(space) == f"<Space {space.did}>"


def test_store_lists_its_spaces(store, space):
    assert space.did in store.spaces()
    assert store.spaces() == sorted(store.spaces()) == list(store.documents)
    assert space.did in store.documents
    assert len(store.documents) == len(store.spaces())
    store.documents[space.did].set("a", {})
    [info] = [info for info in store.documents.list() if info.did == space.did]
    assert (info.history, info.seq, info.branches) == ("revisions", 1, 1)
    refused(
        errors.NotFound,
        "unknown space 'did:web:none.example'",
        lambda: store.documents.open("did:web:none.example"),
    )


def test_several_operations_are_one_commit(space):
    commit = space.transact(
        [
            {"op": "set", "id": "x", "value": {"n": 1}},
            {"op": "patch", "id": "y", "patches": [{"op": "add", "path": "/m", "value": 2}]},
            {"op": "delete", "id": "z"},
        ]
    )
    assert [row.op_index for row in commit.revisions] == [0, 1, 2]
    states = space.read_many(["x", "y", "z", "never"])
    assert [state and (state.document, state.op) for state in states.values()] == [
        ({"n": 1}, "set"),
        ({"m": 2}, "patch"),
        (None, "delete"),
        None,
    ]
    assert list(states) == ["x", "y", "z", "never"]
    assert list(space) == space.ids() == ["x", "y"]
    assert len(space) == 2
    assert space.ids(prefix="y") == ["y"]
    assert space.ids(after="x", limit=1) == ["y"]
    assert space.ids(limit=1) == ["x"]


def test_ids_of_any_form_are_ids(space):
    for entity in ("a", "a/", "a//b", ".", "..", "../a", "a?b#c%2F", "é ü", "a.json"):
        space.set(entity, {"id": entity})
        assert space[entity] == {"id": entity}
        assert [row.data for row in space.history(entity)] == [{"id": entity}]
    assert len(space) == 9
    assert space.ids(after="..", limit=2) == ["../a", "a"]
    assert space.ids(at=2) == ["a", "a/"]


def test_pages_of_a_list_are_put_together(space, monkeypatch):
    monkeypatch.setattr(fourfold.limits, "PAGE_ITEMS_MAX", 3)
    for n in range(10):
        space.set(f"e{n}", {"n": n})
        space.set("a", {"n": n})
    assert len(space) == 11
    assert len(space.log()) == 20
    assert [row.data["n"] for row in space.history("a")] == list(range(10))
    assert [row.data["n"] for row in space.history("a", limit=4)] == list(range(4))
    assert list(space.read_many(space.ids())) == space.ids()
    assert len(space.diff("", 0, None)) == 11


def test_request_with_an_identity_is_committed_once(space):
    request = {"session": "till", "local_seq": 7}
    operation = {"op": "set", "id": "a", "value": {"n": 1}}
    first = space.transact([operation], **request)
    again = space.transact([operation], **request)
    assert (first.session, first.local_seq) == ("till", 7)
    assert (again.seq, again.replayed) == (first.seq, True)
    with pytest.raises(errors.ReplayMismatch):
        space.transact([{**operation, "value": {"n": 2}}], **request)
    refused(
        errors.InvalidInput,
        "pass both session and local_seq, or neither",
        lambda: space.transact([operation], session="till"),
    )


def test_stale_reads_and_preconditions_are_refused(space):
    seq = space.set("a", {"n": 1}).seq
    space.set("a", {"n": 2})
    with pytest.raises(errors.StaleRead) as caught:
        space.transact(
            [{"op": "set", "id": "b", "value": {}}],
            reads={"confirmed": [{"id": "a", "seq": seq}]},
        )
    assert caught.value.details["entity"] == "a"
    with pytest.raises(errors.PreconditionFailed) as caught:
        space.transact(
            [{"op": "set", "id": "a", "value": {}}],
            preconditions=[{"kind": "absent", "id": "a"}],
        )
    assert caught.value.details["entity"] == "a"
    assert space.position() == 2


def test_history_and_log_show_every_commit(space):
    for n in range(5):
        space.set("a", {"n": n})
    space.set("b", {})
    rows = space.history("a")
    assert [(row.seq, row.id, row.op, row.data) for row in rows] == [
        (n + 1, "a", "set", {"n": n}) for n in range(5)
    ]
    assert [row.seq for row in space.history("a", after=2, limit=2)] == [3, 4]
    assert [row.seq for row in space.history("a", at=2)] == [1, 2]
    assert [entry.seq for entry in space.log()] == [1, 2, 3, 4, 5, 6]
    assert [entry.seq for entry in space.log(after=1, until=4, limit=2)] == [2, 3]
    assert [entry.seq for entry in space.log(after=4, until=5)] == [5]
    entry = space.log(limit=1)[0]
    assert entry.original["operations"][0]["id"] == "a"
    then = datetime.fromisoformat(entry.created_at)
    assert space.read("a", at=then).document == {"n": 0}


def test_differences_restore_an_earlier_state(space):
    space.set("a", {"n": 1, "m": [1, 2]})
    space.set("b", {"n": 1})
    space.patch("a", [{"op": "replace", "path": "/n", "value": 2}])
    space.delete("b")
    difference = space.diff("", None, 2)
    assert (difference.a, difference.b, difference.base) == (("", 4), ("", 2), ("", 2))
    assert [(change.id, change.changed_on) for change in difference] == [("a", "a"), ("b", "a")]
    assert difference.operations == [
        {"op": "patch", "id": "a", "patches": [{"op": "replace", "path": "/n", "value": 1}]},
        {"op": "set", "id": "b", "value": {"n": 1}},
    ]
    space.transact(difference.operations)
    assert len(space.diff("", None, 2)) == 0


def test_distance_of_a_branch_counts_unshared_commits(space):
    space.set("a", {"n": 1})
    space.branches.create("side")
    assert space.branches.distance("") is None
    assert space.branches.distance("side") == Distance(0, 0)
    space.set("b", {"n": 1}, branch="side")
    for number in (2, 3):
        space.set("a", {"n": number})
    before = space.branches.distance("side")
    space.branches.merge("side")
    merged = space.branches.distance("side")
    assert (before, merged) == (Distance(1, 2), Distance(0, 3))
    assert space.branches.distance("side", at=3) == Distance(1, 0)
    with pytest.raises(errors.NotFound):
        space.branches.distance("unknown")


def test_branches_are_created_merged_and_deleted(space):
    space.set("order", {"total": 75, "status": "draft"})
    branch = space.branches.create("discount")
    assert (branch.name, branch.parent, branch.fork_seq, branch.active) == ("discount", "", 1, True)
    space.patch("order", [{"op": "replace", "path": "/total", "value": 67}], branch="discount")
    space.patch("order", [{"op": "replace", "path": "/status", "value": "paid"}])
    assert space.read("order", "discount").document == {"total": 67, "status": "draft"}
    preview = space.branches.merge("discount", dry_run=True)
    assert (preview.commit, preview.conflicts) == (None, ())
    with pytest.raises(errors.PreconditionFailed):
        space.branches.merge("discount", heads=(1, 1))
    merged = space.branches.merge("discount", heads=preview.heads)
    assert merged.operations == preview.operations
    assert [row.id for row in merged.commit.revisions] == ["order"]
    assert space["order"] == {"total": 67, "status": "paid"}
    assert space.branches.merge("discount").commit is None
    assert [each.name for each in space.branches] == ["", "discount"]
    assert not space.branches.delete("discount").active
    assert [each.name for each in space.branches.list()] == [""]
    assert [each.name for each in space.branches.list(deleted=True)] == ["", "discount"]
    assert space.branches.get("discount").status == "deleted"
    assert space.branches.get("").name == ""
    refused(
        errors.BranchEnded,
        "the branch 'discount' was deleted; it can be read, not written",
        lambda: space.set("order", {}, branch="discount"),
    )


def test_conflicts_of_a_merge_are_listed_and_resolved(space):
    space.set("order", {"total": 75})
    space.set("note", {"text": "a"})
    space.branches.create("draft")
    for branch, total in (("draft", 67), ("", 70)):
        space.set("order", {"total": total}, branch=branch)
        space.set("note", {"text": branch}, branch=branch)
    with pytest.raises(errors.MergeConflicted) as caught:
        space.branches.merge("draft")
    assert caught.value.message == (
        "'draft' cannot be merged into '': both changed 'note' and 1 more"
    )
    assert [each["entity"] for each in caught.value.details["conflicts"]] == ["note", "order"]
    [_, order] = space.branches.merge("draft", dry_run=True).conflicts
    assert (order.id, order.paths, order.base.document) == ("order", ("/total",), {"total": 75})
    assert (order.source.document, order.target.document) == ({"total": 67}, {"total": 70})
    space.branches.merge("draft", resolutions={("order", "/total"): 68, "note": documents.THEIRS})
    assert (space["order"], space["note"]) == ({"total": 68}, {"text": "draft"})
    difference = space.branches.diff("draft", "")
    assert [(change.id, change.changed_on) for change in difference] == [("order", "b")]


def test_errors_of_documents_are_the_same(store, space):
    refused(
        errors.InvalidInput,
        "'nothing' is not the DID of a space",
        lambda: store.space("nothing"),
    )
    refused(
        errors.InvalidInput,
        "'x' is not a kind of history",
        lambda: store.space(space.did, "x"),
    )
    refused(
        errors.Refused,
        f"the space {space.did} has the history 'revisions', got 'facts'",
        lambda: store.space(space.did, "facts"),
    )
    refused(errors.NotFound, f"space {space.did}: no entity 'none'", lambda: space["none"])
    refused(errors.NotFound, "unknown branch 'no'", lambda: space.read("a", "no"))
    refused(errors.NotFound, "unknown branch 'no'", lambda: space.set("a", {}, branch="no"))
    refused(errors.NotFound, "unknown branch 'no'", lambda: space.branches.get("no"))
    refused(errors.InvalidInput, "'' is not the id of an entity", lambda: space.set("", {}))
    space.branches.create("b")
    refused(
        errors.AlreadyExists,
        "branch 'b' already exists, or existed",
        lambda: space.branches.create("b"),
    )
    with pytest.raises(errors.InvalidInput) as caught:
        space.patch("a", [{"op": "remove", "path": "/n"}])
    assert caught.value.message == "operation 0 on 'a': patch 0 (remove /n): nothing is at /n"
    assert caught.value.details == {"entity": "a", "operation": 0}
    refused(
        errors.InvalidInput,
        "at must be a seq from 0 to 1, got 99",
        lambda: space.read("a", at=99),
    )
    refused(
        errors.InvalidInput,
        "at must be a seq or a datetime, got 'now'",
        lambda: space.read("a", at="now"),
    )
    with pytest.raises(errors.ContentError):
        space.set("a", {"n": float("nan")})


def test_blobs_are_stored_by_their_hash(space):
    blob = space.blobs.put(b"\xff" * 3, "image/png", metadata={"name": "logo"})
    assert space.blobs.get(blob) == b"\xff" * 3
    assert space.blobs.stat(blob) == documents.BlobStat(blob, 3, "image/png")
    assert space.blobs.meta(blob).document["value"] == {
        "blob": blob,
        "size": 3,
        "content_type": "image/png",
        "name": "logo",
    }
    plain = space.blobs.put(b"")
    assert space.blobs.stat(plain).content_type is None
    assert list(space.blobs.ids()) == sorted([blob, plain])
    assert [stat.hash for stat in space.blobs.list()] == sorted([blob, plain])
    [last] = space.blobs.list(after=min(blob, plain), limit=1)
    assert last == space.blobs.stat(max(blob, plain))
    assert space.blobs.describe(plain, {"name": "nothing"}).seq == 2
    missing = f"sha256:{'0' * 64}"
    assert not space.blobs.has(missing)
    with pytest.raises(errors.NotFound, match=f"blob {missing} does not exist"):
        space.blobs.get(missing)
    with pytest.raises(errors.ContentError):
        space.blobs.get("sha256:1")


def test_commits_are_followed(space):
    space.set("a", {"n": 1})
    with space.follow(after=0) as commits:
        assert [row.data for row in next(commits).revisions] == [{"n": 1}]
        timer = threading.Timer(0.1, lambda: space.set("b", {"n": 2}))
        timer.start()
        commit = commits.next(30)
        timer.join()
        assert (commit.seq, commit.revisions[0].id) == (2, "b")
        assert commits.position == 2
        assert commits.next(0.05) is None
    with space.follow(["b"]) as commits:
        assert commits.position == 2
        space.set("a", {"n": 3})
        space.transact([{"op": "set", "id": id_, "value": {}} for id_ in ("a", "b")])
        assert [[row.id for row in commit.revisions] for commit in take(commits, 1)] == [["b"]]
    refused(
        errors.InvalidInput,
        "after must be a seq from 0 to 4, got 9",
        lambda: space.follow(after=9),
    )


def test_documents_that_match_a_filter_are_followed(space):
    start = space.seq()
    opened, closed = {"status": "open", "n": 1}, {"status": "closed"}
    space.set("a", opened)
    space.set("b", closed)
    reopen = {
        "op": "patch",
        "id": "b",
        "patches": [{"op": "replace", "path": "/status", "value": "open"}],
    }
    space.transact([{"op": "set", "id": "a", "value": {**opened, "n": 2}}, reopen])
    space.set("c", closed)
    space.transact([{"op": "set", "id": "a", "value": closed}, {"op": "delete", "id": "b"}])
    space.delete("c")
    expected = [
        [("enter", "a", "set", opened)],
        [("change", "a", "set", {**opened, "n": 2}), ("enter", "b", "patch", {"status": "open"})],
        [("leave", "a", "set", closed), ("leave", "b", "delete", None)],
    ]
    with space.follow(where={"status": "open"}, after=start) as commits:
        shown = [commits.next(timeout=30) for _ in expected]
        assert [
            [tuple(getattr(row, name) for name in row.__struct_fields__) for row in c.changes]
            for c in shown
        ] == expected
        assert [commit.seq for commit in shown] == [start + 1, start + 3, start + 5]
        with space.follow(where={"status": "open"}, after=shown[0].seq) as resumed:
            assert take(resumed, 2) == shown[1:]
        assert commits.next(timeout=0) is None
        space.set("d", opened)
        assert commits.next(timeout=30).changes[0].id == "d"
    with space.watch(["b"], start, where={"status": "open"}) as some:
        kinds = [[row.kind for row in commit.changes] for commit in take(some, 2)]
    assert kinds == [["enter"], ["leave"]]
    refused(
        errors.InvalidInput,
        "/status: unknown operator '$near'",
        lambda: space.follow(where={"status": {"$near": 1}}),
    )


def test_commits_are_followed_by_coroutines(space):
    async def work():
        seqs = []
        with space.follow(after=0, timeout=30) as commits:
            writing = asyncio.gather(
                *(space.transact_async([{"op": "set", "id": "a", "value": {}}]) for _ in range(5))
            )
            async for commit in commits:
                seqs.append(commit.seq)
                if len(seqs) == 5:
                    break
            await writing
        return seqs

    assert asyncio.run(work()) == [1, 2, 3, 4, 5]
