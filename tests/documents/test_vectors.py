"""Indexes of vectors: what a search finds at every point, and what carries an index along."""

from __future__ import annotations

import math

import pytest
from space_machine import DID
from test_indexes import run_nothing

import fourfold
from fourfold.errors import Busy, InvalidInput, LimitExceeded, MissingDependency, Refused
from fourfold.models.documents import bundle
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.indexes import builder, finder

EAST, NORTH, UP = [1, 0, 0], [0, 2, 0], [0, 0, 0.5]


@pytest.fixture
def places(space):
    space.set("east", {"at": EAST})
    space.set("north", {"at": NORTH})
    space.set("northeast", {"at": [3, 3, 0]})
    space.set("flat", {"at": [1, 0]})
    for number, value in enumerate(([0, 0, 0], [], [1, "x", 0], [1, True, 0], "x", 10**400)):
        space.set(f"none{number}", {"at": value})
    space.indexes.create("places", "/at", kind="vector")
    return space


def ids(space, vector, **options):
    return [hit.id for hit in space.search(vector=vector, **options)]


def test_nearest_vectors_come_first(places):
    page = places.search(vector=[5, 1, 0])
    assert [hit.id for hit in page] == ["east", "northeast", "north"]
    assert (page.total, page.index, page.next) == (3, "places", None)
    expected = [5 / math.sqrt(26), 6 / math.sqrt(52), 1 / math.sqrt(26)]
    assert [hit.score for hit in page] == pytest.approx(expected, abs=1e-6)
    assert page.items[0].document == {"at": EAST}
    assert page.items[0].snippets == ()


def test_only_vectors_of_the_same_length_are_compared(places):
    assert ids(places, [-1, 0]) == ["flat"]
    assert ids(places, [1, 1, 1, 1]) == []


def test_large_and_small_numbers_keep_their_direction(places):
    places.set("far", {"at": [1e300, 0, 1e300]})
    places.set("near", {"at": [1e-300, 0, 1e-300]})
    hits = {hit.id: hit.score for hit in places.search(vector=[0, 0, 1e-200])}
    assert hits["far"] == hits["near"] == pytest.approx(math.sqrt(0.5), abs=1e-6)


def test_search_at_every_seq_and_on_branches(places):
    start = places.seq()
    places.set("east", {"at": UP})
    places.branches.create("work", at=start)
    places.delete("north")
    places.set("northeast", {"at": [0, 1, 1]}, branch="work")
    assert ids(places, UP, limit=1) == ["east"]
    assert ids(places, NORTH) == ["northeast", "east"]
    assert ids(places, NORTH, at=start) == ["north", "northeast", "east"]
    assert ids(places, EAST, branch="work") == ["east", "north", "northeast"]
    assert sorted(ids(places, NORTH, at=start + 1)) == ["east", "north", "northeast"]
    assert ids(places, NORTH, at=0) == []
    assert places.verify() == []


def test_pages_continue_at_the_seq_of_the_first(places):
    first = places.search(vector=EAST, limit=2)
    places.set("east", {"at": UP})
    places.set("more", {"at": EAST})
    second = places.search(vector=EAST, limit=2, after=first.next)
    assert [hit.id for hit in [*first, *second]] == ["east", "northeast", "north"]
    assert second.next is None
    with pytest.raises(InvalidInput, match="after"):
        places.search(vector=NORTH, limit=2, after=first.next)


@pytest.mark.parametrize(
    "vector", [[], [0, 0], ["x"], [True], [math.inf], [math.nan], "xyz", 5, [1] * 8_193]
)
def test_bad_vectors_are_refused(places, vector):
    with pytest.raises(InvalidInput, match="vector must be a list"):
        places.search(vector=vector)


@pytest.fixture
def goods(space):
    """Documents with words, a vector and a number; the two kinds of search rank them apart."""
    for number in range(12):
        words = " ".join(["soup"] * (number % 4) + ["bread"] * (number % 3))
        document = {"text": words, "n": number, "at": [1, number, number % 5]}
        space.set(f"g{number:02}", {k: v for k, v in document.items() if k != "at" or number % 6})
    space.indexes.create("words", "/text", kind="text")
    space.indexes.create("near", "/at", kind="vector")
    return space


def fused(*rankings):
    """Ids by the sum of their reciprocal ranks, the greatest first."""
    scores = {}
    for ranking in rankings:
        for rank, entity in enumerate(ranking, 1):
            scores[entity] = scores.get(entity, 0) + 1 / (60 + rank)
    return sorted(scores, key=lambda entity: (-scores[entity], entity))


