"""`fourfold stream append --from`, `read` and `tail`: each line once, on folder and server."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

import fourfold
from fourfold import limits
from fourfold.cli import main
from fourfold.client import RemoteStreams
from fourfold.models.streams import Producer, Streams
from fourfold.models.streams.validation import format_offset


@pytest.fixture
def file(tmp_path):
    """Return a function that writes lines into a file and returns its path."""

    def write(lines):
        path = tmp_path / "lines"
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    return write


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_grown_file_is_appended_from_its_new_lines(both, file, name, kind):
    both("create", name, "--type", kind)
    command = ["append", name, "--producer", "p", "--from"]
    assert both(*command, file(["1", "2", "3"])).startswith("3 records; ")
    grown = file(["1", "", "2", "3", "4"])
    assert both(*command, grown).startswith("1 record (3 lines sent before); ")
    assert both(*command, grown).startswith("0 records (4 lines sent before); ")
    output = json.loads(both(*command, grown, "--json"))
    assert (output["records"], output["sent_before"], output["duplicate"]) == (0, 4, True)
    assert both("read", name) == "1\n2\n3\n4\n"


def test_sent_lines_are_recognized_whatever_the_batches(both, file, name, monkeypatch):
    both("create", name)
    expected = [str(n) for n in range(23)]
    for together, upto in ((2, 5), (1_000, 14), (4, 23)):
        monkeypatch.setattr("fourfold.cli.stream.records.APPEND_LINES", together)
        both("append", name, "--producer", "p", "--from", file(expected[:upto]))
        assert both("read", name).split() == expected[:upto]


def test_interrupted_run_is_repeated_completely(both, file, name, monkeypatch):
    monkeypatch.setattr("fourfold.cli.stream.records.APPEND_LINES", 10)
    both("create", name)
    lines = ["", *(str(n) for n in range(60))]
    lines[37] = "{"
    command = ["append", name, "--producer", "p", "--from"]
    output = both(*command, file(lines), code=2)
    assert "line 38: body is not JSON" in output
    assert "36 records were appended before" in output
    lines[37] = "[36, 36.5]"
    assert both(*command, file(lines)).startswith("25 records (36 lines sent before); ")
    expected = [*range(37), 36.5, *range(37, 60)]
    assert [json.loads(item) for item in both("read", name).split()] == expected


def test_producer_body_has_the_given_number(both, name):
    both("create", name)
    first = ["append", name, '"first"', "--producer", "me", "--seq", "0"]
    assert both(*first).startswith("1 record; ")
    assert both(*first).startswith("0 records (sent before); ")
    assert json.loads(both(*first, "--json"))["duplicate"]
    assert both("append", name, '"second"', "--producer", "me", "--seq", "1").startswith("1 record")
    assert "expected seq 2" in both("append", name, "3", "--producer", "me", "--seq", "3", code=4)
    assert both("append", name, "--from", "-", "--producer", "me", "--seq", "1", stdin=b"0\n3\n")
    assert both("read", name) == '"first"\n"second"\n3\n'


def test_producer_and_number_must_be_given_together(both, name):
    both("create", name)
    assert "--seq" in both("append", name, "1", "--producer", "me", code=2)
    assert "--producer" in both("append", name, "1", "--seq", "0", code=2)
    assert both("read", name) == ""


def test_large_lines_are_batched_to_fit_a_transaction(both, file, name):
    both("create", name, "--type", "application/json")
    lines = [json.dumps(f"{n}{'x' * 17_000}") for n in range(1_000)]
    assert both("append", name, "--from", file(lines)).startswith("1000 records; ")
    assert both("tail", name, "--lines", "1") == lines[-1] + "\n"


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_bad_line_is_named_and_earlier_ones_are_appended(places, file, name, kind, capfd):
    """Every line of text is a record, so the bad line here is one that is too long."""
    bad = "x" * (limits.GROUP_BYTES_MAX + 1) if kind == "text/plain" else "{"
    path = file([*(str(n) for n in range(150)), bad, "150"])
    for place in places:
        main.run(["stream", "create", place, name, "--type", kind])
        capfd.readouterr()
        assert main.run(["stream", "append", place, name, "--from", path, "--json"]) == 2
        error = json.loads(capfd.readouterr().err)["error"]
        assert "line 151: " in error["message"]
        assert "150 records were appended before" in error["message"]
        assert (error["details"]["line"], error["details"]["appended"]) == (151, 150)
        assert f"tail -n +151 {path}" in error["hint"]
        assert "othing was written" not in error["hint"]
        main.run(["stream", "read", place, name])
        assert capfd.readouterr().out.split() == [str(n) for n in range(150)]


@pytest.fixture
def requests(monkeypatch):
    """Record every append from here on, except those of coroutines."""
    seen = []
    for owner in (Streams, RemoteStreams):

        def noted(self, name, request, append=owner.append):
            seen.append(request)
            return append(self, name, request)

        monkeypatch.setattr(owner, "append", noted)
    return seen


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_last_lines_close_the_stream(both, file, name, kind, requests, monkeypatch):
    monkeypatch.setattr("fourfold.cli.stream.records.APPEND_LINES", 2)
    both("create", name, "--type", kind)
    output = both("append", name, "--from", file(["1", "2", "3"]), "--close", "--json")
    assert json.loads(output)["closed"]
    assert [bool(request.records) for request in requests if request.close] == [True, True]
    assert not [request for request in requests if not request.records]
    assert both("read", name) == "1\n2\n3\n"


def test_last_line_of_a_producer_closes_the_stream(both, places, file, name):
    both("create", name)
    command = ["append", name, "--from", file(["1", "2", "3"]), "--close", "--producer", "p"]
    both(*command)
    assert both(*command).startswith("0 records (3 lines sent before); ")
    with fourfold.open(places[0], mode="r") as store:
        assert store.streams.info(name).closed_by == Producer("p", 0, 2)


def test_stream_is_closed_when_no_line_is_left(both, file, name):
    body = ["1", "--producer", "p", "--seq", "0"]
    for rest in (["--from", file(["1"]), "--producer", "p"], body, ["--from", "-"]):
        stream = f"{name}-{len(rest)}"
        both("create", stream)
        for close in ((), ("--close",)):
            output = json.loads(both("append", stream, *rest, *close, "--json"))
            assert output["closed"] is bool(close)


def test_large_records_are_read_to_the_end(both, file, name):
    """A read returns at most 4 MiB."""
    both("create", name, "--type", "text/plain")
    lines = [f"{n}{'x' * 1_100_000}" for n in range(5)]
    both("append", name, "--from", file(lines))
    assert both("read", name).split() == lines
    assert json.loads(both("tail", name, "--lines", "4", "--json"))["records"] == lines[1:]
    output = json.loads(both("read", name, "--limit", "4", "--json"))
    assert [item["record"] for item in output["records"]] == lines[:4]
    assert (output["up_to_date"], int(output["next_offset"][17:])) == (False, 4)
    assert both("tail", name, "--lines", "0") == ""


def test_more_records_than_one_read_returns_are_read(both, file, name):
    both("create", name)
    both("append", name, "--from", file(range(12_500)))
    assert both("read", name, "--limit", "12000").split() == [str(n) for n in range(12_000)]
    displayed = both("tail", name, "--lines", "11000").split()
    assert displayed == [str(n) for n in range(1_500, 12_500)]


def test_empty_document_is_printed_like_any_other(both, name):
    both("create", name)
    end = f"{0:016d}_{0:016d}"
    for command, more in (("tail", {}), ("read", {"up_to_date": True, "closed": False})):
        expected = {"name": name, "records": [], "next_offset": end, **more}
        assert both(command, name, "--json") == json.dumps(expected, indent=2) + "\n"
    both("append", name, '[{"a": "é"}, 2]')
    output = both("read", name, "--json")
    assert output == json.dumps(json.loads(output), indent=2) + "\n"


def test_read_since_a_time(both, name):
    both("create", name, "--type", "text/plain")
    both("append", name, "old")
    time.sleep(0.005)
    since = datetime.now(UTC).isoformat()
    both("append", name, "new")
    assert both("read", name, "--since", since) == "new\n"
    assert both("read", name, "--since", "0", "--limit", "1") == "old\n"
    late = json.loads(both("read", name, "--since", "2100-01-01", "--json"))
    assert (late["records"], late["next_offset"]) == ([], format_offset(2))
    both("read", name, "--since", "soon", code=2)
    both("read", name, "--since", "0", "--offset", "now", code=2)
