"""Claims about `fourfold space`: what each command does, prints and refuses."""

from __future__ import annotations

import json

import pytest
from space_calls import DID, get

import fourfold

# Spaces


def test_create_makes_the_store_and_the_space(run, tmp_path):
    done = run("create", "shop", DID, "--json")
    assert done.document == {"root": "shop", "did": DID, "history": "revisions", "seq": 0}
    assert (tmp_path / "shop" / "spaces" / f"{DID}.sqlite").is_file()


def test_a_space_that_exists_is_not_created_again(on, run):
    on("set", "note", "{}")
    done = run("create", "shop", DID, "--json")
    assert (done.code, done.error["kind"]) == (4, "already_exists")
    assert on("ids").out == "note\n"


def test_a_command_on_a_missing_space_or_store_makes_nothing(run, on, tmp_path):
    for arguments in (
        ["set", "shop", "did:web:other", "a", "{}"],
        ["ids", "shop", "did:web:other"],
    ):
        done = run(*arguments)
        assert done.code == 3
        assert "fourfold space create shop did:web:other" in done.err
    assert run("set", "nowhere", DID, "a", "{}").code == 3
    assert not (tmp_path / "nowhere").exists()
    assert run("list", "shop", "--json").document["spaces"][0]["did"] == DID
    assert len(run("list", "shop", "--json").document["spaces"]) == 1


@pytest.mark.parametrize("did", ["shop", "did:web:../x", "did:", "did:web:a/b", ""])
def test_what_is_no_did_is_refused(run, did, tmp_path):
    done = run("create", "shop", did)
    assert (done.code, done.out) == (2, "")
    assert not (tmp_path / "shop").exists()


def test_list_names_every_space_with_its_history_and_size(run, on):
    run("create", "shop", "did:web:b.example", "--history", "facts")
    on("set", "note", "{}")
    found = run("list", "shop", "--json").document["spaces"]
    assert [(row["did"], row["history"], row["seq"], row["branches"]) for row in found] == [
        ("did:web:b.example", "facts", 0, 1),
        (DID, "revisions", 1, 1),
    ]
    assert all(row["bytes"] > 0 for row in found)
    assert run("list", "shop").out.splitlines()[0].split() == [
        "SPACE",
        "HISTORY",
        "SEQ",
        "BRANCHES",
        "SIZE",
    ]


def test_a_store_without_spaces_says_how_to_make_one(run, tmp_path):
    fourfold.open(tmp_path / "shop").close()
    assert "fourfold space create shop" in run("list", "shop").out


def test_the_root_may_come_from_the_environment(run, on, monkeypatch):
    assert "ROOT" in run("set", DID, "note", "{}").err
    monkeypatch.setenv("FOURFOLD_ROOT", "shop")
    assert run("set", DID, "note", '{"a": 1}', "--json").document["seq"] == 1
    assert run("get", "--json", DID, "note").document["document"] == {"a": 1}
    assert run("branch", "create", DID, "draft").code == 0
    assert DID in run("list").out


def test_verify_finds_a_changed_row(on, run, tmp_path):
    on("set", "note", '{"title": "before"}')
    assert on("verify").out == f"{DID} is sound (1 commit checked)\n"
    assert on("verify", "--json").document == {"did": DID, "seq": 1, "ok": True, "problems": []}
    [path] = (tmp_path / "shop" / "spaces").glob("*.sqlite")
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"before"', b'"beforf"', 1))
    done = run("verify", "shop", DID, "--json")
    assert done.code == 8
    assert done.document["ok"] is False
    assert done.error["kind"] == "corrupt_data"
    assert run("verify", "shop", DID).out.splitlines() == done.document["problems"]


def test_maintain_says_what_it_did(on, refused):
    assert on("maintain", "--json").document == {
        "did": DID,
        "made": 0,
        "dropped": 0,
        "collected": None,
    }
    on("set", "note", '{"n": 0}')
    for _ in range(12):
        on("patch", "note", '{"op": "increment", "path": "/n", "by": 1}')
    assert on("maintain", "--retention", "1", "--pin", "3").out.endswith("dropped\n")
    assert get(on) == {"n": 12}
    assert refused("maintain", "--retention", "some")["kind"] == "invalid_input"


