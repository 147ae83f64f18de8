"""Bad input on the command line: an exit code, an error that names the thing, nothing written."""

from __future__ import annotations

import json
import shutil

import apsw
import pytest
from space_calls import DID

import fourfold

DEEP = '{"a":' * 600 + "1" + "}" * 600
ENTITY_MAX = 4_000

BAD = [
    # The command, its arguments after ROOT and DID, the exit code, what the message names.
    ("set", ["a", "[1]"], 2, "not an object"),
    ("set", ["a", "5"], 2, "not an object"),
    ("set", ["a", "{"], 2, "not JSON"),
    ("set", ["a", '{"n": NaN}'], 2, "not JSON"),
    ("set", ["a", '{"n": 1, "m": {"k": 1, "k": 2}}'], 2, "duplicate key 'k'"),
    ("set", ["a", r'{"n": "\ud800"}'], 2, r"lone surrogate '\ud800'"),
    ("patch", ["a", '[{"op": "add", "op": "remove", "path": "/n"}]'], 2, "duplicate key 'op'"),
    ("set", ["a", DEEP], 2, "the document"),
    ("set", ["a", '{"n": 1' + "0" * 3_000 + "}"], 2, "the document"),
    ("set", ["", "{}"], 2, "id of an entity"),
    ("set", ["x" * ENTITY_MAX, "{}"], 2, "id of an entity"),
    ("set", ["a", "@nowhere.json"], 3, "nowhere.json"),
    ("set", ["a", "{}", "--branch", "unknown"], 3, "unknown"),
    ("set", ["a", "{}", "--branch", "dead"], 6, "dead"),
    ("set", ["a", "{}", "--branch", "no name"], 3, "no name"),
    ("set", ["a", "{}", "--if-seq", "7"], 4, "seq 1, not 7"),
    ("patch", ["a", '[{"op": "replace", "path": "n", "value": 1}]'], 2, "not a JSON pointer"),
    ("patch", ["a", '[{"op": "replace", "path": "/~2", "value": 1}]'], 2, "not a JSON pointer"),
    ("patch", ["a", '[{"op": "remove", "path": "/nothing"}]'], 2, "/nothing"),
    ("patch", ["a", '[{"op": "frob", "path": "/n"}]'], 2, "frob"),
    ("patch", ["a", '"text"'], 2, "list"),
    ("patch", ["a", '[{"op": "add", "path": "", "value": []}]'], 2, "operation 0"),
    ("delete", ["a", "--branch", "dead"], 6, "dead"),
    ("delete", ["a", "--branch", "unknown"], 3, "unknown"),
    ("revert", ["--at", "99"], 2, "got 99"),
    ("revert", ["unknown", "--at", "1"], 3, "unknown"),
    ("get", ["a", "--at", "99"], 2, "got 99"),
    ("get", ["a", "--at", "soon"], 2, "soon"),
    ("get", ["a", "--branch", "unknown"], 3, "unknown"),
    ("ids", ["--at", "99"], 2, "got 99"),
    ("history", ["a", "--at", "99"], 2, "got 99"),
    ("diff", [], 2, "both points are (default) now"),
    ("diff", ["--branch", "f"], 2, "both points are f now"),
    ("diff", ["--at", "99"], 2, "got 99"),
    ("diff", ["--to-branch", "unknown"], 3, "unknown"),
    ("branch create", ["f"], 4, "f"),
    ("branch create", ["dead"], 4, "dead"),
    ("branch create", ["a b"], 2, "a b"),
    ("branch create", ["g", "--at", "99"], 2, "got 99"),
    ("branch create", ["g", "--parent", "unknown"], 3, "unknown"),
    ("branch delete", ["unknown"], 3, "unknown"),
    ("branch delete", ["dead"], 6, "dead"),
    ("branch delete", [""], 6, "default branch"),
    ("merge", ["unknown"], 3, "unknown"),
    ("merge", [""], 2, "itself"),
    ("merge", ["f", "--into", "dead"], 6, "dead"),
    ("merge", ["f", "--resolve", "b", "{}"], 2, "'b'"),
    ("blob put", ["nowhere.bin"], 3, "nowhere.bin"),
    ("blob put", ["."], 2, "folder"),
    ("blob put", ["-", "--metadata", "[]"], 2, "metadata"),
    ("blob get", ["sha256:12", "--output", "o"], 2, "sha256:12"),
    ("blob get", [f"sha256:{'0' * 64}", "--output", "o"], 3, "sha256:000"),
    ("maintain", ["--retention", "some"], 2, "some"),
    ("maintain", ["--pin", "99"], 2, "seq 99"),
    ("export", ["--after", "99", "--output", "e"], 2, "got 99"),
    ("export", ["--output", "nowhere/e"], 3, "nowhere"),
    ("import", ["nowhere.ndjson"], 3, "nowhere.ndjson"),
    ("import", ["."], 2, "folder"),
    ("carry", [DID], 2, "into itself"),
    ("carry", ["did:web:../x"], 2, "did:web:../x"),
]


