"""Claims about single rules of verification, and about what a fault tells a program."""

from __future__ import annotations

import pickle
import shutil

import apsw
import pytest
from lived_in_space import lived_in
from space_machine import DID

import fourfold
from fourfold.errors import CorruptData
from fourfold.models.documents import HISTORIES, GcPolicy, fold, verify
from fourfold.models.documents.file_verify import rules_of, verify_file
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.problems import make_problem


@pytest.fixture(params=["whole", "in parts"])
def size(request, monkeypatch):
    """Lets the file be verified at once, or part by part as a large one is."""
    if request.param == "in parts":
        monkeypatch.setattr("fourfold.models.documents.verify.VERIFY_SLICE_BYTES", 8_192)


@pytest.fixture(scope="module", params=sorted(HISTORIES))
def sound(request, tmp_path_factory):
    """A closed store with one sound space, to be copied."""
    root = tmp_path_factory.mktemp("sound") / "store"
    with fourfold.open(root) as store:
        space = store.space(DID, history=request.param)
        lived_in(space)
        space.blobs.put(b"some bytes", metadata={"title": "t"})
    [path] = (root / "spaces").glob("*.sqlite")
    assert list(verify_file(path)) == []
    return root


@pytest.fixture
def file(sound, root, size):
    """The file of a sound space, closed."""
    del size
    shutil.copytree(sound, root, ignore=shutil.ignore_patterns("*.lock"))
    [path] = (root / "spaces").glob("*.sqlite")
    return path


def change(path, *statements):
    connection = apsw.Connection(str(path))
    connection.pragma("foreign_keys", 0)
    for sql in statements:
        connection.execute(sql)
    connection.close()


def found(path, table):
    return [each for each in verify_file(path) if each.table == table]


def test_text_that_became_bytes_is_found_though_it_reads_same(file):
    change(file, 'UPDATE "commit" SET original = CAST(original AS BLOB) WHERE seq = 2')
    assert any("another kind of value" in each.message for each in found(file, "commit"))


def test_commit_that_is_gone_with_all_its_rows_is_missed(file):
    log = "revision" if "facts" not in history_of(file) else "occurrence"
    change(
        file,
        'DELETE FROM "commit" WHERE seq = 3',
        f"DELETE FROM {log} WHERE seq = 3",
    )
    [missing] = [each for each in found(file, "commit") if "commit 3 is missing" in each.message]
    assert (missing.key, missing.expected, missing.found) == ({"seq": 3}, "3", "4")


def history_of(path):
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    [(model,)] = connection.execute("SELECT value FROM kernel_meta WHERE key = 'model'")
    connection.close()
    return model


def test_a_blob_that_is_described_and_gone_is_missed(file):
    change(file, "DELETE FROM blob_store")
    [missing] = found(file, "blob_store")
    assert "is missing" in missing.message


def test_a_schema_that_is_not_ours_any_more_is_found(file):
    change(file, "DROP INDEX idx_branch_status")
    [fault] = found(file, "sqlite_schema")
    assert fault.key == {"type": "index", "name": "idx_branch_status"}
    assert fault.expected.startswith("branch: CREATE INDEX idx_branch_status")


def test_what_every_file_says_about_itself_is_checked(file):
    change(file, "DELETE FROM kernel_meta WHERE key = 'database_id'")
    [fault] = found(file, "kernel_meta")
    assert fault.key == {"key": "database_id"}


def test_patch_that_does_not_apply_is_reported_despite_valid_digests(file, monkeypatch):
    """As if the rules of the fold had changed under the log."""
    whole = fold.fold

    def stumbles(base, rows):
        rows = list(rows)
        if any(seq == 2 and op == "patch" for seq, op, _ in rows):
            raise ValueError("does not apply")
        return whole(base, rows)

    monkeypatch.setattr(fold, "fold", stumbles)
    [fault] = found(file, "revision")
    assert fault.key == {"branch": "", "id": "a", "seq": 2}
    assert "cannot be replayed: does not apply" in fault.message


def test_branch_forked_from_itself_is_found_and_reading_it_ends(file, root):
    change(file, "UPDATE branch SET parent_branch = name WHERE name = 'f'")
    assert any("'f' does not match the log" in each.message for each in found(file, "branch"))
    with fourfold.open(root) as store, pytest.raises(CorruptData, match="nested deeper"):
        store.space(DID).read("a", "f", at=store.space(DID).seq())


def test_a_snapshot_is_compared_with_what_replay_gives(file):
    change(file, "UPDATE snapshot SET seq = seq + 1")
    faults = found(file, "snapshot")
    assert faults
    assert all(
        each.expected is not None and "does not match the log" in each.message for each in faults
    )


def test_changed_revision_is_reported_with_its_row(root):
    with fourfold.open(root) as store:
        store.space(DID, "revisions").set("a", {"n": 1})
        store.space(DID).set("b", {"n": 2})
    [path] = (root / "spaces").glob("*.sqlite")
    change(path, "UPDATE revision SET data = '{\"n\":3}' WHERE id = 'b'")
    [fault] = found(path, "revision")
    assert fault.key == {"branch": "", "id": "b", "seq": 2, "op_index": 0}
    assert '{"n":2}' in fault.expected
    assert '{"n":3}' in fault.found


def test_rules_have_distinct_names(file):
    history = HISTORIES["facts" if "facts" in history_of(file) else "revisions"]
    names = [rule.name for rule in rules_of(history)]
    assert len(names) == len(set(names))


