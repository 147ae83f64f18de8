"""A streaming read of an archive has every row of every point once, with offsets of one point."""

from __future__ import annotations

import itertools
import json
import shutil

import pytest
from archive_reads import publish
from stream_driver import follow

import fourfold
from fourfold.errors import HistoryTruncated, InvalidInput, NotFound, SequenceRegression
from fourfold.pipeline.archive_changes import START, ArchiveChanges, read_changes
from fourfold.pipeline.source import FourfoldSource
from fourfold.pipeline.spark import unwrap_error
from fourfold.store import retention
from fourfold.store.restoration import rebuild

A, B = "did:web:a.example", "did:web:b.example"
COLUMNS = "space string, id string, seq long"


def write(store, did, *ids):
    for name in ids:
        store.space(did).set(name, {"n": len(name)})


def changes(store, **options):
    return follow(COLUMNS, archive=objects(store), table="documents.revision", **options)


def objects(store):
    return store.root / "objects"


def raises(kind, **options):
    """Return the error of a read."""
    with pytest.raises(Exception) as caught:
        follow(COLUMNS, **options)
    error = unwrap_error(caught.value)
    assert isinstance(error, kind), error
    return str(error)


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


def test_stream_has_every_published_row_once(store):
    write(store, A, "a", "b")
    publish(store)
    rows, sizes, end = changes(store)
    assert rows == [(A, "a", 1), (A, "b", 2)]
    write(store, A, "c")
    assert changes(store, start=end)[0] == [], "it is not published"
    write(store, B, "d", "e")
    publish(store)
    rows, sizes, later = changes(store, start=end)
    assert rows == [(A, "c", 3), (B, "d", 1), (B, "e", 2)]
    assert sizes == [3]
    assert set(later) == {"point", "token"}
    assert changes(store, start=later) == ([], [], later)


def test_offset_does_not_grow_with_the_databases(store):
    sizes = set()
    for number in range(12):
        write(store, f"did:key:z{number}", "a")
        publish(store)
        sizes.add(len(json.dumps(changes(store)[2])) - len(str(changes(store)[2]["point"])))
    assert len(sizes) == 1


def test_batches_have_whole_points_within_the_limit(store):
    for number in range(6):
        write(store, A, *(f"{number}-{at}" for at in range(3)))
        publish(store)
    assert changes(store, max_rows=100)[1] == [18]
    assert changes(store, max_rows=7)[1] == [6, 6, 6]
    assert changes(store, max_rows=1)[1] == [3] * 6, "at least one point"
    assert not retention.merge(store).failures
    assert changes(store, max_rows=7)[1] == [6, 6, 6], "compacted files have several points"


def test_repeated_batch_has_the_same_rows_after_compaction(store):
    ends = [START]
    for number in range(3):
        write(store, A, *(f"{number}-{at}" for at in range(3)))
        write(store, B, f"{number}")
        publish(store)
        ends.append(changes(store)[2])

    def batch(start, end):
        read = ArchiveChanges(str(objects(store)), "documents.revision")
        files = read.files(start, end, ["space", "id", "seq"])
        rows = [row for file in files for batch in read_changes(file) for row in batch.to_pylist()]
        return sorted(tuple(row.values()) for row in rows)

    before = [batch(start, end) for start, end in itertools.pairwise(ends)]
    assert [len(rows) for rows in before] == [4, 4, 4]
    assert not retention.merge(store).failures
    write(store, A, "later")
    publish(store)
    assert [batch(start, end) for start, end in itertools.pairwise(ends)] == before
    assert len(batch(START, ends[-1])) == 12


def test_run_ends_at_the_point_where_it_began(store):
    write(store, A, "a")
    publish(store)
    read = ArchiveChanges(str(objects(store)), "documents.revision")
    read.freeze_end()
    write(store, A, "b")
    publish(store)
    end = read.end_offset(START, None)
    assert end != read.newest_offset()
    assert read.end_offset(end, None) == end
    assert read.end_offset(read.newest_offset(), None) == read.newest_offset()


def test_changed_rows_appear_again_with_their_point(store):
    app = store.graphs.register_app("notes", "Notes").app_id
    note = store.graphs.register_type(app, "parent", "note")
    store.graphs.insert_parent(app, {"type_id": note, "owner_identity": 1})
    publish(store)
    columns = "_table string, id long, sync_flags long, _op string"
    options = {"archive": objects(store), "table": "graphs.parent"}
    first, _, end = follow(columns, **options)
    table = f"app_{app}_parent"
    [key] = [row[1] for row in first if row[0] == table]
    assert (table, key, 0, "put") in first
    store.graphs.update_sync_flags(app, "parent", [key], 3)
    publish(store)
    assert follow(columns, start=end, **options)[0] == [(table, key, 3, "put")]


def test_space_created_again_is_read_from_its_first_commit(store):
    write(store, A, "a", "b")
    publish(store)
    end = changes(store)[2]
    store.close()
    for path in (store.root / "spaces").iterdir():
        path.unlink()
    with fourfold.open(store.root) as again:
        write(again, A, "new")
        publish(again)
        assert changes(again, start=end)[0] == [(A, "new", 1)]
        assert changes(again)[0] == [(A, "new", 1)], "rows of the deleted file do not count"


