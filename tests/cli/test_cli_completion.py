"""Completion of names from the store, and suggestions for misspelt commands."""

from __future__ import annotations

import pytest

import fourfold
from fourfold.cli import completion

DID = "did:web:shop.example"


@pytest.fixture
def store(tmp_path):
    root = tmp_path / "here" / "store"
    with fourfold.open(root) as store:
        space = store.space(DID)
        space.transact([{"op": "set", "id": "note", "value": {}}])
        space.branches.create("draft")
        store.streams.create("orders", "application/json")
        store.streams.create("other", "application/json")
        store.sessions.create_session({"id": "s-1"})
        store.graphs.register_app("notes", "Notes")
    return root


@pytest.fixture
def complete(call, store):
    def run(*words, **environ):
        done = call(
            _FOURFOLD_COMPLETE="zsh_complete",
            COMP_WORDS=" ".join(("fourfold", *words)),
            COMP_CWORD=str(len(words)),
            **environ,
        )
        assert (done.code, done.err) == (0, "")
        return done.out.splitlines()[1::3]

    return run


CALLS = [
    (("space", "get", "{root}", "did"), [DID]),
    (("space", "get", "{root}", DID, "n"), ["note"]),
    (("space", "ids", "{root}", DID, "--branch", "d"), ["draft"]),
    (("space", "merge", "{root}", DID, "d"), ["draft"]),
    (("stream", "read", "{root}", "or"), ["orders"]),
    (("stream", "tail", "{root}", "o"), ["orders", "other"]),
    (("stream", "fork", "{root}", "or"), ["orders"]),
    (("session", "show", "{root}", "s"), ["s-1"]),
    (("app", "query", "{root}", "no"), ["notes"]),
]


@pytest.mark.parametrize(("words", "names"), CALLS, ids=" ".join)
def test_names_come_from_the_store(complete, words, names):
    assert complete(*(word.format(root="store") for word in words)) == names


@pytest.mark.parametrize(("words", "names"), CALLS, ids=" ".join)
def test_names_come_from_the_variable_and_the_option(complete, words, names):
    without = [word for word in words if word != "{root}"]
    assert complete(*without, FOURFOLD_ROOT="store") == names
    assert complete(*without[:2], "--root", "store", *without[2:]) == names


def test_folders_are_completed_where_root_is_missing(call, store):
    done = call(
        _FOURFOLD_COMPLETE="bash_complete", COMP_WORDS="fourfold stream read s", COMP_CWORD="3"
    )
    assert done.out == "dir,s\n"


@pytest.mark.parametrize("root", ["nowhere", "http://127.0.0.1:9"])
def test_store_that_cannot_be_read_gives_no_names(complete, root):
    assert complete("stream", "read", root, "o") == []


def test_completion_is_bounded_and_writes_nothing(complete, store):
    with fourfold.open(store) as opened:
        for number in range(completion.NAMES_MAX + 5):
            opened.streams.create(f"many/{number}", "application/json")
        before = {path: path.stat().st_size for path in store.rglob("*")}
        assert len(complete("stream", "read", "store", "m")) == completion.NAMES_MAX
        assert {path: path.stat().st_size for path in store.rglob("*")} == before


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["spce"], "Did you mean 'space'?"),
        (["sesion", "list"], "Did you mean 'session'"),
        (["space", "gett"], "Did you mean 'get'"),
        (["app", "sync", "exprt"], "Did you mean 'export'"),
    ],
)
def test_misspelt_command_is_answered_with_similar_ones(call, words, suggestion):
    done = call(*words)
    assert done.code == 2
    assert suggestion in done.err


def test_unlike_command_gets_no_suggestion(call):
    assert "Did you mean" not in call("xyzzy").err
