"""Claims about `fourfold space` where two states meet: diff, merge, branches, blobs, export."""

from __future__ import annotations

import json

import pytest
from space_calls import DID, get

# Two states


@pytest.fixture
def parted(on):
    """Two branches that both went on from `note`, `todo`."""
    on("set", "note", '{"title": "a", "n": 1}')
    on("set", "todo", "{}")
    on("branch create", "draft")
    on("patch", "note", '{"op": "replace", "path": "/title", "value": "b"}', "--branch", "draft")
    on("set", "new", '{"on": "draft"}', "--branch", "draft")
    on("delete", "todo", "--branch", "draft")
    on("patch", "note", '{"op": "increment", "path": "/n", "by": 1}')
    return on


def test_diff_shows_what_makes_one_branch_look_like_the_other(parted):
    assert parted("diff", "--to-branch", "draft").out.splitlines() == [
        "from (default) at seq 7 to draft at seq 7: 3 entities differ",
        "+ new   (changed on draft)",
        '    {"on": "draft"}',
        "~ note   (changed on both)",
        "    replace /n 1",
        '    replace /title "b"',
        "- todo   (changed on draft)",
    ]


def test_diff_shows_what_happened_since_a_point(parted):
    assert parted("diff", "--at", "2").out.splitlines() == [
        "from (default) at seq 2 to (default) at seq 7: 1 entity differs",
        "~ note",
        "    replace /n 2",
    ]
    found = parted("diff", "--at", "2", "--to-at", "2", "--json").document
    assert found["changes"] == []
    assert parted("diff", "--at", "7").out.endswith("no difference\n")


def test_a_merge_brings_the_changes_of_both_together(parted):
    tried = parted("merge", "draft", "--dry-run", "--json").document
    assert tried["seq"] is None
    assert parted("merge", "draft", "--dry-run").out.startswith("would merge draft into (default)")
    done = parted("merge", "draft", "--json").document
    assert done == {**tried, "seq": 8}
    assert get(parted) == {"title": "b", "n": 2}
    assert parted("ids").out == "new\nnote\n"
    assert parted("merge", "draft").out == "nothing to merge from draft into (default)\n"
    assert parted("merge", "", "--into", "draft").out.startswith("seq 9: merged (default) into")


def test_a_conflict_is_shown_and_nothing_is_written(parted, run, refused):
    parted("patch", "note", '{"op": "replace", "path": "/title", "value": "c"}')
    done = run("merge", "shop", DID, "draft")
    assert done.code == 4
    assert done.out.splitlines()[0] == "cannot merge draft into (default): 1 conflict"
    assert done.out.splitlines()[2].split() == ["note", "/title", '"a"', '"b"', '"c"']
    assert run("merge", "shop", DID, "draft", "--dry-run").out == done.out
    (conflict,) = run("merge", "shop", DID, "draft", "--json").error["details"]["conflicts"]
    assert (conflict["entity"], conflict["paths"]) == ("note", ["/title"])
    assert get(parted) == {"title": "c", "n": 2}
    assert parted("log", "--json").document["commits"][-1]["seq"] == 8


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("source", {"title": "b", "n": 2}),
        ("target", {"title": "c", "n": 2}),
        ('{"other": 1}', {"other": 1}),
        ("null", None),
    ],
)
def test_conflict_is_resolved_as_one_side_or_as_something_else(parted, choice, expected):
    parted("patch", "note", '{"op": "replace", "path": "/title", "value": "c"}')
    parted("merge", "draft", "--resolve", "note", choice)
    if expected is None:
        assert "note" not in parted("ids").out
    else:
        assert get(parted) == expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("source", {"title": "b", "n": 2}),
        ("theirs", {"title": "b", "n": 2}),
        ("ours", {"title": "c", "n": 2}),
        ('"ours"', {"title": "ours", "n": 2}),
        ("null", {"title": None, "n": 2}),
        ("absent", {"n": 2}),
    ],
)
def test_conflict_is_resolved_at_its_path(parted, choice, expected):
    parted("patch", "note", '{"op": "replace", "path": "/title", "value": "c"}')
    parted("merge", "draft", "--resolve-path", "note", "/title", choice)
    assert get(parted) == expected


