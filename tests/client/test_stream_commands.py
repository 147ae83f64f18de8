"""`fourfold stream` on a folder and on a server: the same commands print the same."""

from __future__ import annotations

import json
import sys
import threading

import pytest
from served_streams import Served

import fourfold
from fourfold.cli import main
from fourfold.server.auth import Access

OFFSET = "0000000000000000_000000000000000"


def test_every_command_prints_the_same_for_folder_and_server(both, tmp_path):
    assert both("create", "orders") == "created orders (application/json)\n"
    assert both("create", "orders", "--json").count('"created": false') == 1
    assert both("append", "orders", '[{"n": 1.50}, [2]]').startswith("2 records; ")
    lines = b'{"a":1}\n\n"\xc3\xa9"\n'
    assert both("append", "orders", "--from", "-", stdin=lines).startswith("2 records; ")
    file = tmp_path / "more.ndjson"
    file.write_bytes(b"".join(b"%d\n" % n for n in range(250)))
    for count in (250, 0):
        output = both("append", "orders", "--from", str(file), "--producer", "p", "--json")
        assert json.loads(output)["records"] == count
    assert both("read", "orders", "--limit", "4") == '{"n": 1.50}\n[2]\n{"a":1}\n"é"\n'
    output = json.loads(both("read", "orders", "--limit", "3", "--offset", f"{OFFSET}1", "--json"))
    assert [row["offset"] for row in output["records"]] == [f"{OFFSET}{n}" for n in (1, 2, 3)]
    assert (output["next_offset"], output["up_to_date"]) == (f"{OFFSET}4", False)
    assert both("tail", "orders", "--lines", "2") == "248\n249\n"
    both("fork", "orders", "what-if", "--at", f"{OFFSET}2")
    both("fork", "orders", "same", "--json")
    both("append", "what-if", "99", "--close")
    assert both("read", "what-if") == '{"n": 1.50}\n[2]\n99\n'
    assert "what-if" in both("list")
    assert len(json.loads(both("list", "--json", "--limit", "2"))["streams"]) == 2
    assert both("stats") == both("stats")
    assert json.loads(both("stats", "--json"))["streams"] == 3
    both("close", "orders")
    assert both("tail", "orders", "--lines", "1", "--follow") == "249\n"
    both("delete", "same")
    assert "same" not in both("list")


def test_append_depends_on_the_expected_end(both):
    both("create", "turns")
    assert both("append", "turns", "[1, 2]", "--expected", "0").startswith("2 records; ")
    assert both("append", "turns", "3", "--expected", f"{OFFSET}2").startswith("1 record; ")
    output = both("append", "turns", "4", "--expected", "2", "--json", code=4)
    assert f"found {OFFSET}3" in output
    assert "invalid offset" in both("append", "turns", "4", "--expected", "x", code=2)
    both("append", "turns", "--from", "-", "--expected", "3", stdin=b"4\n", code=2)
    assert both("read", "turns") == "1\n2\n3\n"


def test_records_have_headers(both, tmp_path):
    both("create", "traced")
    both("append", "traced", "1", "--header", "trace=a=b", "--header", "who=é")
    file = tmp_path / "more.ndjson"
    file.write_bytes(b"2\n3\n")
    both("append", "traced", "--from", str(file), "--header", "trace=c")
    both("append", "traced", "4")
    assert "NAME=VALUE" in both("append", "traced", "5", "--header", "trace", code=2)
    rows = json.loads(both("read", "traced", "--json"))["records"]
    expected = [{"trace": "a=b", "who": "é"}, {"trace": "c"}, {"trace": "c"}, {}]
    assert [row["headers"] for row in rows] == expected


def test_routing_keys_are_listed(both):
    both("create", "listed")
    assert both("keys", "listed") == "listed has no routing keys\n"
    for number, key in enumerate("cabc"):
        both("append", "listed", str(number), "--routing-key", key)
    rows = json.loads(both("keys", "listed", "--limit", "2", "--json"))
    assert [(row["key"], row["offset"]) for row in rows["keys"]] == [
        ("a", f"{OFFSET}1"),
        ("b", f"{OFFSET}2"),
    ]
    assert rows["next"] == "b"
    assert "c" in both("keys", "listed", "--after", "b")


