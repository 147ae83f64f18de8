"""`fourfold app` as people use it: what it prints, what it refuses, and with which code."""

from __future__ import annotations

import io
import json
import stat
from types import SimpleNamespace

import pytest
from cli_process import Done

import fourfold
from fourfold.cli import main

NOTE = '[{"op": "parent_create", "type_key": "note"}]'


@pytest.fixture
def app(tmp_path, monkeypatch, capfdbinary):
    """Run `fourfold app ...` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, stdin=b""):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        code = main.run(["app", *map(str, arguments)])
        printed = capfdbinary.readouterr()
        return Done(code, printed.out.decode(), printed.err.decode())

    return call


@pytest.fixture
def notes(app):
    """The same, on a store with an app that has two types."""
    for arguments in (
        ("register", "here", "notes", "--title", "Notes"),
        ("type", "here", "notes", "parent", "note"),
        ("type", "here", "notes", "attr", "body"),
    ):
        assert app(*arguments).code == 0
    return app


def document(done):
    assert done.code == 0, done
    return json.loads(done.out)


def test_batch_goes_in_and_comes_out_again_now_and_then(notes):
    body = {"parent_id": {"$op": 0}, "value": "one"}
    ops = [
        {"op": "parent_create", "type_key": "note"},
        {"op": "attr_create", "type_key": "body", "payload": body},
    ]
    done = notes("insert", "here", "notes", "-", "--owner", 3, stdin=json.dumps(ops).encode())
    assert done.out == "2 operations under 1; objects: 1, 1\n"
    update = {"op": "attr_update", "type_key": "body", "payload": {"attr_id": 1, "value": "two"}}
    assert notes("insert", "here", 1, json.dumps(update), "--owner", 3).code == 0

    def values(*options):
        found = document(notes("query", "here", "notes", "--kind", "attr", *options, "--json"))
        return [row["value_text"] for row in found["rows"]]

    assert values() == ["two"]
    assert values("--at", 1) == ["one"]
    assert values("--raw") == ["one", "two"]
    assert values("--parent", 2) == []
    assert values("--type", "body", "--limit", 1) == ["two"]
    history = document(notes("history", "here", "notes", "attr", 1, "--json"))
    assert [version["version"] for version in history["versions"]] == [1, 2]


def test_the_feed_prints_lines_and_goes_on_where_it_was(notes):
    for _ in range(3):
        assert notes("insert", "here", "notes", NOTE).code == 0
    lines = [json.loads(line) for line in notes("feed", "here", "--after", 1).out.splitlines()]
    assert [line["global_seq"] for line in lines] == [2, 3]
    page = document(notes("feed", "here", "--limit", 1, "--json"))
    assert (len(page["changes"]), page["next"]) == (1, 1)


def test_limits_are_shown_set_and_kept(notes):
    assert notes("limits", "here", "notes", "--rows", 1).code == 0
    assert notes("insert", "here", "notes", NOTE).code == 0
    full = notes("insert", "here", "notes", NOTE)
    assert (full.code, "limit_exceeded" in full.err) == (6, True)
    assert (
        document(notes("limits", "here", "notes", "--rows", "none", "--json"))["rows_max"] is None
    )
    assert notes("limits", "here", "notes", "--rows", "many").code == 2


def test_two_stores_exchange_packages_by_files(notes, tmp_path):
    key = document(notes("sync", "key", "my.key", "--json"))["public_key"]
    assert stat.S_IMODE((tmp_path / "my.key").stat().st_mode) == 0o600
    assert notes("sync", "key", "my.key").out.strip() == key
    shared = '{"op": "parent_create", "type_key": "note", "payload": {"sync_flags": 1}}'
    assert notes("register", "there", "notes").code == 0
    for root in ("here", "there"):
        assert notes("sync", "domain", root, "talk", 1).code == 0
    # The owner of the rows is the identity that exports them.
    assert notes("sync", "peer", "here", key).code == 0
    assert notes("insert", "here", "notes", shared, "--owner", 1).code == 0
    assert notes("sync", "peer", "there", key).code == 0
    assert notes("sync", "export", "here", "talk", "p.sync", "--key", "my.key").code == 0
    closed = notes("sync", "import", "there", "p.sync", "--peer", 1)
    assert "refused: peer_not_allowed" in closed.out
    assert notes("sync", "allow", "there", 1, "talk").code == 0
    done = document(notes("sync", "import", "there", "p.sync", "--peer", 1, "--json"))
    assert (done["accepted"], done["added"], done["refused"]) == (1, 1, [])
    assert "1 known" in notes("sync", "import", "there", "p.sync", "--peer", 1).out
    status = document(notes("sync", "status", "there", "--json"))
    assert status["progress"] == [{"peer_id": 1, "domain": "talk", "last_seq": 1}]
    assert notes("sync", "tips", "there", "talk", "tips.json").code == 0
    assert "has 1 envelope" in notes("sync", "confirm", "here", "tips.json", "--peer", 1).out
    assert notes("sync", "allow", "here", 1, "talk", "--no-write").code == 0
    nothing = notes("sync", "export", "here", "talk", "q.sync", "--key", "my.key", "--peer", 1)
    assert "0 envelopes" in nothing.out
    for command in ("refusals", "forks", "parked"):
        assert document(notes("sync", command, "there", "--json"))[command] == []


def test_lists_of_sync_work_while_another_process_writes(notes, tmp_path):
    with fourfold.open(tmp_path / "here") as store:
        store.graphs.register_app("other", "Other")
        lists = ("domain", "peer", "allow", "identities", "status", "refusals", "forks", "parked")
        for command in lists:
            done = notes("sync", command, "here", "--json")
            assert (command, done.code) == (command, 0)


def test_row_that_cannot_be_shared_is_reported(notes, tmp_path):
    key = notes("sync", "key", "my.key").out.strip()
    assert notes("sync", "domain", "here", "talk", 1).code == 0
    assert notes("sync", "peer", "here", key).code == 0
    with fourfold.open(tmp_path / "here") as store:
        graphs = store.graphs
        app = graphs.app("notes").app_id
        note = graphs.register_type(app, "parent", "note")
        text = graphs.register_type(app, "attr", "text")
        parent = graphs.insert_parent(app, {"type_id": note, "owner_identity": 1})
        row = {"type_id": text, "owner_identity": 1, "parent_id": parent}
        attr = graphs.insert_attr(app, row)
        graphs.update_sync_flags(app, "attr", [attr], 1)
    done = notes("sync", "export", "here", "talk", "p.sync", "--key", "my.key")
    assert "not shareable: attr row 1" in done.out


def test_identities_are_listed_and_their_cache_rebuilt(notes):
    assert notes("sync", "peer", "here", "ed25519:alice", "--label", "Alice").code == 0
    shown = document(notes("sync", "identities", "here", "--json"))
    assert shown["rebuilt"] is None
    assert [(identity["id"], identity["label"]) for identity in shown["identities"]] == [
        (1, "Alice")
    ]
    again = document(notes("sync", "identities", "here", "--rebuild", "--json"))
    assert again["rebuilt"] == {"kept": 1, "restored": 0, "dropped": 0}
    assert again["identities"] == shown["identities"]
    assert "1 kept" in notes("sync", "identities", "here", "--rebuild").out
    assert notes("sync", "identities", "here", "--drop-unknown").code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (("list", "nowhere"), 3, "not_found"),
        (("query", "here", "unknown"), 3, "not_found"),
        (("insert", "here", "notes", "{"), 2, "invalid_input"),
        (("insert", "here", "notes", "3"), 2, "invalid_input"),
        (("insert", "here", "notes", '{"op": "parent_create", "type_key": "x"}'), 3, "not_found"),
        (("query", "here", "notes", "--at", 99), 2, "invalid_input"),
        (("history", "here", "notes", "parent", 7), 3, "not_found"),
        (("register", "here", "No Slug"), 2, "invalid_input"),
        (("sync", "import", "here", "nofile", "--peer", 1), 3, "not_found"),
        (
            ("sync", "export", "here", "talk", "x", "--key", "here/fourfold.toml"),
            2,
            "invalid_input",
        ),
    ],
)
def test_refusal_shows_its_kind_and_exit_code(notes, arguments, code, kind):
    done = notes(*arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"error[{kind}]")


@pytest.fixture
def linked(notes):
    """A store with three notes: 1 cites 2, and 2 cites 3."""
    assert notes("type", "here", "notes", "edge", 'cites "a"').code == 0
    ops = [{"op": "parent_create", "type_key": "note"} for _ in range(3)]
    ops += [
        {
            "op": "edge_create",
            "type_key": 'cites "a"',
            "payload": {"src_parent_id": {"$op": n}, "dst_parent_id": {"$op": n + 1}},
        }
        for n in range(2)
    ]
    assert notes("insert", "here", "notes", NOTE).code == 0
    assert notes("insert", "here", "notes", json.dumps(ops)).code == 0
    return notes


def test_walks_print_tables_json_and_graphviz(linked):
    near = linked("neighbours", "here", "notes", 2)
    assert near.out.splitlines() == [
        "OBJECT  TYPE  DISTANCE  FROM  EDGE  EDGE TYPE",
        '3       note  1         2     1     cites "a"',
    ]
    far = document(linked("neighbours", "here", "notes", 2, "--depth", 9, "--json"))
    assert [(row["object_id"], row["distance"]) for row in far["objects"]] == [(3, 1), (4, 2)]
    some = linked("neighbours", "here", "notes", 2, "--depth", 9, "--limit", 1)
    assert some.out.endswith("There are more: --limit 10\n")
    back = linked("path", "here", "notes", 4, 2, "--direction", "in", "--type", 'cites "a"')
    assert [line.split()[0] for line in back.out.splitlines()] == ["OBJECT", "4", "3", "2"]
    assert linked("path", "here", "notes", 4, 2).out == "no path\n"
    assert document(linked("path", "here", "notes", 1, 2, "--json"))["path"] == []
    assert linked("path", "here", "notes", 4, 2, "--direction", "in", "--dot").out == (
        "digraph {\n"
        '  4 [label="note 4"];\n'
        '  3 [label="note 3"];\n'
        '  2 [label="note 2"];\n'
        '  3 -> 4 [label="cites \\"a\\""];\n'
        '  2 -> 3 [label="cites \\"a\\""];\n'
        "}\n"
    )
    query = linked("query", "here", "notes", "--dot").out
    assert query.splitlines()[1:5] == [f'  {n} [label="note {n}"];' for n in (1, 2, 3, 4)]
    assert query.count("->") == 2
    some = linked("query", "here", "notes", "--limit", 2, "--dot").out
    assert "->" not in some
    edges = linked("query", "here", "notes", "--kind", "edge", "--limit", 1, "--dot").out
    assert edges == (
        "digraph {\n"
        '  2 [label="note 2"];\n'
        '  3 [label="note 3"];\n'
        '  2 -> 3 [label="cites \\"a\\""];\n'
        "}\n"
    )
    assert linked("query", "here", "notes", "--kind", "edge", "--at", 1, "--dot").out == (
        "digraph {\n}\n"
    )
    assert linked("query", "here", "notes", "--kind", "attr", "--dot").code == 2
    dot = linked("neighbours", "here", "notes", 2, "--dot").out
    assert '  2 -> 3 [label="cites \\"a\\""];\n' in dot


def test_an_upgrade_is_tried_and_then_run(notes, tmp_path):
    folder = tmp_path / "steps"
    call = "upgrade", "here", "notes", folder
    assert notes(*call).code == 3
    folder.mkdir()
    step = folder / "0002_by_text.sql"
    step.write_text("CREATE INDEX {app}_attr_text ON {app}_attr (value_text);")
    rule = {"kind": "attr", "type_key": "body", "rule": {"value": "text"}}
    (folder / "rules.json").write_text(json.dumps([rule]))
    shown = ["notes would be at version 2", "step 2 by_text", "1 rule"]
    assert notes(*call, "--dry-run").out.splitlines() == shown
    assert document(notes("list", "here", "--json"))["apps"][1]["version"] == 1
    assert document(notes("describe", "here", "notes", "--json"))["types"][1]["rule"] is None
    assert notes(*call).out.splitlines() == ["notes is at version 2", *shown[1:]]
    assert document(notes("describe", "here", "notes", "--json"))["types"][1]["rule"]
    again = document(notes(*call, "--json"))
    assert (again["app"]["version"], again["steps"]) == (2, [])
    step.write_text("CREATE INDEX {app}_other ON {app}_attr (value_text);")
    assert "not the one that ran" in notes(*call, "--dry-run").err
    (folder / "x.sql").write_text("")
    assert "NNNN_name.sql" in notes(*call).err
    (folder / "x.sql").unlink()
    (folder / "rules.json").write_text("{}")
    assert "not a list of rules" in notes(*call).err


def test_a_batch_is_written_once_by_its_name(notes):
    call = "insert", "here", "notes", NOTE, "--trace", "a", "--once"
    first = notes(*call)
    assert (first.code, notes(*call).out) == (0, first.out)
    assert notes("insert", "here", "notes", NOTE, "--once").code == 2


def test_rules_are_set_described_and_removed(linked):
    rule = json.dumps({"on": ["note"], "to": ["note"], "most": 1})
    call = "rule", "here", "notes", "edge", 'cites "a"'
    assert linked(*call, rule).out == 'the rule of cites "a" was set\n'
    assert (
        linked("describe", "here", "notes")
        .out.splitlines()[-1]
        .endswith('{"on": ["note"], "to": ["note"], "most": 1}')
    )
    edge = {"op": "edge_create", "type_key": 'cites "a"'}
    edge["payload"] = {"src_parent_id": 2, "dst_parent_id": 4}
    assert "1 times" in linked("insert", "here", "notes", json.dumps(edge)).err
    assert linked(*call, "--remove").out == 'the rule of cites "a" was removed\n'
    assert linked("insert", "here", "notes", json.dumps(edge)).code == 0
    assert linked(*call, rule).code != 0
    assert linked(*call).code == linked(*call, "[]").code == 2


def test_matches_print_tables_json_and_graphviz(linked):
    pattern = {"steps": [{"from": "a", "to": "b", "type": 'cites "a"'}, {"from": "b", "to": "c"}]}
    call = "match", "here", "notes", json.dumps(pattern)
    assert linked(*call).out.splitlines() == ["A  B  C  STEP 1  STEP 2", "2  3  4  1       2"]
    [row] = document(linked(*call, "--json"))["rows"]
    assert row["objects"] == {"a": 2, "b": 3, "c": 4}
    assert row["paths"][1] == {"objects": [3, 4], "edges": [2]}
    assert '  3 -> 4 [label="cites \\"a\\""];\n' in linked(*call, "--dot").out
    assert linked(*call, "--at", 1).out == "no matches\n"
    both = json.dumps({"steps": [{"from": "a", "to": "b", "hops": 2}]})
    page = linked("match", "here", "notes", both, "--limit", 2)
    cursor = page.out.splitlines()[-1].removeprefix("There are more: --after ")
    rest = linked("match", "here", "notes", both, "--limit", 2, "--after", cursor)
    assert rest.out.splitlines()[1:] == ["3  4  2"]
    assert linked("match", "here", "notes", "{}").code == 2


def test_walks_read_the_past_and_refuse_what_is_unknown(linked):
    assert linked("neighbours", "here", "notes", 1, "--at", 1).out == "no objects\n"
    assert linked("neighbours", "here", "notes", 2, "--at", 1).code == 3
    assert linked("path", "here", "notes", 2, 4, "--at", "2999-01-01").code == 0
    assert linked("query", "here", "notes", "--at", "2001-01-01").out == "no objects\n"
    unknown = linked("path", "here", "notes", 2, 4, "--type", "likes")
    assert "app 'notes' has no type 'likes' of edge" in unknown.err


def test_values_are_found_ranked_and_continued(notes):
    assert notes("type", "here", "notes", "rating", "stars").code == 0
    ops = [{"op": "parent_create", "type_key": "note"} for _ in range(2)]
    for at, value in ((0, "b"), (1, "a"), (1, 7)):
        body = {"parent_id": {"$op": at}, "value": value}
        ops.append({"op": "attr_create", "type_key": "body", "payload": body})
    for at, value in ((0, 2), (0, 3), (1, 5)):
        body = {"target_parent_id": {"$op": at}, "value": value}
        ops.append({"op": "rating_create", "type_key": "stars", "payload": body})
    assert notes("insert", "here", "notes", json.dumps(ops)).code == 0
    assert notes("find", "here", "notes", "body", '{"$gte": "a"}').out.splitlines() == [
        "OBJECT  OF        OWNER  VALUE",
        "2       parent 2  0      a",
        "1       parent 1  0      b",
    ]
    page = document(notes("find", "here", "notes", "body", "--limit", 2, "--json"))
    assert [row["object_id"] for row in page["rows"]] == [3, 2]
    cursor = page["next_cursor"]
    rest = document(notes("find", "here", "notes", "body", "--after", cursor, "--json"))
    assert [row["value_text"] for row in rest["rows"]] == ["b"]
    ranked = document(notes("top", "here", "notes", "stars", "--order", "count", "--json"))
    assert [(row["object_id"], row["average"]) for row in ranked["objects"]] == [(1, 2.5), (2, 5.0)]
    assert notes("top", "here", "notes", "stars", "--at", 0).out == "no objects\n"
    assert notes("top", "here", "notes", "none").code == 3


def test_batches_are_found_by_their_names(notes):
    for name in ("first", "second", "first"):
        assert notes("insert", "here", "notes", NOTE, "--trace", name).code == 0
    found = document(notes("trace", "here", "notes", "first", "--json"))["envelopes"]
    assert [(row["global_seq"], row["kinds"]) for row in found] == [
        (1, ["parent"]),
        (3, ["parent"]),
    ]
    lines = notes("trace", "here", "notes", "first", "--after", 1).out.splitlines()
    assert [line.split()[:2] for line in lines] == [["NUMBER", "WROTE"], ["3", "parent"]]
    assert notes("trace", "here", "notes", "third").out == "no batch has this name\n"
