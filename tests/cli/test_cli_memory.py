"""`fourfold memory`."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def on(call):
    """Run a command on the memory `notes` of a store; it must succeed."""

    def run(name, *arguments):
        done = call("memory", name, "store", "notes", *arguments)
        assert done.code == 0, done.err
        return done.out

    run("put", "users/ada", "food", '{"likes": "leek soup", "n": 1}')
    run("put", "users/ada", "food", '{"likes": "tomato soup", "n": 2}')
    run("put", "users/b%2Fb", "city", '{"in": "Rome"}', "--ttl", "3600")
    return run


def test_items_are_read_searched_and_listed(on):
    assert json.loads(on("get", "users/ada", "food")) == {"likes": "tomato soup", "n": 2}
    assert json.loads(on("get", "users/ada", "food", "--at", "1"))["n"] == 1
    hits = json.loads(on("search", "soup rome", "--where", '{"n": {"$gt": 1}}', "--json"))["hits"]
    assert [(hit["key"], hit["value"]["n"]) for hit in hits] == [("food", 2)]
    assert json.loads(on("search", "rome", "--namespace", "users/ada", "--json")) == {"hits": []}
    assert on("list").splitlines()[1].startswith("users/b%2Fb  city")
    assert on("list", "users/ada", "--at", "1").splitlines()[1].endswith('"leek soup", "n": 1}')
    assert on("namespaces", "--max-depth", "1").splitlines() == ["NAMESPACE", "users"]


def test_history_and_differences_are_listed(on):
    versions = json.loads(on("history", "users/ada", "food", "--json"))["versions"]
    assert [version["value"]["n"] for version in versions] == [1, 2]
    changes = json.loads(on("diff", "1", "2", "--json"))["changes"]
    assert [(change["before"]["n"], change["after"]["n"]) for change in changes] == [(1, 2)]


def test_items_are_forgotten_swept_and_purged(on, call):
    assert on("forget", "users/ada", "food") == "forgotten\n"
    assert on("forget", "users/ada", "food") == "there was no such item\n"
    assert on("sweep") == "0 items deleted\n"
    assert on("purge", "users/b%2Fb") == "1 item forgotten, history erased\n"
    assert on("list") == "no items\n"
    assert call("memory", "get", "store", "notes", "users/ada", "food", "--at", "1").code != 0


def test_unknown_memories_and_items_are_refused(on, call):
    assert call("memory", "names", "store").out.splitlines() == ["NAME", "notes"]
    done = call("memory", "list", "store", "other")
    assert "not_found" in done.err
    assert "unknown memory 'other'" in done.err
    assert "not_found" in call("memory", "get", "store", "notes", "users/ada", "hat").err
    assert call("memory", "names", "store").out.splitlines() == ["NAME", "notes"]