def test_needless_or_repeated_path_resolutions_are_refused(parted, run):
    parted("patch", "note", '{"op": "replace", "path": "/title", "value": "c"}')
    title = ("--resolve-path", "note", "/title", "ours")
    for options in (
        ("--resolve-path", "note", "/n", "ours"),
        (*title, "--resolve", "note", "ours"),
        (*title, *title),
        ("--resolve", "note", "ours", "--resolve", "note", "theirs"),
        ("--resolve-path", "note", "/title", "nonsense"),
    ):
        done = run("merge", "shop", DID, "draft", *options)
        assert (done.code, done.out) == (2, "")
    assert get(parted) == {"title": "c", "n": 2}


def test_whole_entities_conflict_although_their_fields_do_not(parted, run):
    assert run("merge", "shop", DID, "draft", "--whole").code == 4
    parted("merge", "draft", "--whole", "--resolve", "note", "source")
    assert get(parted) == {"title": "b", "n": 1}


def test_a_resolution_of_what_is_no_conflict_is_refused(parted, run):
    for choice in ("source", "{}"):
        done = run("merge", "shop", DID, "draft", "--resolve", "nothing", choice)
        assert (done.code, done.out) == (2, "")


def test_revert_brings_back_everything_or_some_entities(parted, run):
    parted("set", "todo", '{"n": 1}')
    assert parted("revert", "todo", "--at", "2").out == "seq 9: back to seq 2: patch todo\n"
    assert get(parted, "todo") == {}
    assert get(parted) == {"title": "a", "n": 2}
    done = parted("revert", "--at", "2", "--json").document
    assert (done["seq"], done["to"], len(done["operations"])) == (10, 2, 1)
    assert get(parted) == {"title": "a", "n": 1}
    assert parted("revert", "--at", "2").out.startswith("nothing to do")
    assert parted("revert", "--at", "2", "--json").document["seq"] is None
    assert run("revert", "shop", DID, "nope", "--at", "2").code == 3
    assert run("revert", "shop", DID).code == 2


# Branches


def test_branch_shows_its_parent_as_and_goes_its_own_way(on):
    on("set", "note", '{"n": 1}')
    on("set", "note", '{"n": 2}')
    made = on("branch create", "old", "--at", "1", "--json").document
    assert (made["name"], made["parent"], made["fork_seq"], made["created_seq"]) == (
        "old",
        "",
        1,
        3,
    )
    assert get(on, "note", "--branch", "old") == {"n": 1}
    on("patch", "note", '{"op": "add", "path": "/own", "value": true}', "--branch", "old")
    assert get(on, "note", "--branch", "old") == {"n": 1, "own": True}
    assert get(on) == {"n": 2}
    nested = on("branch create", "nested", "--parent", "old").out
    assert nested == "created branch nested from old at seq 4\n"


def test_a_deleted_branch_can_be_read_and_not_written(on, refused):
    on("branch create", "draft")
    on("set", "note", '{"n": 1}', "--branch", "draft")
    assert on("branch delete", "draft").out == "deleted branch draft; it can still be read\n"
    assert get(on, "note", "--branch", "draft") == {"n": 1}
    assert refused("set", "note", "{}", "--branch", "draft")["kind"] == "branch_ended"
    assert refused("branch create", "draft")["kind"] == "already_exists"
    assert refused("branch delete", "")["kind"] == "refused"


def test_branches_are_listed_with_the_deleted_ones_on_request(on):
    on("branch create", "draft")
    on("branch delete", "draft")
    assert [branch["name"] for branch in on("branch list", "--json").document["branches"]] == [""]
    lines = on("branch list", "--deleted").out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["(default)", "0", "0", "active"],
        ["draft", "(default)", "0", "1", "1", "0", "0", "deleted"],
    ]


# Blobs


