"""Changes of branches, sessions and graphs in an archive have the images of naive records."""

from __future__ import annotations

import json
import random

import pytest
import random_graphs
from archive_reads import publish
from equal_lives import LIVES_OF, Documents, remove_files
from stream_driver import follow

import fourfold
from fourfold.errors import InvalidInput
from fourfold.models.graphs.records import KINDS
from fourfold.pipeline.image_changes import image_log
from fourfold.pipeline.source import FourfoldSource
from fourfold.pipeline.spark import unwrap_error
from fourfold.store import retention
from support.document_model import text

DOCUMENTS = "space string, branch string, id string, seq long, change string, before string"
DOCUMENTS += ", after string"
SESSIONS = "session string, position long, entity string, entity_id long, change string"
SESSIONS += ", before string, after string"
GRAPHS = "app string, object_id long, version long, global_seq long, change string, before string"
GRAPHS += ", after string"


def read_changes(store, table, columns, start=None, **options):
    objects = store.root / "objects"
    rows, _, end = follow(columns, start, archive=objects, table=table, **options)
    return rows, end


def kind(before, after):
    return "delete" if after is None else "insert" if before is None else "update"


def document_changes(life, branch):
    """Return the changes of spaces of revisions, from full copies of every seq."""
    found = []
    for did in (Documents.KEPT, Documents.COLLECTED):
        for name, line in life.models[did].lines.items():
            if branch not in {"*", name}:
                continue
            touched = {(row.id, row.seq) for row in line.written if row.branch == name}
            for entity, seq in touched:
                before, after = (line.states[at].get(entity) for at in (seq - 1, seq))
                images = [None if state is None else state.text for state in (before, after)]
                found.append((did, name, entity, seq, kind(*images), *images))
    return found


def session_changes(life):
    found = []
    for sid, session in life.kept.items():
        newest = {}
        for position, entity, _, number, value in session.items:
            if entity:
                before, after = newest.get((entity, number)), text(value)
                change = kind(before, after)
                found.append((sid, position, entity, number, change, before, after))
                newest[entity, number] = after
    return found


def graph_changes(life):
    """Return the changes of attributes: their values."""
    found = []
    newest = {}
    for row in life.rows:
        if row["kind"] == "attr":
            before, after = newest.get(row["object"]), row["value"]
            key = (life.APP, row["object"], row["version"], row["seq"])
            found.append((*key, kind(before, after), before, after))
            newest[row["object"]] = after
    return found


def whole(image):
    return None if image is None else text(json.loads(image))


def value_of(image):
    return None if image is None else json.loads(image)["value_text"]


CASES = {
    "branches": ("documents", "documents.changes", DOCUMENTS, whole, {"branch": "*"}),
    "default": ("documents", "documents.changes", DOCUMENTS, whole, {"branch": ""}),
    "sessions": ("sessions", "sessions.changes", SESSIONS, whole, {}),
    "graphs": ("graphs", "graphs.attr_changes", GRAPHS, value_of, {}),
}


def expected_of(case, life):
    if case in {"branches", "default"}:
        return document_changes(life, CASES[case][4]["branch"])
    return session_changes(life) if case == "sessions" else graph_changes(life)


def in_order(rows):
    return sorted(rows, key=repr)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_changes_equal_a_naive_record_in_every_batch(tmp_path, case, seed):
    model, table, columns, image, options = CASES[case]
    life = LIVES_OF[model](random.Random(seed))
    with fourfold.open(tmp_path / "store") as store:
        start, seen = None, []

        def shown(rows):
            # Random lives beside those of the record have no expected images.
            names = {row[0] for row in expected_of(case, life)}
            return [(*row[:-2], *map(image, row[-2:])) for row in rows if row[0] in names]

        for number in range(4):
            life.write(store)
            publish(store)
            if number % 2:
                assert not retention.merge(store).failures
            rows, start = read_changes(store, table, columns, start, max_rows=10, **options)
            seen += rows
            assert in_order(shown(seen)) == in_order(expected_of(case, life)) != []
        again, _ = read_changes(store, table, columns, **options)
        assert in_order(again) == in_order(seen), "in one batch, and compacted"


@pytest.mark.parametrize("case", ["sessions", "graphs"])
def test_database_that_is_created_again_is_not_skipped(tmp_path, case):
    model, table, columns, image, _ = CASES[case]
    life = LIVES_OF[model](random.Random(4))
    start = None
    for _ in range(2):
        with fourfold.open(tmp_path / "store") as store:
            life.write(store)
            publish(store)
            rows, start = read_changes(store, table, columns, start)
            expected = expected_of(case, life)
            names = {row[0] for row in expected}
            found = [(*row[:-2], *map(image, row[-2:])) for row in rows if row[0] in names]
            assert in_order(found) == in_order(expected) != []
        remove_files(tmp_path / "store", life.files)
        life.forget()


def test_first_change_of_a_branch_follows_its_parent(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        space = store.space("did:key:a")
        space.set("x", {"n": 1})
        publish(store)
        space.branches.create("one")
        space.branches.create("two", "one")
        space.set("x", {"n": "later"})
        space.patch("x", [{"op": "add", "path": "/m", "value": 2}], branch="two")
        publish(store)
        end = {"point": 1, "token": json.loads(json.dumps(newest_token(store, 1)))}
        rows, _ = read_changes(store, "documents.changes", DOCUMENTS, end, branch="two")
        assert rows == [("did:key:a", "two", "x", 5, "update", '{"n":1}', '{"m":2,"n":1}')]
        rows, _ = read_changes(store, "documents.changes", DOCUMENTS, end)
        assert [row[1:] for row in rows] == [("", "x", 4, "update", '{"n":1}', '{"n":"later"}')]


def newest_token(store, point):
    from fourfold.pipeline.archive_changes import ArchiveChanges  # noqa: PLC0415

    changes = ArchiveChanges(str(store.root / "objects"), "documents.revision")
    return changes._refresh().commit_at(point).token


def test_objects_of_several_nodes_have_images_of_the_current_version(tmp_path):
    with fourfold.open(tmp_path / "store") as store, fourfold.open(tmp_path / "other") as other:
        life = random_graphs.Life(store, other)
        for number in range(3):
            random_graphs.lives_of(life, 6, seed=number)
            store.graphs.update_sync_flags(1, "parent", [1], number % 2)
            publish(store)
        node = store.graphs.node
        for name in KINDS:
            rows, _ = read_changes(store, f"graphs.{name}_changes", GRAPHS)
            written = store.sql(f"select * from graphs_{name}s", max_rows=10**6).dicts()
            current = {}
            for row in sorted(written, key=lambda row: row["global_seq"]):
                key = (row["app"], row["object_id"])
                rank = (row["version"], row["origin"] or node)
                if key not in current or rank > current[key]:
                    current[key] = rank
            assert len({row[:4] for row in rows}) == len(rows)
            shown = {row[:2]: row[2] for row in sorted(rows, key=lambda row: row[3])}
            assert shown == {key: rank[0] for key, rank in current.items()} != {}


def test_branch_is_an_option_of_documents_alone(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "s"})
        publish(store)
        options = {"archive": str(store.root / "objects"), "branch": "*"}
        for table in ("sessions.changes", "sessions.events", "documents.revision"):
            with pytest.raises(Exception, match="'branch' is not supported") as caught:
                FourfoldSource({**options, "table": table}).schema()
            assert isinstance(unwrap_error(caught.value), InvalidInput)


@pytest.mark.parametrize("name", ["none", "none.changes", "streams.changes", "documents.revision"])
def test_other_tables_have_no_images(name):
    assert image_log(name) is None
