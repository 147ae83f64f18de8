"""`fourfold sql` in SQLite: formats, the shell, and which engine runs a query."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import fourfold
from fourfold.cli import sql_shell
from fourfold.cli.main import run as run_command

A = "did:web:a.example"


@pytest.fixture
def root(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        space = store.space(A)
        space.set("n1", {"n": 1})
        space.set("n2", {"n": 2})
    return str(tmp_path / "store")


def run(capsys, *arguments):
    code = run_command(["sql", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_query_prints_a_table_or_json(root, capsys):
    query = "select id, document ->> 'n' as n from state order by id"
    assert run(capsys, root, query)[:2] == (0, "ID  N\nn1  1\nn2  2\n")
    document = json.loads(run(capsys, root, query, "--json")[1])
    assert document == {
        "columns": ["id", "n"],
        "rows": [["n1", 1], ["n2", 2]],
        "more": False,
        "warnings": [],
        "cut": {f"spaces/{A}": 2},
        "skipped": [],
    }
    assert run(capsys, root, query, "--csv")[1] == "id,n\nn1,1\nn2,2\n"
    assert run(capsys, root, query, "--ndjson", "--at", "1")[1] == '{"id": "n1", "n": 1}\n'


def test_at_is_a_seq_a_time_or_a_restore_point(root, capsys):
    with fourfold.open(root) as store:
        store.publish()
        [point] = store.points()
        store.space(A).set("n3", {"n": 3})
    query = "select count(*) as n from documents_state"
    assert run(capsys, root, query)[1] == "N\n3\n"
    assert run(capsys, root, query, "--at", point.id)[1] == "N\n2\n"
    assert run(capsys, root, query, "--at", "1")[1] == "N\n1\n"
    assert run(capsys, root, query, "--at", "2020-01-01")[1] == "N\n0\n"
    code, _, err = run(capsys, root, query, "--at", "nope")
    assert code != 0
    assert "unknown restore point 'nope'" in err


def test_records_that_are_only_in_segments_are_a_warning(root, capsys, tmp_path):
    with fourfold.open(root) as store:
        store.streams.create("logs", "application/json").append({"n": 1})
        store.archive.publish_all()
    query = "select count(*) as n from streams_records"
    _, out, _ = run(capsys, root, query)
    assert out.startswith("N\n0\nwarning: streams_records: published records of 'logs' are only")
    document = json.loads(run(capsys, root, query, "--json")[1])
    assert document["more"]
    assert len(document["warnings"]) == 1
    _, out, err = run(capsys, root, query, "--csv")
    assert out == "n\n0\n"
    assert err.startswith("warning: streams_records")
    pytest.importorskip("pyarrow.parquet")
    out = run(capsys, root, query, "--parquet", str(tmp_path / "rows.parquet"))[1]
    assert "warning: streams_records" in out


def test_the_root_can_be_an_option_or_a_variable(root, capsys, monkeypatch):
    query = "select count(*) as n from documents_commits"
    assert run(capsys, "--root", root, query)[1] == "N\n2\n"
    monkeypatch.setenv("FOURFOLD_ROOT", root)
    assert run(capsys, query)[1] == "N\n2\n"


def test_rows_are_limited(root, capsys):
    code, out, _ = run(capsys, root, "select id from state order by id", "--limit", "1")
    assert (code, out.splitlines()[:2]) == (0, ["ID", "n1"])
    assert "only the first 1 row" in out


def test_parquet_has_the_types_of_the_registry(root, capsys, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    assert run(capsys, root, "select id, seq, time from revisions", "--parquet", str(path))[0] == 0
    table = parquet.read_table(path)
    assert table.num_rows == 2
    types = [str(field.type) for field in table.schema]
    assert types == ["string", "int64", "timestamp[us, tz=UTC]"]


def test_tables_lists_the_registry(capsys):
    document = json.loads(run(capsys, "--tables", "--json")[1])
    by_name = {table["table"]: table for table in document["tables"]}
    assert by_name["documents_state"]["key"] == ["space", "branch", "id"]
    assert all(table["key"] and table["description"] for table in by_name.values())
    assert "sessions_messages" in run(capsys, "--tables")[1]


def test_the_shell_reads_queries_from_a_pipe(root, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("select 1 as a;\n.tables\nselect id\nfrom state;"))
    code, out, _ = run(capsys, root)
    assert code == 0
    assert out.startswith("A\n1\n")
    assert "documents_state\n" in out
    assert out.endswith("ID\nn1\nn2\n")


@pytest.mark.parametrize(
    ("script", "rows"),
    [
        ("select 1 as a; -- one\nselect 2 as a;", [1, 2]),
        ("-- first;\n/* two\nlines; */\nselect 3 as a;\n-- the end\n", [3]),
        ("select 'x;\n-- y' as a;", ["x;\n-- y"]),
        ("select 4 as a -- no end;\n", [4]),
        ("\n;\n", []),
    ],
)
def test_comments_and_strings_end_no_query_of_the_shell(root, capsys, monkeypatch, script, rows):
    monkeypatch.setattr("sys.stdin", io.StringIO(script))
    code, out, _ = run(capsys, root, "--ndjson")
    assert code == 0
    assert [json.loads(line)["a"] for line in out.splitlines()] == rows


def test_unknown_command_of_the_shell_is_refused(root, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(".nothing\n"))
    code, _, error = run(capsys, root)
    assert code == 2
    assert "unknown command '.nothing'" in error


def test_the_shell_completes_tables_columns_and_keywords():
    assert sql_shell.complete("documents_st") == ["documents_state"]
    assert "document" in sql_shell.complete("docu")
    assert sql_shell.complete("sel") == ["select"]


class Terminal:
    """A shell of `fourfold sql` in a terminal."""

    def __init__(self, root, state):
        self.screen = b""
        self.terminal, inner = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fourfold", "sql", root],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(state)},
        )
        os.close(inner)

    def wait_for(self, text):
        """Read until a text was printed."""
        deadline = time.monotonic() + 60
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            self.screen += os.read(self.terminal, 4096)
        self.screen = self.screen.partition(text)[2]

    def type(self, text):
        """Type a text at the prompt."""
        self.wait_for(b"sql> ")
        os.write(self.terminal, text)

    def close(self):
        """Wait for the end; return the exit code."""
        with suppress(OSError):
            while os.read(self.terminal, 4096):
                pass
        os.close(self.terminal)
        return self.process.wait(60)


def test_the_shell_in_a_terminal_completes_and_remembers(root, tmp_path):
    pytest.importorskip("readline")
    shell = Terminal(root, tmp_path / "state")
    shell.type(b"select count(*) as n from documents_comm\t;\n")
    shell.wait_for(b"from documents_commits")
    shell.type(b"select * from nope;\n")
    shell.wait_for(b"unknown table 'nope'")
    shell.type(b".exit\n")
    assert shell.close() == 0
    history = tmp_path / "state" / "fourfold" / "sql_history"
    assert history.read_text().splitlines()[-3:] == [
        "select count(*) as n from documents_commits;",
        "select * from nope;",
        ".exit",
    ]
    shell = Terminal(root, tmp_path / "state")
    # The line before the last one of the earlier shell.
    shell.type(b"\x10\x10\n")
    shell.wait_for(b"unknown table 'nope'")
    shell.type(b"\x04")
    assert shell.close() == 0


def test_errors_name_the_problem(root, capsys):
    code, _, err = run(capsys, root, "select * from nope")
    assert code != 0
    assert "unknown table 'nope'" in err
    code, _, err = run(capsys, root, "attach 'x' as y")
    assert code != 0
    assert "ATTACH x is not allowed" in err
    code, _, err = run(capsys, root, "select 1", "--engine", "sqlite", "--master", "local[1]")
    assert code != 0
    assert "require Spark" in err