# Changes


def test_a_document_comes_from_the_argument_a_file_or_stdin(on, tmp_path):
    (tmp_path / "file.json").write_text('{"from": "file"}')
    assert on("set", "note", '{"from": "argument"}').out == "seq 1: set note\n"
    assert get(on) == {"from": "argument"}
    on("set", "note", "@file.json")
    assert get(on) == {"from": "file"}
    on("set", "note", "-", stdin=b'{"from": "stdin"}')
    assert get(on) == {"from": "stdin"}


def test_patches_come_as_a_list_or_alone(on):
    on("patch", "note", '{"op": "add", "path": "/a", "value": 1}')
    on("patch", "note", '[{"op": "increment", "path": "/a", "by": 2}]')
    assert get(on) == {"a": 3}


@pytest.mark.parametrize("name", ["set", "patch", "delete"])
def test_a_change_prints_its_seq(on, name):
    values = {"set": ["{}"], "patch": ["[]"], "delete": []}[name]
    values = ['[{"op": "add", "path": "/a", "value": 1}]'] if name == "patch" else values
    assert on(name, "note", *values, "--json").document == {
        "did": DID,
        "branch": "",
        "id": "note",
        "op": name,
        "seq": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["set", "note", "{"], "invalid_input"),
        (["set", "note", "[]"], "invalid_input"),
        (["set", "note", "5"], "invalid_input"),
        (["set", "note", "@nowhere.json"], "not_found"),
        (["set", "note", "@."], "invalid_input"),
        (["set", "note", "NaN"], "invalid_input"),
        (["set", "", "{}"], "invalid_input"),
        (["set", "note", "{}", "--branch", "none"], "not_found"),
        (["set", "note", "{}", "--if-seq", "4"], "precondition_failed"),
        (["patch", "note", "5"], "invalid_input"),
        (["patch", "note", '{"op": "remove", "path": "/a"}'], "invalid_input"),
        (["patch", "note", '{"op": "test", "path": "/a"}'], "invalid_input"),
        (["delete", "note", "--if-seq", "1"], "precondition_failed"),
    ],
)
def test_a_bad_change_is_refused_and_writes_nothing(on, refused, arguments, kind):
    assert refused(*arguments)["kind"] == kind
    assert on("log", "--json").document["commits"] == []


def test_if_seq_writes_only_over_what_was_seen(on, refused):
    on("set", "note", "{}", "--if-seq", "0")
    assert refused("set", "note", "{}", "--if-seq", "0")["details"]["conflict_seq"] == 1
    on("set", "note", "{}", "--if-seq", "1")


# Reads


def test_get_prints_document_alone_so_it_can_be_stored_again(on):
    document = {"title": "é\u0007\u0085\u202e", "n": [1, 1.0, None, 10**20]}
    on("set", "note", json.dumps(document))
    printed = on("get", "note").out
    assert json.loads(printed) == document
    assert "é" in printed
    assert all(char.isprintable() or char == "\n" for char in printed)
    on("set", "copy", "-", stdin=printed.encode())
    assert get(on, "copy") == document


def test_get_says_more_on_request(on):
    on("set", "note", '{"a": 1}')
    assert on("get", "note", "--json").document == {
        "id": "note",
        "branch": "",
        "document": {"a": 1},
        "op": "set",
        "seq": 1,
    }


def test_every_past_state_is_read_by_seq_and_by_time(on):
    on("set", "note", '{"n": 1}')
    on("set", "note", '{"n": 2}')
    first, second = on("log", "--json").document["commits"]
    assert get(on, "note", "--at", "1") == {"n": 1}
    assert get(on, "note", "--at", "2") == {"n": 2}
    assert get(on, "note", "--at", second["created_at"]) == {"n": 2}
    assert get(on, "note", "--at", "2999-01-01") == {"n": 2}
    if first["created_at"] != second["created_at"]:
        assert get(on, "note", "--at", first["created_at"]) == {"n": 1}
        assert get(on, "note", "--at", first["created_at"].removesuffix("Z")) == {"n": 1}