def test_problem_shortens_values_and_survives_pickling(file):
    fault = make_problem("it broke", "head", {"id": b"a"}, expected="x" * 1000, found=b"\xff")
    again = pickle.loads(pickle.dumps(fault))
    assert again == fault
    assert str(again) == "it broke"
    assert (again.table, again.key, again.found) == ("head", {"id": "a"}, "\\xff")
    assert len(again.expected) < 300


@pytest.mark.parametrize("history", sorted(HISTORIES))
def test_a_large_space_is_verified_in_several_read_transactions(root, history, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.verify.VERIFY_SLICE_BYTES", 8_192)
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        lived_in(space)
        states = []
        read = space.database.read_step

        def read_and_commit():
            # Each transaction that is opened later sees one more commit.
            states.append(space.set("written-meanwhile", {"n": len(states)}).seq)
            return read()

        monkeypatch.setattr(space.database, "read_step", read_and_commit)
        assert space.verify() == []
        assert len(states) > 10


@pytest.mark.parametrize("history", sorted(HISTORIES))
def test_verify_reads_branches_from_a_few_commits_at_a_time(root, history, monkeypatch):
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        lived_in(space)
        for number in range(300):
            space.set("often", {"n": number})
        monkeypatch.setattr("fourfold.models.documents.verify.VERIFY_SLICE_BYTES", 32_768)
        counts, late = [], []

        class Counting(HistoryReader):
            def rows(self, sql, params=()):
                for row in super().rows(sql, params):
                    counts[-1] += sql == self.sql.verify_lines
                    yield row

        def view(snapshot):
            counts.append(0)
            if sum(counts) and not late:
                late.append("late")
                space.branches.create(*late)
            return Counting(snapshot, space.history_kind.sql)

        monkeypatch.setattr(type(space.history_kind), "view", lambda _, snapshot: view(snapshot))
        assert space.verify() == []
    assert late
    assert sum(counts) > 300
    assert max(counts) < 100, counts


@pytest.fixture(params=sorted(HISTORIES))
def long_history(request, root):
    """A store with an entity of 200 revisions and their snapshots, and others around it."""
    with fourfold.open(root) as store:
        space = store.space(DID, history=request.param)
        space.transact([{"op": "set", "id": f"e{n}", "value": {"n": n}} for n in range(9)])
        for _ in range(200):
            space.patch("e5", [{"op": "increment", "path": "/n", "by": 1}])
        space.maintain()
        yield store


def test_long_history_is_replayed_few_rows_at_time(long_history, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.verify.VERIFY_SLICE_BYTES", 8_192)
    space = long_history.space(DID)
    counts, late = [], []

    class Counting(HistoryReader):
        def rows(self, sql, params=()):
            for row in super().rows(sql, params):
                counts[-1] += sql == self.sql.verify_operations
                yield row

    def view(snapshot):
        counts.append(0)
        if sum(counts) >= 100 and not late:
            late.append({"op": "increment", "path": "/n", "by": 1})
            space.patch("e5", late)
        return Counting(snapshot, space.history_kind.sql)

    monkeypatch.setattr(type(space.history_kind), "view", lambda _, snapshot: view(snapshot))
    assert space.verify() == []
    assert late
    assert sum(counts) >= 209
    assert max(counts) < 60, counts


def test_history_may_be_collected_while_it_is_replayed(long_history, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.verify.VERIFY_SLICE_BYTES", 8_192)
    space = long_history.space(DID)
    pages, opened = [], verify._Replay.rows

    def rows(self, view, part):
        pages.append(part.after)
        return opened(self, view, part)

    read = space.database.read_step

    def read_and_collect():
        if len(pages) == 4:
            pages.append("collected")
            space.gc(GcPolicy(keep_seqs=3))
        return read()

    monkeypatch.setattr("fourfold.models.documents.verify._Replay.rows", rows)
    monkeypatch.setattr(space.database, "read_step", read_and_collect)
    assert space.verify() == []
    assert space.horizon() > 0
    assert len(pages) > 5


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE snapshot SET {value} = '{{\"n\":-1}}' WHERE id = 'e5' AND seq > 80",
        "DELETE FROM {log} WHERE id = 'e5' AND seq = 100",
        "UPDATE {log} SET branch = CAST(branch AS BLOB) WHERE id = 'e5' AND seq > 150",
        "UPDATE {log} SET id = CAST(x'ff' AS TEXT) WHERE id = 'e5' AND seq > 150",
    ],
)
def test_verify_in_parts_finds_the_same_damage(long_history, damage, monkeypatch):
    space = long_history.space(DID)
    path, revisions = space.database.path, space.history_kind.name == "revisions"
    names = {"log": "revision" if revisions else "occurrence"}
    names["value"] = "value" if revisions else "text"
    long_history.close()
    change(path, damage.format(**names))
    at_once = verify_file(
        path, [rule.name for rule in rules_of(HISTORIES[space.history_kind.name])]
    )
    monkeypatch.setattr("fourfold.models.documents.verify.VERIFY_SLICE_BYTES", 8_192)
    in_parts = {(each.table, each.message) for each in verify_file(path)}
    assert in_parts == {(each.table, each.message) for each in at_once}
    assert in_parts


@pytest.mark.parametrize("history", sorted(HISTORIES))
def test_commits_written_during_verification_are_left_to_the_next_one(root, history):
    with fourfold.open(root) as store:
        space = store.space(DID, history=history)
        lived_in(space)
        with space.background_view() as view:
            divided = list(verify.parts(view, verify.rules(space.history_kind), 4))
    ranges = [part for names, part in divided if "commits" in names]
    assert [low for (low,), _ in ranges[1:]] == [high for _, (high,) in ranges[:-1]]
    assert ranges[-1].high == (space_seq(root) + 1,)


def space_seq(root):
    with fourfold.open(root) as store:
        return store.space(DID).position()
