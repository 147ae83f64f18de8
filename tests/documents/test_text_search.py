"""Full-text indexes: what a search finds, in which order, and what carries an index along."""

from __future__ import annotations

import pytest
from space_machine import DID
from test_indexes import run_nothing

import fourfold
from fourfold.errors import Busy, InvalidInput, NotFound, Refused
from fourfold.models.documents import OURS, bundle
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.indexes import builder, search

PATHS = ["/title", "/body", "/tags/*"]


@pytest.fixture
def recipes(space):
    space.set("brulee", {"title": "Crème brûlée", "body": "A custard with burnt sugar."})
    space.set("leek", {"title": "Leek soup", "body": "Hot soup of leek, with cream."})
    space.set("salad", {"title": "Salad", "tags": ["cold leek", "soup never"], "body": 5})
    space.set("stew", {"title": "Stew", "body": "Not a soup"})
    space.indexes.create("words", PATHS, kind="text")
    return space


def ids(space, query, **options):
    return sorted(hit.id for hit in space.search(query, **options))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("LEEK", ["leek", "salad"]),
        ("creme brulee", ["brulee"]),
        ("Crème", ["brulee"]),
        ('"leek soup"', ["leek"]),
        ("leek soup", ["leek", "salad"]),
        ("soup -leek", ["stew"]),
        ("cre*", ["brulee", "leek"]),
        ('"burnt su"*', ["brulee"]),
        ("cream custard", []),
        ("leek,with", ["leek"]),
        ('a "b OR NEAR(c', []),
        ("\ue000 soup", ["leek", "salad", "stew"]),
    ],
)
def test_words_phrases_prefixes_and_exclusions(recipes, query, expected):
    assert ids(recipes, query) == expected


def test_hits_have_scores_snippets_and_documents(recipes):
    page = recipes.search("soup leek")
    assert (page.total, page.index, page.next, page.seq) == (2, "words", None, 4)
    first = page.items[0]
    assert (first.id, first.seq, first.document["title"]) == ("leek", 2, "Leek soup")
    assert first.score > page.items[1].score > 0
    assert [(snippet.path, snippet.text) for snippet in first.snippets] == [
        ("/title", "Leek soup"),
        ("/body", "Hot soup of leek, with cream."),
    ]
    assert first.snippets[0].highlights == ((0, 4), (5, 9))
    assert [snippet.text for snippet in page.items[1].snippets] == ["cold leek", "soup never"]
    first.document.clear()
    assert recipes.search("soup leek").items[0].document


def test_search_of_some_paths_and_by_age(recipes):
    assert ids(recipes, "soup", paths=["/title"]) == ["leek"]
    assert ids(recipes, "leek soup", paths=["/title", "/tags/*"]) == ["leek", "salad"]
    assert ids(recipes, "soup -leek", paths=["/body"]) == ["stew"]
    recipes.set("leek", {"title": "Leek soup", "body": "Thin soup", "n": 1})
    recipes.patch("stew", [{"op": "add", "path": "/n", "value": 1}])
    newest = [hit.id for hit in recipes.search("soup", order="newest")]
    # The text of the stew has not changed.
    assert newest == ["leek", "stew", "salad"]


def test_search_at_every_seq_and_on_branches(recipes):
    recipes.branches.create("work", at=3)
    recipes.set("leek", {"title": "Potato soup"})
    recipes.delete("stew")
    recipes.set("leek", {"title": "Onion"}, branch="work")
    recipes.delete("brulee", branch="work")
    assert ids(recipes, "soup") == ["leek", "salad"]
    assert ids(recipes, "leek") == ["salad"]
    assert [ids(recipes, "soup", at=at) for at in range(7)] == [
        *([], [], ["leek"], ["leek", "salad"]),
        *([["leek", "salad", "stew"]] * 3),
    ]
    assert ids(recipes, "leek", branch="work") == ["salad"]
    assert ids(recipes, "onion", branch="work") == ["leek"]
    assert ids(recipes, "custard", branch="work") == []
    assert ids(recipes, "custard", branch="work", at=8) == ["brulee"]
    resolved = {"leek": OURS}
    recipes.branches.merge("work", "", resolutions=resolved)
    assert (ids(recipes, "onion"), ids(recipes, "custard")) == ([], [])
    assert recipes.verify() == []