@pytest.mark.parametrize("indexed", [False, True])
def test_filter_limits_words_and_vectors_at_every_point(goods, indexed):
    if indexed:
        goods.indexes.create("by_n", "/n")
    before = goods.seq()
    goods.set("g01", {"n": 1, "at": [0, 1, 0], "text": "soup soup soup"})
    goods.branches.create("work")
    goods.delete("g02", branch="work")
    where = {"n": {"$lt": 6}}
    for point in ({}, {"at": before}, {"branch": "work"}):
        for query in ({"vector": [1, 3, 0]}, {"query": "soup"}):
            everything = goods.search(**query, **point)
            expected = [hit.id for hit in everything if hit.document["n"] < 6]
            page = goods.search(**query, where=where, **point)
            assert [hit.id for hit in page] == expected
            assert page.total == len(expected) > 1
    assert goods.search("soup", where={"n": 99}).total == 0


def test_words_and_vector_combine_their_ranks(goods):
    words, near = goods.search("soup"), goods.search(vector=[1, 3, 0])
    expected = fused([hit.id for hit in words], [hit.id for hit in near])
    page = goods.search("soup", vector=[1, 3, 0], limit=5)
    assert (page.total, page.index, len(page)) == (len(expected), "words, near", 5)
    assert page.items[0].score == max(hit.score for hit in page) > 0
    assert page.items[0].snippets[0].path == "/text"
    found = [hit.id for hit in page]
    while page.next is not None:
        page = goods.search("soup", vector=[1, 3, 0], limit=5, after=page.next)
        found += [hit.id for hit in page]
    assert found == expected
    where = {"n": {"$gte": 4}}
    expected = fused(
        [hit.id for hit in goods.search("soup", where=where)],
        [hit.id for hit in goods.search(vector=[1, 3, 0], where=where)],
    )
    both = goods.search("soup", vector=[1, 3, 0], where=where, index="near", paths=["/text"])
    assert [hit.id for hit in both] == expected


def test_filter_that_compares_too_many_documents_is_refused(goods, monkeypatch):
    monkeypatch.setattr(finder, "SORT_ROWS_MAX", 5)
    monkeypatch.setattr(finder, "_BATCH_ROWS", 5)
    with pytest.raises(LimitExceeded, match="where"):
        goods.search("soup", where={"n": {"$gte": 0}})


def test_search_needs_words_or_a_vector_and_their_indexes(places):
    with pytest.raises(InvalidInput, match="words, `vector`, or both"):
        places.search()
    with pytest.raises(InvalidInput, match="`paths` with words"):
        places.search(vector=EAST, paths=["/at"])
    with pytest.raises(InvalidInput, match="without `order`"):
        places.search(vector=EAST, order="newest")
    with pytest.raises(Refused, match="no text index"):
        places.search("east", vector=EAST)
    with pytest.raises(Refused, match="no text index"):
        places.search("east")
    places.indexes.drop("places")
    with pytest.raises(Refused, match="no vector index"):
        places.search(vector=EAST)


@pytest.mark.parametrize(
    ("path", "options"),
    [(["/a", "/b"], {}), ("/a/*", {}), ("/a", {"unique": True})],
)
def test_bad_declarations_are_refused(space, path, options):
    with pytest.raises(InvalidInput, match="'v'"):
        space.indexes.create("v", path, kind="vector", **options)
    assert len(space.indexes) == 0


def test_missing_package_is_named_by_the_search_alone(places, monkeypatch):
    monkeypatch.setattr("fourfold.kernel.driver.find_spec", lambda _name: None)
    monkeypatch.setattr("fourfold.kernel.driver._WITH_VECTORS", set())
    places.set("more", {"at": EAST})
    with pytest.raises(MissingDependency, match="sqlite-vec"):
        places.search(vector=EAST)
    assert places.verify() == []


def test_queries_cannot_load_extensions_after_a_search(places):
    places.search(vector=EAST)
    with places.view() as view, pytest.raises(fourfold.FourfoldError, match="not authorized"):
        view.all("SELECT load_extension('vec0')")


def test_index_of_now_has_no_past(space):
    space.indexes.create("now", "/at", kind="vector", history="now")
    for value in (EAST, NORTH, UP):
        space.set("a", {"at": value})
    with space.view() as view:
        assert view.value("SELECT count(*) FROM index_vector_1") == 1
    assert [hit.score for hit in space.search(vector=UP)] == [1.0]
    with pytest.raises(Refused, match="only the newest state"):
        space.search(vector=UP, at=1)
    assert space.verify() == []


