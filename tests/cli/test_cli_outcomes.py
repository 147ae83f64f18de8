"""Claims about every command: exit codes, what goes to which stream, and JSON on request."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_process import Done, environment, finish, start
from click.testing import CliRunner

import fourfold
from fourfold.cli import main
from fourfold.cli.main import SECTIONS, app
from fourfold.errors import FourfoldError, InvalidInput, tree
from fourfold.kernel import pauses

COMMANDS = [name for _, names in SECTIONS for name in names]


def test_success_prints_to_stdout_only_and_exits_with_zero(process):
    done = process("version")
    assert (done.code, done.err) == (0, "")
    assert "fourfold" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["verify", "nowhere"], 3, "not_found"),
        (["config", "nowhere"], 3, "not_found"),
        (["config", "--set", "kernel.readers_max=0"], 2, "invalid_config"),
        (["config", "--set", "kernel.readers_max"], 2, "invalid_config"),
        (["backup", "nowhere", "dest"], 3, "not_found"),
        (["restore", "nowhere", "root"], 3, "not_found"),
    ],
)
def test_error_on_stderr_has_kind_hint_and_exit_code(call, arguments, code, kind):
    plain = call(*arguments)
    assert (plain.code, plain.out) == (code, "")
    first, second = plain.err.splitlines()
    assert first.startswith(f"error[{kind}]: ")
    assert second.startswith("hint: ")

    as_json = call(*arguments, "--json")
    assert (as_json.code, as_json.out) == (code, "")
    assert as_json.error["kind"] == kind
    assert set(as_json.error) == {"kind", "message", "hint", "retryable"}


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["version", "--nonsense"], ["backup"], ["version", "extra"]]
)
def test_wrong_call_is_bad_input_and_says_where_help_is(call, arguments):
    plain = call(*arguments)
    assert (plain.code, plain.out) == (InvalidInput.exit_code, "")
    assert plain.err.startswith("error[invalid_input]: ")
    assert "--help`" in plain.err
    assert call(*arguments, "--json").error["kind"] == "invalid_input"


def test_a_misspelt_command_or_option_is_named(call):
    assert "nonsense" in call("nonsense").err
    assert "--nonsense" in call("version", "--nonsense").err


def test_without_a_command_the_help_is_shown(call):
    done = call()
    assert done.code == 0
    assert done.out == call("--help").out


def test_help_lists_every_command_in_its_group_with_examples(call):
    done = call("--help")
    assert done.code == 0
    for title, names in SECTIONS:
        assert f"{title}:" in done.out
        for name in names:
            assert f"\n  {name} " in done.out
    assert "Examples:" in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_takes_json(name):
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0
    assert "--json" in done.output
    assert "--traceback" in done.output


def test_the_short_version_is_one_line(call):
    done = call("--version")
    assert done.code == 0
    assert done.out.startswith("fourfold ")
    assert done.out.count("\n") == 1


def boom(error):
    def invoke(_arguments):
        raise error

    return invoke


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.kind)
def test_the_exit_code_is_that_of_the_error_class(monkeypatch, capsys, cls):
    monkeypatch.setattr(main, "_invoke", boom(cls("the message", hint="the hint")))
    assert main.run([]) == cls.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error[{cls.kind}]: the message\nhint: the hint\n"


def test_a_time_to_wait_is_passed_on(monkeypatch, capsys):
    error = FourfoldError("busy", hint="wait", retry_after=0.5)
    monkeypatch.setattr(main, "_invoke", boom(error))
    main.run([])
    assert "retry after: 0.5 s" in capsys.readouterr().err
    main.run(["--json"])
    assert json.loads(capsys.readouterr().err)["error"]["retry_after"] == 0.5


def test_bug_exits_70_with_a_traceback_only_on_request(monkeypatch, capsys):
    monkeypatch.setattr(main, "_invoke", boom(ZeroDivisionError("oops")))
    assert main.run([]) == 70
    err = capsys.readouterr().err
    assert err.startswith("error[internal]: unexpected ZeroDivisionError: oops\nhint: ")
    assert "Traceback" not in err
    assert main.run(["--traceback"]) == 70
    assert capsys.readouterr().err.startswith("Traceback")
    assert main.run(["--traceback", "--json"]) == 70
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["kind"] == "internal"
    assert error["traceback"].startswith("Traceback")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device", "a/b"), "disk_full"),
        (PermissionError(13, "Permission denied", "a/b"), "read_only"),
        (OSError(5, "Input/output error", "a/b"), "storage"),
    ],
)
def test_error_of_machine_names_file_and_gets_kind(monkeypatch, capsys, error, kind):
    monkeypatch.setattr(main, "_invoke", boom(error))
    main.run([])
    assert capsys.readouterr().err.startswith(f"error[{kind}]: a/b: {error.strerror}")


def test_options_after_two_dashes_are_no_options(monkeypatch, capsys):
    monkeypatch.setattr(main, "_invoke", boom(InvalidInput("x")))
    main.run(["config", "--", "--json"])
    assert capsys.readouterr().err.startswith("error[")


def test_only_the_program_lowers_its_priority(monkeypatch, tmp_path):
    """A process that calls `run` could not raise the priority of its thread again."""
    lowered = []
    monkeypatch.setattr(pauses, "lower_thread_priority", lambda: lowered.append("lowered"))
    fourfold.open(tmp_path / "s").close()
    assert main.run(["verify", str(tmp_path / "s")]) == 0
    with pytest.raises(SystemExit):
        main.main(["version"])
    assert lowered == []
    for arguments in (["verify"], ["backup", str(tmp_path / "copy")]):
        with pytest.raises(SystemExit):
            main.main([arguments[0], str(tmp_path / "s"), *arguments[1:]])
    assert lowered == ["lowered", "lowered"]


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    child = start(
        "config", cwd=tmp_path, home=tmp_path, environ={}, stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert finish(child) == Done(main.EXIT_BROKEN_PIPE, "", "")


def test_full_disk_under_stdout_is_error_not_success(tmp_path):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    with full.open("wb") as stdout:
        child = start(
            "version",
            cwd=tmp_path,
            home=tmp_path,
            environ={},
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        done = finish(child)
    assert done.code == 9
    assert done.err.startswith("error[disk_full]: ")
    assert "Exception ignored" not in done.err


def test_ctrl_c_exits_130_and_reports_nothing_half_written(tmp_path):
    code = (
        "import os, signal, sys, fourfold.cli.main as entry\n"
        # A shell that starts something in the background has it ignore this signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(arguments):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    signal.pause()\n"
        "entry._invoke = wait\n"
        "entry.main(sys.argv[1:])\n"
    )
    for extra, expected, hint in (
        ([], "error[interrupted]: ", True),
        (["--json"], '{"error": {"kind": "inter', True),
        (["--follow"], "error[interrupted]: ", False),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *extra],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == main.EXIT_INTERRUPTED == 128 + signal.SIGINT
        assert done.stderr.startswith(expected)
        assert ("half written" in done.stderr) is hint
        assert "Traceback" not in done.stderr


def test_terminal_that_lacks_letter_does_not_stop_command(process, tmp_path):
    folder = tmp_path / "müll"
    folder.mkdir()
    done = process("config", folder, PYTHONIOENCODING="ascii", FOURFOLD_KERNEL_READERS_MAX="3")
    assert done.code == 0
    done = process("config", folder, "--init", PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "m\\xfcll" in done.out


def test_shell_completion_knows_the_commands(call):
    done = call(_FOURFOLD_COMPLETE="bash_complete", COMP_WORDS="fourfold ver", COMP_CWORD="1")
    assert done.code == 0
    assert set(done.out.split()) == {"plain,verify", "plain,version"}


@pytest.mark.parametrize("group", ["stream", "space", "session", "app"])
def test_ls_is_list(call, root, group):
    listed, asked = call(group, "list", str(root)), call(group, "ls", str(root))
    assert (asked.code, asked.out, asked.err) == (listed.code, listed.out, listed.err)
    assert call(group, "lst", str(root)).code == InvalidInput.exit_code != asked.code