def test_entity_that_is_not_there_is_error_that_says_why(on, refused):
    assert "never written" in refused("get", "note")["message"]
    on("set", "note", "{}")
    on("delete", "note")
    gone = refused("get", "note")
    assert (gone["kind"], gone["details"]) == ("not_found", {"entity": "note", "deleted_seq": 2})
    assert "--at 1" in gone["hint"]
    assert get(on, "note", "--at", "1") == {}
    assert "as of seq 0" in refused("get", "note", "--at", "0")["message"]


@pytest.mark.parametrize(
    ("at", "kind"),
    [
        ("99", "invalid_input"),
        ("yesterday", "invalid_input"),
        ("-1", "invalid_input"),
        ("9" * 30, "invalid_input"),
        ("2020-01-01T00:00:00+01:00", "not_found"),
    ],
)
def test_a_point_that_is_not_in_the_history_is_refused(on, refused, at, kind):
    on("set", "note", "{}")
    assert refused("get", "note", "--at", at)["kind"] == kind


def test_ids_are_those_that_exist_at_the_point(on):
    on("set", "a", "{}")
    on("set", "b", "{}")
    on("delete", "a")
    assert on("ids").out == "b\n"
    assert on("ids", "--at", "2", "--json").document == {
        "branch": "",
        "ids": ["a", "b"],
        "next": None,
    }


def test_ids_are_listed_page_by_page(on):
    for name in ("a1", "a2", "a3", "b1"):
        on("set", name, "{}")
    page = on("ids", "--prefix", "a", "--limit", "2", "--json").document
    assert page == {"branch": "", "ids": ["a1", "a2"], "next": "a2"}
    page = on("ids", "--prefix", "a", "--after", page["next"], "--limit", "2", "--json").document
    assert page == {"branch": "", "ids": ["a3"], "next": None}
    assert on("ids", "--after", "a2").out == "a3\nb1\n"


def test_a_name_cannot_move_the_cursor(on):
    on("set", "\x1b[2Ja", "{}")
    for name in ("ids", "log"):
        assert "\x1b" not in on(name).out
    assert "\x1b" not in on("delete", "\x1b[2Ja").out


def test_log_shows_newest_commits_last_and_goes_on_by_seq(on):
    assert on("log").out == "no commits yet\n"
    for number in range(5):
        on("set", f"e{number}", "{}")
    seqs = [line.split()[0] for line in on("log", "--limit", "2").out.splitlines()[1:]]
    assert seqs == ["4", "5"]
    page = on("log", "--after", "0", "--limit", "3", "--json").document
    assert [commit["seq"] for commit in page["commits"]] == [1, 2, 3]
    rest = on("log", "--after", page["next"], "--json").document
    assert [commit["seq"] for commit in rest["commits"]] == [4, 5]
    assert rest["next"] is None
    assert on("log", "--after", "5").out == "no commits after seq 5\n"


def test_the_log_says_in_words_what_each_commit_did(on, tmp_path):
    with fourfold.open(tmp_path / "shop") as store:
        store.space(DID).transact([{"op": "set", "id": f"e{n}", "value": {}} for n in range(5)])
    on("branch create", "draft")
    on("patch", "e0", '{"op": "add", "path": "/a", "value": 1}', "--branch", "draft")
    on("merge", "draft")
    on("branch delete", "draft")
    changes = [line.split("  ")[-1] for line in on("log").out.splitlines()[1:]]
    assert changes == [
        "set e0, set e1, set e2 and 2 more",
        "create branch draft from (default) at 1",
        "patch e0",
        "merge draft: set e0",
        "delete branch draft",
    ]