def test_pages_continue_at_the_seq_of_the_first(recipes):
    for number in range(7):
        recipes.set(f"n{number}", {"title": f"note {number} " + "word " * number})
    for order in ("score", "newest"):
        page = recipes.search("note", limit=3, order=order)
        seen = [hit.id for hit in page]
        recipes.set("n9", {"title": "note"})
        while page.next is not None:
            page = recipes.search("note", limit=3, order=order, after=page.next)
            seen += [hit.id for hit in page]
        recipes.delete("n9")
        assert sorted(seen) == [f"n{number}" for number in range(7)]
        if order == "newest":
            assert seen == sorted(seen, reverse=True)
    with pytest.raises(InvalidInput, match="`next` of a page of this query"):
        recipes.search("other", after=recipes.search("note", limit=3).next)
    with pytest.raises(InvalidInput, match="`next` of a page"):
        recipes.search("note", after="x")


def test_large_documents_end_a_page(recipes, monkeypatch):
    monkeypatch.setattr(search, "FIND_BYTES_MAX", 10)
    page = recipes.search("soup", limit=3)
    assert (len(page), page.total) == (1, 3)
    assert len(recipes.search("soup", limit=3, after=page.next)) == 1


def test_match_far_into_a_text_has_the_beginning_as_snippet(recipes):
    recipes.set("long", {"title": "word " * 20_000 + "end"})
    (hit,) = recipes.search("end")
    assert hit.snippets[0].highlights == ()
    assert hit.snippets[0].text.startswith("word word")


def test_bad_searches_are_refused(recipes):
    for arguments in (
        {"query": 5},
        {"query": "-only"},
        {"query": "a", "order": "x"},
        {"query": "a", "paths": "/title"},
        {"query": "a", "paths": ["title"]},
        {"query": "a", "limit": 0},
        {"query": "a", "limit": 1001},
        {"query": "a", "at": 99},
    ):
        with pytest.raises(InvalidInput):
            recipes.search(arguments.pop("query"), **arguments)
    with pytest.raises(NotFound, match="unknown text index 'other'"):
        recipes.search("a", index="other")
    with pytest.raises(Refused, match="no text index with the paths"):
        recipes.search("a", paths=["/other"])
    recipes.indexes.create("titles", "/title", kind="text")
    with pytest.raises(InvalidInput, match="several text indexes fit: titles, words"):
        recipes.search("a", paths=["/title"])
    assert ids(recipes, "soup", index="titles") == ["leek"]
    recipes.indexes.drop("titles")
    recipes.indexes.drop("words")
    with pytest.raises(Refused, match="no text index"):
        recipes.search("a")
    for wrong in ({"unique": True}, {"kind": "other"}, {"kind": ["text"]}):
        with pytest.raises(InvalidInput):
            recipes.indexes.create("wrong", "/title", **{"kind": "text", **wrong})


def test_find_uses_the_index_for_text_conditions(recipes):
    page = recipes.find({"title": {"$text": "soup"}, "body": {"$contains": "cream"}})
    assert ([match.id for match in page], page.plan.access, page.plan.index) == (
        *(["leek"], "text", "words"),
    )
    cold = {"tags": {"$any": {"$text": "leek -never"}}}
    assert [match.id for match in recipes.find(cold)] == ["salad"]
    assert recipes.find(cold).plan.access == "text"
    assert recipes.count({"body": {"$text": "soup"}}) == 2
    first = recipes.find({"body": {"$text": "soup"}}, limit=1)
    second = recipes.find({"body": {"$text": "soup"}}, limit=1, after=first.next)
    assert [match.id for match in (*first, *second)] == ["leek", "stew"]
    assert recipes.find({"other": {"$text": "soup"}}).plan.access == "scan"
    ordered = recipes.find({"body": {"$text": "soup"}}, order_by="-title")
    assert [match.id for match in ordered] == ["stew", "leek"]


def test_index_of_now_has_no_past(recipes):
    recipes.indexes.drop("words")
    recipes.indexes.create("now", "/title", kind="text", history="now")
    recipes.set("leek", {"title": "Potato"})
    recipes.set("leek", {"title": "Onion"})
    with recipes.view() as view:
        assert view.value("SELECT count(*) FROM index_text") == 4
        assert view.value("SELECT count(*) FROM index_text WHERE to_seq IS NOT NULL") == 0
    assert (ids(recipes, "onion"), ids(recipes, "potato")) == (["leek"], [])
    with pytest.raises(Refused, match="only the newest state"):
        recipes.search("onion", at=1)
    assert recipes.find({"title": {"$text": "leek"}}, at=2).plan.access == "scan"
    assert recipes.verify() == []