def test_a_blob_goes_in_and_comes_out(on, run, tmp_path):
    (tmp_path / "in.bin").write_bytes(b"\x00\xff bytes")
    put = on("blob put", "in.bin", "--content-type", "text/odd", "--metadata", '{"name": "in"}')
    name = put.out.strip()
    assert on("blob put", "-", "--json", stdin=b"\x00\xff bytes").document == {
        "hash": name,
        "size": 8,
        "content_type": "text/odd",
    }
    got = on("blob get", name, "--output", "out.bin", "--json").document
    assert (got["hash"], got["file"]) == (name, "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == b"\x00\xff bytes"
    assert on("blob list").out.splitlines()[1].split() == [name, "8", "B", "text/odd"]
    assert get(on, f"urn:blob-meta:{name.removeprefix('sha256:')}")["value"]["name"] == "in"
    assert run("blob", "get", "shop", DID, name, "--output", "out.bin").code == 4
    assert run("blob", "get", "shop", DID, name, "--json").code == 2


def test_bytes_of_blob_go_to_stdout_as_they_are(on):
    assert on("blob list").out == "no blobs yet\n"
    name = on("blob put", "-", stdin=b"line\r\n\tno newline").out.strip()
    assert on("blob get", name).out == "line\r\n\tno newline"


def test_a_blob_that_is_not_there_is_an_error(refused):
    assert refused("blob get", f"sha256:{'0' * 64}", "--output", "x")["kind"] == "not_found"
    assert refused("blob get", "nonsense", "--output", "x")["kind"] == "content"
    assert refused("blob put", "nowhere.bin")["kind"] == "not_found"


# Export and import


def test_an_export_builds_the_same_space_elsewhere(parted, run, tmp_path):
    name = parted("blob put", "-", stdin=b"bytes").out.strip()
    done = parted("export", "--output", "e.ndjson", "--json").document
    assert (done["commits"], done["file"]) == (7, "e.ndjson")
    assert done["bytes"] == (tmp_path / "e.ndjson").stat().st_size
    copied = run("import", "other", "did:web:copy", "e.ndjson", "--json").document
    assert copied == {"root": "other", "did": "did:web:copy", "seq": 7, "commits": 7, "blobs": 1}
    assert run("log", "other", "did:web:copy").out == parted("log").out
    assert run("blob", "get", "other", "did:web:copy", name).out == "bytes"
    assert "nothing new" in run("import", "other", "did:web:copy", "e.ndjson").out


def test_an_export_flows_through_a_pipe(parted, run):
    lines = parted("export").out
    assert json.loads(lines.splitlines()[0])["kind"] == "space"
    done = run("import", "other", DID, "-", "--history", "facts", stdin=lines.encode())
    assert done.code == 0
    assert run("verify", "other", DID).code == 0
    assert run("list", "other", "--json").document["spaces"][0]["history"] == "facts"
    facts = run("export", "other", DID).out
    run("import", "other", "did:web:as-it-was", "-", stdin=facts.encode())
    assert run("list", "other").out.count("facts") == 2
    parted("set", "later", "{}")
    more = parted("export", "--after", "7").out.encode()
    assert "imported 1 commit;" in run("import", "other", DID, "-", stdin=more).out


def test_an_export_never_replaces_a_file(parted, run, tmp_path):
    (tmp_path / "mine").write_text("mine")
    assert run("export", "shop", DID, "--output", "mine").code == 4
    assert (tmp_path / "mine").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "shop"]
    assert run("export", "shop", DID, "--json").error["kind"] == "invalid_input"


def test_a_bad_import_is_refused(run, on, tmp_path):
    (tmp_path / "bad").write_text("{}\n")
    for file, code in (("bad", 2), ("nowhere", 3)):
        assert run("import", "shop", DID, file).code == code
        assert run("import", "new", DID, file).code == code
    assert not (tmp_path / "new").exists()
    on("set", "note", "{}")
    other = on("export").out.replace("note", "nota")
    assert run("import", "shop", DID, "-", stdin=other.encode()).code == 6


def test_space_is_converted_between_histories_and_back(parted, run):
    done = parted("carry", "did:web:facts", "--json").document
    assert (done["history"], done["seq"], done["commits"]) == ("facts", 7, 7)
    assert "nothing new" in parted("carry", "did:web:facts").out
    back = run("carry", "shop", "did:web:facts", "did:web:back")
    assert back.out.startswith("did:web:back (revisions): carried over 7 commits")
    assert run("log", "shop", "did:web:back").out == parted("log").out
    assert run("carry", "shop", DID, DID).code == 2
    assert run("carry", "shop", "did:web:none", "did:web:new").code == 3
    assert "did:web:new" not in run("list", "shop").out
    parted("gc", "--keep", "1")
    assert run("carry", "shop", DID, "did:web:new", "--json").error["kind"] == "history_truncated"
    assert "did:web:new" not in run("list", "shop").out
