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


def test_server_sweeps_periodically(places, capfd):
    assert main.run(["stream", "sweep", places[1]]) == 6


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
