"""Claims about what is drawn where: tables and bars on a terminal, plain text elsewhere."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import threading

import pytest
from cli_process import start
from hypothesis import given
from hypothesis import strategies as st

import fourfold
from fourfold.cli.output import Output, aligned, counted, printable, size


def run_in_terminal(home, *arguments, stream="stdout", **environ):
    """Run a command with one stream on a pseudo-terminal; (what it drew there, the other)."""
    ours, theirs = pty.openpty()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: theirs}
    environ = {"TERM": "xterm-256color", "COLUMNS": "140"} | environ
    child = start(*arguments, cwd=home, home=home, environ=environ, **streams)
    os.close(theirs)
    drawn = []

    def drain():
        try:
            while piece := os.read(ours, 4096):
                drawn.append(piece)
        except OSError:
            pass  # Linux reports the end of a terminal as an input/output error.

    reader = threading.Thread(target=drain)
    reader.start()
    pipe = child.stderr if stream == "stdout" else child.stdout
    other = pipe.read()
    pipe.close()
    code = child.wait()
    reader.join()
    os.close(ours)
    shown = b"".join(drawn).decode(), other.decode()
    assert code == 0, shown
    return shown


def test_table_is_drawn_on_terminal_and_plain_text_elsewhere(call, tmp_path):
    drawn, err = run_in_terminal(tmp_path, "version")
    assert err == ""
    assert "─" in drawn or "━" in drawn
    plain = call("version").out
    assert plain.isascii()
    assert "\x1b" not in plain
    assert plain.splitlines()[0].split() == ["PART", "VERSION"]


@pytest.mark.parametrize("variable", ["NO_COLOR", "FOURFOLD_NO_COLOR"])
def test_colour_is_used_on_terminal_unless_it_is_switched_off(tmp_path, variable):
    green = "\x1b[32m"
    assert green in run_in_terminal(tmp_path, "doctor")[0]
    assert green not in run_in_terminal(tmp_path, "doctor", **{variable: "1"})[0]


def test_a_dumb_terminal_gets_plain_text(tmp_path):
    drawn, _ = run_in_terminal(tmp_path, "version", TERM="dumb")
    assert drawn.isascii()
    assert "\x1b" not in drawn


def test_progress_is_drawn_on_stderr_of_a_terminal_only(root, tmp_path, call):
    drawn, out = run_in_terminal(tmp_path, "verify", root, stream="stderr")
    assert "verifying" in drawn
    assert out.startswith(str(root))
    assert call("verify", root).err == ""
    drawn, out = run_in_terminal(tmp_path, "verify", root, "--json", stream="stderr")
    assert drawn == ""
    assert out.startswith("{")


def test_json_stays_json_on_a_terminal(tmp_path):
    drawn, _ = run_in_terminal(tmp_path, "version", "--json")
    assert drawn.startswith("{")
    assert "\x1b" not in drawn


def test_columns_line_up_and_lines_have_no_trailing_spaces():
    assert aligned([["A", "B"], ["longer", ""], ["x", "two\nlines"]]) == [
        "A       B",
        "longer",
        "x       two lines",
    ]


@given(st.text())
def test_no_control_character_reaches_the_terminal(text):
    shown = printable(text)
    assert all(char.isprintable() or char == "\n" for char in shown)
    if all(char.isprintable() for char in text):
        assert shown == text


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), max_size=5))
def test_any_cell_can_be_printed_in_a_pipe(rows):
    stream = io.StringIO()
    Output(stdout=stream, stderr=stream).table(("a", "b"), rows)
    assert stream.getvalue().count("\n") == len(rows) + 1


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (200 * 1024, "200 KiB"),
        (5 * 1024**3, "5.0 GiB"),
        (9999 * 1024**4, "9999 TiB"),
    ],
)
def test_sizes_are_written_for_people(count, text):
    assert size(count) == text


def test_one_thing_is_not_written_as_many():
    assert (counted(1, "file"), counted(0, "file"), counted(2, "file")) == (
        "1 file",
        "0 files",
        "2 files",
    )


@pytest.fixture
def changed(tmp_path):
    with fourfold.open(tmp_path / "shop") as store:
        space = store.space("did:web:shop.example")
        space.transact([{"op": "set", "id": "note", "value": {"a": 1}}])
        space.transact([{"op": "set", "id": "new", "value": {"b": 1}}])
        space.transact([{"op": "delete", "id": "note"}])
    return tmp_path


DIFF = ("space", "diff", "shop", "did:web:shop.example", "--at", "1")
LOG = ("space", "log", "shop", "did:web:shop.example")
GREEN, RED, YELLOW = "\x1b[32m", "\x1b[31m", "\x1b[33m"


def test_differences_and_logs_are_coloured_on_a_terminal(changed):
    drawn = run_in_terminal(changed, *DIFF)[0]
    assert f"{GREEN}+ new" in drawn
    assert f"{RED}- note" in drawn
    assert YELLOW in run_in_terminal(changed, *LOG)[0]
    for arguments in (DIFF, LOG):
        plain = run_in_terminal(changed, *arguments, NO_COLOR="1")[0]
        assert not {GREEN, RED, YELLOW} & {plain[at : at + 5] for at in range(len(plain))}


def test_differences_and_logs_are_plain_in_a_pipe(changed, call):
    for name, *rest in (DIFF, LOG):
        done = call(name, rest[0], changed / "shop", *rest[2:])
        assert done.code == 0
        assert "\x1b" not in done.out


def test_transcript_is_wrapped_to_terminal_and_not_in_pipe(tmp_path, call):
    content = "word " * 60
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "s"})
        message = {"role": "user", "content": content}
        store.sessions.append_event("s", {"type": "message/appended", "message": message})
    drawn = run_in_terminal(tmp_path, "session", "show", "store", "s", COLUMNS="60")[0]
    wrapped = [line for line in drawn.replace("\r", "").splitlines() if "word word" in line]
    assert len(wrapped) > 4
    assert max(map(len, wrapped)) <= 60
    assert content.strip() in call("session", "show", tmp_path / "store", "s").out