def test_history_shows_each_revision_that_the_branch_sees(on):
    on("set", "note", '{"title": "a"}')
    on("branch create", "draft")
    on(
        "patch",
        "note",
        '[{"op": "replace", "path": "/title", "value": "b"},'
        ' {"op": "move", "from": "/title", "path": "/name"},'
        ' {"op": "append", "path": "/list", "values": [1, 2]},'
        ' {"op": "splice", "path": "/list", "index": 0, "remove": 1, "add": [3]}]',
        "--branch",
        "draft",
    )
    on("delete", "note")
    change = (
        'replace /title "b"; move /title -> /name; append /list [1, 2]; '
        "splice /list at 0 remove 1 add [3]"
    )
    lines = on("history", "note", "--branch", "draft").out.splitlines()
    assert lines[1].split(None, 3) == ["1", "(default)", "set", '{"title": "a"}']
    assert lines[2].split(None, 3) == [
        "3",
        "draft",
        "patch",
        change,
    ]
    found = on("history", "note", "--json").document
    assert [(revision["seq"], revision["op"]) for revision in found["revisions"]] == [
        (1, "set"),
        (4, "delete"),
    ]
    assert found["next"] is None
    ended = on("history", "note", "--at", "1", "--json").document
    assert [revision["seq"] for revision in ended["revisions"]] == [1]


def test_follow_prints_commits_and_matches(on, refused):
    on("set", "note", '{"title": "a"}')
    on("set", "other", '{"title": "b"}')
    on("patch", "note", '{"op": "replace", "path": "/title", "value": "b"}')
    on("delete", "note")
    rest = ("--after", "0", "--timeout", "0")
    assert on("follow", *rest).out.splitlines() == [
        '     1  set     note  {"title": "a"}',
        '     2  set     other  {"title": "b"}',
        '     3  patch   note  replace /title "b"',
        "     4  delete  note",
    ]
    assert on("follow", "--id", "note", "--where", '{"title": "b"}', *rest).out.splitlines() == [
        '     3  enter   note  {"title": "b"}',
        "     4  leave   note  null",
    ]
    lines = on("follow", "--where", "{}", "--json", *rest).out.splitlines()
    assert [json.loads(line)["changes"][0]["kind"] for line in lines] == [
        *("enter", "enter", "change", "leave")
    ]
    rows = on("follow", "--ndjson", *rest).out.splitlines()
    assert json.loads(rows[0])["data"] == {"title": "a"}
    assert refused("follow", "--where", '{"$x": 1}')["kind"] == "invalid_input"


def test_pages_of_a_history_never_cut_a_commit(on, tmp_path):
    twice = [
        {"op": "set", "id": "note", "value": {}},
        {"op": "patch", "id": "note", "patches": [{"op": "add", "path": "/a", "value": 1}]},
    ]
    with fourfold.open(tmp_path / "shop") as store:
        for _ in range(3):
            store.space(DID).transact(twice)
    seen, after = [], 0
    while after is not None:
        page = on("history", "note", "--after", after, "--limit", "3", "--json").document
        seen += [(revision["seq"], revision["op_index"]) for revision in page["revisions"]]
        after = page["next"]
    assert seen == [(seq, index) for seq in (1, 2, 3) for index in (0, 1)]
    assert on("history", "note", "--limit", "3").out.endswith("There are more: --after 1\n")


def test_an_entity_without_history_is_an_error(refused, on):
    assert refused("get", "note")["kind"] == "not_found"
    assert on("history", "note", "--json").document["revisions"] == []


def test_reader_works_beside_writer_and_second_writer_is_refused(on, run, tmp_path):
    on("set", "note", '{"a": 1}')
    with fourfold.open(tmp_path / "shop") as store:
        store.space(DID).set("note", {"a": 2})
        assert get(on) == {"a": 2}
        done = run("set", "shop", DID, "note", "{}", "--json")
    assert (done.code, done.error["kind"]) == (6, "writer_locked")


# Help


@pytest.mark.parametrize("arguments", [[], ["branch"], ["blob"]])
def test_a_group_without_a_command_shows_its_help(run, arguments):
    bare = run(*arguments)
    assert (bare.code, bare.err) == (0, "")
    assert bare.out == run(*arguments, "--help").out
    assert "--json" in bare.out


def test_wrong_command_of_group_is_named_with_where_help_is(run):
    done = run("branch", "bogus")
    assert done.code == 2
    assert "bogus" in done.err
    assert "`fourfold space branch --help`" in done.err