def test_gc_trims_versions(places):
    fork = places.seq()
    places.branches.create("work")
    for number in range(5):
        places.set("east", {"at": [number, 1, 0]})
    places.gc(GcPolicy(keep_seqs=2))
    with places.view() as view:
        past = view.all("SELECT from_seq FROM index_vector_1 WHERE to_seq IS NOT NULL")
    # The fork still shows the first vector, and one of the others is above the horizon.
    assert len(past) == 2
    assert past[0] < (fork,)
    assert ids(places, EAST, branch="work", limit=1) == ["east"]
    assert places.verify() == []
    places.indexes.rebuild("places")
    assert ids(places, EAST, branch="work", limit=1) == ["east"]
    assert places.verify() == []


def test_commits_during_a_build_are_found(places, monkeypatch):
    places.indexes.drop("places")
    monkeypatch.setattr("fourfold.models.documents.indexes.indexes.BUILD_AT_ONCE_S", -1.0)
    monkeypatch.setattr(builder, "BUILD_STEP_ENTITIES", 1)
    monkeypatch.setattr(builder.IndexBuilder, "start", lambda _self: None)
    monkeypatch.setattr(builder.IndexBuilder, "run", run_nothing)
    assert places.indexes.create("places", "/at", kind="vector").state == "building"
    with pytest.raises(Busy, match="still being built"):
        places.search(vector=EAST)
    step = places.indexes.builder._step
    for number in range(5):
        assert step()
        places.set("east", {"at": [number, 1, 0]})
        places.set(f"new{number}", {"at": [number, 2, 0]})
    while step():
        pass
    assert places.verify() == []
    assert sorted(ids(places, NORTH)) == sorted(
        ["east", "north", "northeast", *(f"new{number}" for number in range(5))]
    )


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM index_vector_1 WHERE id = 'east'",
        "UPDATE index_vector_1 SET from_seq = from_seq + 1 WHERE id = 'east'",
        "UPDATE index_vector_1 SET to_seq = 4 WHERE id = 'east'",
        "UPDATE index_vector_1 SET vector = x'0000803f' WHERE id = 'east'",
        "INSERT INTO index_vector_1 VALUES (99, '', 'never', 1, NULL, x'0000803f')",
    ],
)
def test_verify_reports_damaged_vectors(places, damage):
    with places.database.write() as txn:
        txn.execute(damage)
    problems = places.verify()
    assert problems
    assert all("'places'" in str(problem) for problem in problems)
    places.indexes.rebuild("places")
    assert places.verify() == []


def test_exports_and_merges_carry_vectors(store, places, history):
    places.branches.create("work")
    places.set("up", {"at": UP}, branch="work")
    places.branches.merge("work")
    assert ids(places, UP, limit=1) == ["up"]
    other = store.space("did:web:other", history=history)
    bundle.replay(other, bundle.export(places))
    for at in (2, 4, places.seq()):
        assert ids(other, [1, 1, 1], at=at) == ids(places, [1, 1, 1], at=at)
    assert other.verify() == []


def test_restored_store_is_searched(root, places, store, history, tmp_path):
    store.backup(tmp_path / "backup")
    fourfold.restore(tmp_path / "backup", tmp_path / "again")
    with fourfold.open(tmp_path / "again") as again:
        space = again.space(DID, history=history)
        assert ids(space, EAST, limit=1) == ["east"]
        space.set("up", {"at": UP})
        assert ids(space, UP, limit=1) == ["up"]
        assert space.verify() == []


def test_dropped_index_leaves_nothing(places):
    places.indexes.drop("places")
    places.indexes.builder.run()
    with places.view() as view:
        assert not view.all("SELECT name FROM sqlite_schema WHERE name LIKE 'index_vector%'")
        assert not view.all("SELECT * FROM index_build")
    places.set("east", {"at": NORTH})


@pytest.mark.parametrize("kind", ["text", "vector"])
def test_declaration_without_entities_and_tables_is_built(space, kind):
    space.indexes.create("i", "/at", kind=kind)
    with space.database.write() as txn:
        # As a restore leaves it: the declaration is in the archive, and nothing else.
        txn.execute(f"DROP TABLE index_{kind}_1")
        txn.execute("DELETE FROM index_build")
    assert space.indexes.wait("i").state == "ready"
    query = {"vector": EAST} if kind == "vector" else {"query": "word"}
    assert len(space.search(**query)) == 0
    space.set("a", {"at": EAST if kind == "vector" else "a word"})
    assert len(space.search(**query)) == 1
