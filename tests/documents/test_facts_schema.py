"""The schema of a space of facts: what the specification names is there, and every question that a
space of revisions answers has an answer of the same shape.
"""

from __future__ import annotations

import apsw
import apsw.ext
import pytest

import fourfold
from fourfold.errors import Conflict, ForeignFile, InvalidInput, Refused
from fourfold.kernel import Database
from fourfold.models.documents import HISTORIES

DID = "did:key:z6MkTests"
FACTS, REVISIONS = HISTORIES["facts"], HISTORIES["revisions"]

SPECIFIED = {
    "value": {"hash", "data"},
    "fact": {
        "hash",
        "id",
        "value_ref",
        "parent",
        "branch",
        "seq",
        "commit_ref",
        "fact_type",
    },
    "head": {"branch", "id", "fact_hash", "seq"},
    "commit": {"hash", "seq", "branch", "reads", "created_at"},
    "snapshot": {"id", "seq", "value_ref", "branch"},
    "branch": {"name", "parent_branch", "fork_seq", "head_seq", "created_at"},
    "blob_store": {"hash", "data", "content_type", "size"},
    "state": {"branch", "id", "fact_type", "seq", "value"},
}
KEYS = {
    "value": ["hash"],
    "fact": ["hash"],
    "head": ["branch", "id"],
    "commit": ["hash"],
    "snapshot": ["branch", "id", "seq"],
    "branch": ["name"],
    "blob_store": ["hash"],
    "occurrence": ["branch", "id", "seq", "op_index"],
}
OF_THE_LOG_ALONE = {
    "insert_commit",
    "insert_snapshot",
    "sealed_commit",
    "upsert_head",
    "verify_commits",
}
"""Asked only by the module that keeps the log, so each history has them in its own shape."""


@pytest.fixture
def facts(store):
    return store.space(DID, history="facts")


def rows(space, sql, params=()):
    with space.view() as view:
        return view.all(sql, params)


def described(space, table):
    return rows(space, f'PRAGMA table_info("{table}")')


@pytest.mark.parametrize("table", SPECIFIED)
def test_every_column_that_the_specification_names_is_there(facts, table):
    assert {row[1] for row in described(facts, table)} >= SPECIFIED[table]


@pytest.mark.parametrize("table", KEYS)
def test_the_keys_are_those_of_the_specification(facts, table):
    keyed = sorted((row[5], row[1]) for row in described(facts, table) if row[5])
    assert [name for _, name in keyed] == KEYS[table]


