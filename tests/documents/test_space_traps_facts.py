"""Traps of the log of facts: in which order its rows go in, and how its hashes are spelled; and of
both logs: by which rules they are read.
"""

from __future__ import annotations

import apsw
import pytest
from lived_in_space import lived_in
from space_machine import DID

import fourfold
from fourfold.content import Reference, refer
from fourfold.errors import FormatError, FourfoldError, FutureFormat
from fourfold.models.documents import fold
from fourfold.store.verification import verify

HASHES = {
    "value": ["hash"],
    "fact": ["hash", "value_ref", "parent", "commit_ref"],
    "occurrence": ["fact_hash"],
    "head": ["fact_hash"],
    "snapshot": ["value_ref"],
    "commit": ["hash", "previous"],
}
STORED, WIRE = "ba4jc", "baedre"


@pytest.fixture
def facts(store):
    return store.space(DID, history="facts")


# C12: a log means what the rules of its writer made of it


def set_rules(path, value):
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE kernel_meta SET value = ? WHERE key = 'patch_semantics'", (value,))
    assert connection.changes() == 1
    connection.close()


def content(path):
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
    found = {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
    connection.close()
    return found


def test_c12_space_says_by_which_rules_its_patches_are_read(space):
    with space.view() as view:
        found = view.value("SELECT value FROM kernel_meta WHERE key = 'patch_semantics'")
    assert found == str(fold.SEMANTICS) == "1"


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_c12_space_under_later_rules_is_refused_and_left_alone(root, history, space_file, mode):
    with fourfold.open(root) as store:
        lived_in(store.space(DID, history=history))
    path = space_file()
    set_rules(path, str(fold.SEMANTICS + 1))
    before = content(path)
    with fourfold.open(root, mode=mode) as store:
        with pytest.raises(
            FutureFormat, match="versions up to 1 of patch_semantics, found 2"
        ) as caught:
            store.space(DID)
        # The writer's lock is free again.
        with pytest.raises(FutureFormat):
            store.space(DID)
    assert "pgrade" in caught.value.hint
    assert content(path) == before
    [problem] = map(str, verify(root).problems)
    assert "patch_semantics" in problem
    set_rules(path, str(fold.SEMANTICS))
    with fourfold.open(root) as store:
        assert store.space(DID).verify() == []


def test_c12_a_version_that_is_none_is_refused(root, history, space_file):
    with fourfold.open(root) as store:
        store.space(DID, history=history).set("a", {})
    set_rules(space_file(), "one")
    with fourfold.open(root) as store, pytest.raises(FormatError, match="patch_semantics"):
        store.space(DID)


def test_c12_space_from_before_there_were_numbers_gets_first(root, history, space_file):
    with fourfold.open(root) as store:
        store.space(DID, history=history).set("a", {"n": 1})
    connection = apsw.Connection(str(space_file()))
    connection.execute("DELETE FROM kernel_meta WHERE key = 'patch_semantics'")
    connection.close()
    with fourfold.open(root, mode="r") as store:
        assert store.space(DID).read("a").document == {"n": 1}
    with fourfold.open(root) as store, store.space(DID).view() as view:
        assert view.value("SELECT value FROM kernel_meta WHERE key = 'patch_semantics'") == "1"


# D14: what refers comes after what it refers to


def test_d14_a_commit_is_in_the_file_before_its_facts(facts):
    tables = ("commit", "value", "fact", "occurrence", "head")
    with facts.database.write() as txn:
        txn.execute("CREATE TEMP TABLE watched (name TEXT)")
        for table in tables:
            txn.execute(
                f'CREATE TEMP TRIGGER watch_{table} AFTER INSERT ON main."{table}" '
                f"BEGIN INSERT INTO watched (name) VALUES ('{table}'); END"
            )
        facts.transact(
            [
                {"op": "set", "id": "a", "value": {"n": 1}},
                {"op": "patch", "id": "a", "patches": [{"op": "add", "path": "/m", "value": 2}]},
                {"op": "delete", "id": "b"},
            ]
        )
        seen = [name for (name,) in txn.all("SELECT name FROM temp.watched ORDER BY rowid")]
        assert txn.all("PRAGMA main.foreign_key_check") == []
    order = [seen.index(name) for name in tables]
    assert order == sorted(order)
    assert seen.count("fact") == seen.count("occurrence") == 3


def test_d14_fact_without_commit_or_value_is_refused(facts):
    facts.set("a", {"n": 1})
    named = str(refer({"n": 2}))

    def stray(commit, value):
        def work(txn):
            txn.execute(
                "INSERT INTO fact (hash, id, value_ref, seq, commit_ref, fact_type)"
                " VALUES ('x', 'a', ?, 2, ?, 'set')",
                (value, commit),
            )

        return work

    with facts.view() as view:
        commit, value = view.one("SELECT commit_ref, value_ref FROM fact")
    for bad in (stray(named, value), stray(commit, named)):
        with pytest.raises(FourfoldError, match="FOREIGN KEY"):
            facts.database.transact(bad)
    assert facts.verify() == []


# D17: one spelling of a reference in the file, another one on the wire


def test_d17_every_hash_in_file_has_one_stored_spelling(facts):
    lived_in(facts)
    facts.branches.merge("f", resolutions={"b": None})
    with facts.view() as view:
        for table, columns in HASHES.items():
            rows = view.all(f'SELECT {", ".join(columns)} FROM "{table}"')
            found = {each for row in rows for each in row}
            assert all(
                each is None or each == "__empty__" or each.startswith(STORED) for each in found
            ), table
            assert any(each and each.startswith(STORED) for each in found), table
        commits = view.all('SELECT hash, resolution FROM "commit"')
    assert all(named in resolution for named, resolution in commits)


def test_d17_both_spellings_are_accepted_and_one_is_stored():
    reference = refer({"n": 1})
    stored, wire = str(reference), reference.wire()["/"]
    assert stored.startswith(STORED)
    assert wire.startswith(WIRE)
    assert Reference.parse(stored) == Reference.parse({"/": wire}) == reference


def test_d17_spelling_of_wire_in_file_is_found(root, space_file):
    with fourfold.open(root) as store:
        store.space(DID, history="facts").set("a", {"n": 1})
    wire = refer({"n": 1}).wire()["/"]
    connection = apsw.Connection(str(space_file()))
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("UPDATE value SET hash = ? WHERE data IS NOT NULL", (wire,))
    connection.execute("UPDATE fact SET value_ref = ?", (wire,))
    connection.close()
    with fourfold.open(root) as store:
        problems = [*map(str, store.space(DID).verify())]
    assert any("value baedre" in problem for problem in problems)