def test_state_stream_is_compacted_by_key(both, places, capfd):
    both("create", "users")
    assert "requires the profile" in both("compact", "users", "--horizon", "now", code=6)
    for place in places:
        assert main.run(["stream", "profile", "set", place, "users", "state-protocol"]) == 0
    capfd.readouterr()
    for key in "aabb":
        change = {"type": "u", "key": key, "value": 1, "headers": {"operation": "upsert"}}
        both("append", "users", json.dumps(change))
    state = both("state", "users")
    assert "pass the horizon" in both("compact", "users", code=2)
    assert both("compact", "users", "--horizon", f"{OFFSET}3") == (
        f"removed 3 records, copied 1 key; users begins at {OFFSET}3\n"
    )
    result = json.loads(both("compact", "users", "--horizon", "now", "--json"))
    assert (result["copied"], result["removed"], result["complete"]) == (2, 2, True)
    assert result["first_offset"] == result["horizon"] == f"{OFFSET}5"
    # The state is in the order of the last changes, and copies are new ones.
    assert sorted(both("state", "users").splitlines()) == sorted(state.splitlines())


def test_messages_are_filtered(both):
    both("create", "kinds")
    both("append", "kinds", '[{"n": 1, "kind": "a"}, {"n": 2, "kind": "b"}, {"n": 3, "kind": "b"}]')
    where = ("--where", '{"kind": "b"}')
    assert both("read", "kinds", *where) == '{"n": 2, "kind": "b"}\n{"n": 3, "kind": "b"}\n'
    assert both("read", "kinds", *where, "--limit", "1") == '{"n": 2, "kind": "b"}\n'
    assert "a filter must be JSON" in both("read", "kinds", "--where", "{", code=2)
    both("close", "kinds")
    assert both("follow", "kinds", *where, "--offset", f"{OFFSET}2") == '{"n": 3, "kind": "b"}\n'


def test_records_of_all_streams_are_followed(both):
    for name in ("all/a", "all/b", "all/a"):
        both("create", name)
        both("append", name, f'"{name[-1]}"')
    every = ("--all", "--prefix", "all/", "--after", "-1", "--timeout", "0.5")
    assert both("follow", *every) == 'all/a\t"a"\nall/b\t"b"\nall/a\t"a"\n'
    rows = [json.loads(line) for line in both("follow", *every, "--ndjson").splitlines()]
    assert [row["stream"] for row in rows] == ["all/a", "all/b", "all/a"]
    assert rows[2]["offset"] == f"{OFFSET}1"
    both("follow", "all/a", "--all", code=2)
    both("follow", "all/a", "--prefix", "x", code=2)
    both("follow", code=2)


def test_bytes_are_printed_record_by_record(both):
    both("create", "raw", "--type", "application/octet-stream", "--ttl", "1000")
    for body in ("one", "two"):
        both("append", "raw", body)
    both("append", "raw", "--from", "-", stdin=b"three\n\xff\n")
    assert both("read", "raw") == "one\ntwo\nthree\n/w==\n"
    assert (
        json.loads(both("list", "--prefix", "raw", "--json"))["streams"][0]["ttl_seconds"] == 1000
    )


def test_set_changes_settings_for_folder_and_server(both):
    both("create", "kept", "--ttl", "1000")
    output = json.loads(both("set", "kept", "--ttl", "none", "--keep-bytes", "5", "--json"))
    assert (output["ttl_seconds"], output["retention_bytes"]) == (None, 5)
    assert "keep-bytes" in both("set", "kept", "--keep-bytes", "none")


def test_recreated_stream_shows_offsets_of_its_incarnation(both):
    for _ in range(2):
        both("create", "again")
        both("append", "again", "[1, 2, 3]")
        both("delete", "again")
    both("create", "again")
    at = "0000000000000002_000000000000000"
    assert both("append", "again", "[1, 2, 3]") == f"3 records; again is at {at}3\n"
    output = json.loads(both("read", "again", "--offset", f"{at}1", "--json"))
    assert [row["offset"] for row in output["records"]] == [f"{at}1", f"{at}2"]
    assert output["next_offset"] == f"{at}3"
    assert json.loads(both("list", "--prefix", "again", "--json"))["streams"][0]["next_offset"] == (
        f"{at}3"
    )
    assert both("tail", "again", "--lines", "1") == "3\n"
    assert both("fork", "again", "fork-of-again", "--at", f"{at}1").endswith("_0000000000000001\n")