def test_no_column_is_declared_json_which_would_rewrite_numbers(facts):
    tables = [row[0] for row in rows(facts, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    declared = {row[2] for table in tables for row in described(facts, table)}
    assert declared <= {"TEXT", "INTEGER", "BLOB"}


@pytest.mark.parametrize("text", ["1.0", "1e3", "12345678901234567890", "-0", "007"])
def test_text_that_looks_like_number_stays_as_it_is(facts, text):
    with facts.database.write() as txn:
        txn.execute("INSERT INTO value (hash, data) VALUES ('x', ?)", (text,))
        assert txn.value("SELECT data FROM value WHERE hash = 'x'") == text


def test_the_foreign_keys_of_the_specification_are_there(facts):
    def refers(table):
        return {(row[3], row[2]) for row in rows(facts, f"PRAGMA foreign_key_list({table})")}

    assert refers("fact") == {("value_ref", "value"), ("commit_ref", "commit")}
    assert refers("head") == {("fact_hash", "fact")}
    assert refers("snapshot") == {("value_ref", "value")}
    assert refers("branch") == {("parent_branch", "branch")}
    assert refers("occurrence") == {("fact_hash", "fact")}


def test_new_space_has_value_of_deleted_entities_and_default_branch(facts):
    assert rows(facts, "SELECT hash, data FROM value") == [("__empty__", None)]
    assert rows(facts, "SELECT name, head_seq, status FROM branch") == [("", 0, "active")]


def test_the_value_of_deleted_entities_is_never_removed(facts):
    with pytest.raises(Conflict, match="never removed"), facts.database.write() as txn:
        txn.execute("DELETE FROM value")
    assert rows(facts, "SELECT hash FROM value") == [("__empty__",)]


def test_the_view_state_shows_what_each_head_says(facts):
    facts.set("a", {"n": 1})
    facts.patch("a", [{"op": "add", "path": "/n", "value": 2}])
    facts.set("b", {"n": 3})
    facts.delete("b")
    facts.branches.create("f")
    facts.set("a", {"n": 4}, branch="f")
    assert rows(facts, "SELECT branch, id, fact_type, seq, value FROM state ORDER BY 1, 2") == [
        ("", "a", "patch", 2, '[{"op":"add","path":"/n","value":2}]'),
        ("", "b", "delete", 4, None),
        ("f", "a", "set", 6, '{"n":4}'),
    ]


def test_facts_and_revisions_return_results_of_equal_shape(store):
    def shapes(history, names):
        space = store.space(f"did:key:z{history.name}", history=history.name)
        connection = apsw.Connection(str(space.database.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return {
                name: len(apsw.ext.query_info(connection, getattr(history.sql, name)).description)
                for name in names
            }
        finally:
            connection.close()

    asked = set(REVISIONS.sql)
    assert asked <= set(FACTS.sql)
    shared = asked - OF_THE_LOG_ALONE
    assert shapes(FACTS, shared) == shapes(REVISIONS, shared)
    # And the log's own can be asked, too.
    assert shapes(FACTS, set(FACTS.sql))


def test_the_readers_questions_use_an_index(facts):
    questions = {
        "newest_revision": ("", "a", 1),
        "newest_snapshot": ("", "a", 1),
        "revisions_backwards": ("", "a", 0, 1),
        "later_revisions": ("", "a", 0, 1, -1),
        "revisions_of_commit": (1,),
        "ids_touched": ("", 0, 1),
        "last_seq": (),
        "greatest_seq": (),
        "newest_commit": (),
        "commit_of_session": ("s", 1),
    }
    for name, params in questions.items():
        plan = [
            row[3] for row in rows(facts, f"EXPLAIN QUERY PLAN {getattr(FACTS.sql, name)}", params)
        ]
        scans = [step for step in plan if step.startswith("SCAN") and "INDEX" not in step]
        assert scans in ([], ["SCAN CONSTANT ROW"], ["SCAN b"]), (name, plan)
        assert not any("TEMP B-TREE" in step for step in plan) or name == "ids_touched", (
            name,
            plan,
        )


# Which history a space has


def test_a_space_is_opened_with_the_history_that_it_has(root):
    with fourfold.open(root) as store:
        store.space("did:key:zF", history="facts").set("a", {"n": 1})
        store.space("did:key:zR").set("a", {"n": 2})
    with fourfold.open(root) as store:
        assert store.space("did:key:zF").history_kind.name == "facts"
        assert store.space("did:key:zR").history_kind.name == "revisions"
        assert store.space("did:key:zF").read("a").document == {"n": 1}
    with fourfold.open(root, mode="r") as store:
        assert store.space("did:key:zF").read("a").document == {"n": 1}


@pytest.mark.parametrize(("made", "asked"), [("facts", "revisions"), ("revisions", "facts")])
def test_another_history_than_the_space_has_is_refused(root, made, asked):
    with fourfold.open(root) as store:
        store.space(DID, history=made)
        with pytest.raises(Refused, match=f"has the history '{made}', got '{asked}'"):
            store.space(DID, history=asked)
    with fourfold.open(root) as store:
        with pytest.raises(Refused, match=f"has the history '{made}', got '{asked}'"):
            store.space(DID, history=asked)
        assert store.space(DID, history=made).history_kind.name == made


def test_an_unknown_history_is_refused_and_makes_no_space(store):
    with pytest.raises(InvalidInput, match="not a kind of history"):
        store.space(DID, history="ledger")
    assert store.spaces() == []


def test_the_kernel_itself_tells_the_two_kinds_of_file_apart(root, space_file):
    with fourfold.open(root) as store:
        store.space(DID, history="facts")
    with pytest.raises(ForeignFile, match="documents-facts"):
        Database.open(
            space_file(),
            profile=REVISIONS.profile,
            migrations=REVISIONS.migrations,
            sequences=(REVISIONS.seq,),
        )


def test_a_space_whose_creation_was_cut_short_is_finished(root):
    with fourfold.open(root) as store:
        (root / "spaces").mkdir(exist_ok=True)
        (root / "spaces" / f"{DID}.sqlite").touch()
        space = store.space(DID, history="facts")
        assert space.set("a", {"n": 1}).seq == 1