def test_gc_trims_versions(recipes):
    recipes.branches.create("work", at=2)
    for number in range(5):
        recipes.set("leek", {"title": f"version {number}"})
    recipes.gc(GcPolicy(keep_seqs=2))
    with recipes.view() as view:
        past = view.all("SELECT id, from_seq, to_seq FROM index_text WHERE to_seq IS NOT NULL")
        rows = view.value("SELECT count(*) FROM index_text_1_docsize")
        assert rows == view.value("SELECT count(*) FROM index_text")
    # The fork still shows the first text.
    assert past == [("leek", 2, 6), ("leek", 9, 10)]
    assert ids(recipes, "leek", branch="work") == ["leek"]
    assert recipes.verify() == []
    recipes.indexes.rebuild("words")
    assert ids(recipes, "leek", branch="work") == ["leek"]
    assert recipes.verify() == []


def test_commits_during_a_build_are_found(recipes, monkeypatch):
    recipes.indexes.drop("words")
    monkeypatch.setattr("fourfold.models.documents.indexes.indexes.BUILD_AT_ONCE_S", -1.0)
    monkeypatch.setattr(builder, "BUILD_STEP_ENTITIES", 1)
    monkeypatch.setattr(builder.IndexBuilder, "start", lambda _self: None)
    monkeypatch.setattr(builder.IndexBuilder, "run", run_nothing)
    assert recipes.indexes.create("words", PATHS, kind="text").state == "building"
    with pytest.raises(Busy, match="still being built"):
        recipes.search("soup")
    step = recipes.indexes.builder._step
    for number in range(5):
        assert step()
        recipes.set("brulee", {"title": f"soup {number}"})
        recipes.set("stew", {"title": f"soup {number}"})
        recipes.set(f"new{number}", {"title": f"soup {number}"})
    while step():
        pass
    assert recipes.verify() == []
    for at in range(recipes.seq() + 1):
        states = recipes.read_many(recipes.ids(at=at), at=at)
        texts = {id_: str(state.document).lower() for id_, state in states.items()}
        assert ids(recipes, "soup", at=at) == sorted(id_ for id_ in texts if "soup" in texts[id_])


def test_exports_carry_the_declaration(store, recipes, history):
    other = store.space("did:web:other", history=history)
    bundle.replay(other, bundle.export(recipes))
    assert ids(other, "soup", at=3) == ids(recipes, "soup", at=3) == ["leek", "salad"]
    assert other.verify() == []


def test_dropped_index_leaves_nothing(recipes):
    recipes.indexes.drop("words")
    recipes.indexes.builder.run()
    with recipes.view() as view:
        assert view.value("SELECT count(*) FROM index_text") == 0
        assert not view.all("SELECT name FROM sqlite_schema WHERE name LIKE 'index_text_1%'")
    recipes.set("leek", {"title": "more"})


def test_index_of_an_empty_space_and_inside_a_transaction(space):
    space.indexes.create("words", "/title", kind="text")
    with space.database.write():
        space.set("a", {"title": "one"})
        space.indexes.create("more", "/body", kind="text")
        space.set("b", {"title": "one", "body": "two"})
        assert ids(space, "one", index="words") == []
    assert ids(space, "one", index="words") == ["a", "b"]
    space.indexes.wait("more")
    assert ids(space, "two", index="more") == ["b"]
    assert space.verify() == []


def test_refused_commit_leaves_no_words(recipes):
    with pytest.raises(InvalidInput):
        recipes.transact(
            [
                {"op": "set", "id": "a", "value": {"title": "unseen"}},
                {"op": "patch", "id": "a", "patches": [{"op": "remove", "path": "/none"}]},
            ]
        )
    assert ids(recipes, "unseen") == []
    assert recipes.verify() == []


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM index_text WHERE id = 'leek'",
        "UPDATE index_text SET from_seq = from_seq + 1 WHERE id = 'leek'",
        "UPDATE index_text SET to_seq = 4 WHERE id = 'leek'",
        "UPDATE index_text SET digest = x'00' WHERE id = 'leek'",
        "INSERT INTO index_text VALUES (99, 1, '', 'never', 1, NULL, x'00')",
        "DELETE FROM index_text_1 WHERE rowid = 2",
        "INSERT INTO index_text_1 (rowid, c0) VALUES (99, 'word')",
    ],
)
def test_verify_reports_damaged_versions(recipes, damage):
    with recipes.database.write() as txn:
        txn.execute(damage)
    problems = recipes.verify()
    assert problems
    assert all("'words'" in str(problem) for problem in problems)
    recipes.indexes.rebuild("words")
    assert recipes.verify() == []


def test_restored_store_is_searched(root, recipes, store, history, tmp_path):
    store.backup(tmp_path / "backup")
    fourfold.restore(tmp_path / "backup", tmp_path / "again")
    with fourfold.open(tmp_path / "again") as again:
        space = again.space(DID, history=history)
        assert ids(space, "soup", at=3) == ["leek", "salad"]
        space.set("leek", {"title": "Leek again"})
        assert ids(space, "again") == ["leek"]
        assert space.verify() == []