def test_removed_points_are_history_truncated(store):
    ends = []
    for name in "abc":
        write(store, A, name)
        publish(store)
        ends.append(changes(store)[2])
    retention.collect(store, keep=retention.Keep(points=1))
    assert changes(store, start=ends[2])[0] == []
    options = {"archive": objects(store), "table": "documents.revision"}
    assert "was removed" in raises(HistoryTruncated, start=ends[0], **options)
    assert changes(store)[0] == [(A, "a", 1), (A, "b", 2), (A, "c", 3)]


def test_another_archive_is_refused(store, tmp_path):
    write(store, A, "a")
    publish(store)
    shutil.copytree(objects(store), tmp_path / "copy")
    write(store, A, "b")
    publish(store)
    end = changes(store)[2]
    older = {"archive": tmp_path / "copy", "table": "documents.revision"}
    assert "is not the one" in raises(SequenceRegression, start=end, **older)
    with fourfold.open(tmp_path / "other") as other:
        for name in "abc":
            write(other, A, name)
            publish(other)
        another = {"archive": objects(other), "table": "documents.revision"}
        assert "is not the one" in raises(SequenceRegression, start=end, **another)


def test_database_published_again_after_a_takeover_appears_again(store, tmp_path):
    write(store, A, "a")
    first = publish(store)
    write(store, A, "b")
    publish(store)
    end = changes(store)[2]
    url = str(objects(store))
    with fourfold.open(tmp_path / "second", settings={"objects.url": url}) as second:
        assert not rebuild(second, at=first.id, take_over=True).failures
        write(second, A, "c")
        publish(second)
        assert changes(store, start=end)[0] == [(A, "a", 1), (A, "c", 2)]


def test_options_of_an_archive_are_checked(store, tmp_path):
    write(store, A, "a")
    publish(store)

    def problem(kind, **options):
        texts = {name: str(value) for name, value in options.items()}
        with pytest.raises(Exception) as caught:
            FourfoldSource(texts).schema()
        error = unwrap_error(caught.value)
        assert isinstance(error, kind)
        return f"{error} {error.hint}"

    archive = {"archive": objects(store)}
    assert "documents.revision" in problem(NotFound, **archive, table="documents.nothing")
    assert "does not exist" in problem(NotFound, archive=tmp_path / "no", table="a.b")
    assert not (tmp_path / "no").exists()
    assert "not an archive" in problem(NotFound, archive=tmp_path, table="documents.revision")
    assert "'where' is not supported" in problem(InvalidInput, **archive, where="seq > 1")
    assert "required" in problem(InvalidInput, **archive)
    table = {**archive, "table": "documents.revision"}
    assert "distinct" in problem(InvalidInput, **table, columns="id,id")
    assert "positive" in problem(InvalidInput, **table, max_rows="0")
    texts = {name: str(value) for name, value in table.items()}
    ddl = FourfoldSource({**texts, "columns": "seq,_op"}).schema()
    assert ddl == "`seq` bigint, `_op` string"
    with pytest.raises(Exception, match="only supported by a streaming read"):
        FourfoldSource(texts).reader(None)


# Several archives


def test_archives_are_read_together_with_a_point_of_each(tmp_path):
    roots = [tmp_path / name for name in ("one", "two", "three")]
    for number, root in enumerate(roots):
        with fourfold.open(root) as opened:
            for step in range(3):
                write(opened, f"did:key:{number}", f"{step}-a", f"{step}-b")
                publish(opened)

    def together(count, **options):
        urls = ",".join(str(root / "objects") for root in roots[:count])
        return follow(COLUMNS, archive=urls, table="documents.revision", **options)

    def rows_of(numbers, steps=range(3)):
        return sorted(
            (f"did:key:{number}", f"{step}-{name}", 2 * step + at)
            for number in numbers
            for step in steps
            for at, name in enumerate("ab", 1)
        )

    rows, sizes, end = together(2, max_rows=4)
    assert rows == rows_of([0, 1])
    assert sizes == [4, 4, 4], "an equal share of each"
    assert end.keys() == {str(root / "objects") for root in roots[:2]}
    with fourfold.open(roots[1]) as opened:
        write(opened, "did:key:1", "3-a", "3-b")
        publish(opened)
    rows, _, later = together(3, start=end)
    assert rows == sorted(rows_of([2]) + rows_of([1], [3])), "the third one from its beginning"
    assert together(3, start=later) == ([], [], later)
    changed, _, _ = follow(
        "space string, change string",
        archive=f"{roots[0] / 'objects'},{roots[2] / 'objects'}",
        table="documents.changes",
    )
    assert changed == [("did:key:0", "insert")] * 6 + [("did:key:2", "insert")] * 6


def test_odd_lists_of_archives_are_refused(store):
    write(store, A, "a")
    publish(store)
    one = objects(store)
    assert "distinct URLs" in raises(
        InvalidInput, archive=f"{one},{one}", table="documents.changes"
    )
    assert "distinct URLs" in raises(InvalidInput, archive=" , ", table="documents.changes")
    with fourfold.open(store.root.with_name("none")) as other:
        other.sessions.create_session({"id": "s"})
        publish(other)
        both = f"{one},{objects(other)}"
        raises(NotFound, archive=both, table="documents.revision")