def test_state_of_a_stream_is_folded_the_same_way(both):
    both("create", "state")
    for value, operation in ((1, "insert"), (2, "upsert")):
        change = {"type": "t", "key": "k", "value": value, "headers": {"operation": operation}}
        both("append", "state", json.dumps(change))
    assert json.loads(both("state", "state", "--json"))["state"] == [
        {"type": "t", "key": "k", "value": 2}
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["read", "missing"], 3),
        (["append", "missing", "1"], 3),
        (["delete", "missing"], 3),
        (["fork", "missing", "x"], 3),
        (["append", "here", "{"], 2),
        (["read", "here", "--offset", "odd"], 2),
        (["create", "here", "--type", "text/plain"], 4),
        (["create", "a//b"], 2),
    ],
)
def test_errors_are_equal_for_folder_and_server(both, arguments, code):
    both("create", "here")
    name, *rest = arguments
    output = both(name, *rest, code=code)
    assert output.startswith("error[")


def test_follow_prints_records_until_the_end(places, capfd):
    for place in places[1:]:
        main.run(["stream", "create", place, "live"])
        main.run(["stream", "append", place, "live", "1"])
        later = threading.Timer(
            0.2, main.run, [["stream", "append", place, "live", "2", "--close"]]
        )
        later.start()
        capfd.readouterr()
        assert main.run(["stream", "tail", place, "live", "--follow"]) == 0
        later.join()
        assert [line for line in capfd.readouterr().out.splitlines() if len(line) == 1] == [
            "1",
            "2",
        ]


def test_key_comes_from_the_environment_or_an_option(tmp_path, monkeypatch, capfd):
    root = tmp_path / "store"
    fourfold.open(root).close()
    secret = Access(root).add(("read", "write"))[1]
    served = Served(root)
    try:
        command = ["stream", "create", f"http://127.0.0.1:{served.port}", "x"]
        assert main.run(command) == 6
        assert "error[unauthorized]" in capfd.readouterr().err
        assert main.run([*command, "--key", secret]) == 0
        monkeypatch.setenv("FOURFOLD_KEY", secret)
        assert main.run(command) == 0
    finally:
        served.kill()


def test_client_without_httpx_names_the_extra(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "httpx", None)
    assert main.run(["stream", "list", "http://127.0.0.1:1"]) == 10
    assert "pip install 'fourfold[client]'" in capfd.readouterr().err


def test_gc_counts_in_a_store_and_is_refused_remotely(places, capfd):
    folder, url = places
    assert main.run(["stream", "create", folder, "gone", "--keep-bytes", "0"]) == 0
    assert main.run(["stream", "append", folder, "gone", '{"id": 1}']) == 0
    capfd.readouterr()
    assert main.run(["stream", "gc", folder, "--dry-run"]) == 0
    assert capfd.readouterr().out == "0 expired streams, 1 record (9 B) would be removed\n"
    assert main.run(["stream", "gc", folder, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["records"] == 1
    assert main.run(["stream", "gc", url]) == 6


def test_records_are_appended_and_read_by_routing_key(both):
    both("create", "keyed", "--type", "text/plain")
    both("append", "keyed", "first", "--routing-key", "red")
    both("append", "keyed", "second")
    both("append", "keyed", "--from", "-", "--routing-key", "red", stdin=b"third\nfourth\n")
    assert both("read", "keyed", "--routing-key", "red") == "first\nthird\nfourth\n"
    assert both("read", "keyed", "--routing-key", "red", "--limit", "2") == "first\nthird\n"
    assert both("read", "keyed", "--routing-key", "green") == ""
    output = json.loads(both("read", "keyed", "--routing-key", "red", "--limit", "1", "--json"))
    assert [item["record"] for item in output["records"]] == ["first"]
    assert output["up_to_date"] is False