@pytest.fixture
def content(tmp_path):
    """Everything that is in the store: its files, and every row of the space."""

    def read():
        [path] = (tmp_path / "shop" / "spaces").glob("*.sqlite")
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        rows = {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
        connection.close()
        return rows

    return read


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    root = tmp_path_factory.mktemp("template") / "shop"
    with fourfold.open(root) as store:
        space = store.space(DID)
        space.set("a", {"n": 1})
        space.branches.create("f")
        space.set("a", {"n": 2}, branch="f")
        space.branches.create("dead")
        space.branches.delete("dead")
    return root


@pytest.fixture
def used(template, run, tmp_path):
    """Run a command on a space with two branches, one of which has ended; it must succeed."""
    shutil.copytree(template, tmp_path / "shop")

    def call(name, *arguments):
        done = run(*name.split(), "shop", DID, *arguments)
        assert (done.code, done.err) == (0, ""), done
        return done

    return call


@pytest.mark.parametrize(
    ("name", "arguments", "code", "named"),
    BAD,
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else None,
)
def test_bad_input_is_refused_with_its_name_and_writes_nothing(
    used, run, content, tmp_path, name, arguments, code, named
):
    before = content()
    plain = run(*name.split(), "shop", DID, *arguments)
    as_json = run(*name.split(), "shop", DID, *arguments, "--json")
    assert plain.code == as_json.code == code, plain
    assert plain.out == as_json.out == ""
    error = as_json.error
    assert named in error["message"]
    assert error["hint"]
    assert len(error["message"]) < 500
    first, second = plain.err.splitlines()
    assert first == f"error[{error['kind']}]: {error['message']}"
    assert second == f"hint: {error['hint']}"
    assert content() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop"]


def test_import_that_is_cut_off_says_what_may_be_there(used, run, tmp_path):
    used("export", "--output", "whole.ndjson")
    whole = (tmp_path / "whole.ndjson").read_bytes()
    (tmp_path / "cut.ndjson").write_bytes(whole[: len(whole) // 2])
    done = run("import", "shop", "did:web:copy", "cut.ndjson", "--json")
    assert done.code == 2
    assert "nothing was written" not in done.error["hint"]
    assert "whole file" in done.error["hint"]
    assert run("import", "shop", "did:web:copy", "whole.ndjson").code == 0
    assert run("verify", "shop", "did:web:copy").code == 0


def test_a_conflict_names_the_entity_and_both_seqs(used, run, content):
    used("set", "a", '{"n": 3}')
    before = content()
    done = run("merge", "shop", DID, "f", "--json")
    assert done.code == 4
    [conflict] = done.error["details"]["conflicts"]
    assert (conflict["entity"], conflict["paths"]) == ("a", ["/n"])
    assert (conflict["source_seq"], conflict["target_seq"]) == (3, 6)
    assert content() == before
    assert json.loads(used("get", "a").out) == {"n": 3}
