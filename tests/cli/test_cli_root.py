"""ROOT comes from the argument, `--root` or FOURFOLD_ROOT, by one rule in every command."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from command_tree import COMMANDS

import fourfold
from fourfold.cli.options import RootArgument, StoreCommand

WITHOUT_ROOT = {"version", "pipeline list", "app sync key"}
"""Commands that are not about a store."""
NEW_FOLDER = {"demo"}
"""Commands that create ROOT and never take FOURFOLD_ROOT for it."""


ROOTED = [name for name in COMMANDS if name not in WITHOUT_ROOT]


def word(param):
    kind = param.type
    if isinstance(kind, click.Choice):
        return str(next(iter(kind.choices)))
    return "1" if isinstance(kind, click.types.IntParamType) or "SEQ" in kind.name else "word"


def call(command, root=None, *, optional):
    """The words of a valid call, with ROOT in its place if it is an argument."""
    words = []
    for param in command.params:
        if isinstance(param, RootArgument):
            words += [] if root is None else [root]
        elif isinstance(param, click.Argument):
            words += [word(param)] if param.required or optional else []
        elif param.required:
            words += [param.opts[0], word(param)]
    return words


def parse(name, arguments):
    with COMMANDS[name].make_context(name, list(arguments)) as context:
        return {key: value for key, value in context.params.items() if value is not None}


def test_every_command_on_a_store_takes_root_by_the_rule():
    for name in ROOTED:
        assert isinstance(COMMANDS[name], StoreCommand), name
        assert any(isinstance(param, RootArgument) for param in COMMANDS[name].params), name
    for name in WITHOUT_ROOT:
        assert not any(isinstance(param, RootArgument) for param in COMMANDS[name].params), name


@pytest.mark.parametrize("optional", [False, True], ids=["required", "optional"])
@pytest.mark.parametrize("name", ROOTED)
def test_argument_option_and_variable_give_the_same_call(name, optional, tmp_path, monkeypatch):
    monkeypatch.delenv("FOURFOLD_ROOT", raising=False)
    command = COMMANDS[name]
    root, other = str(tmp_path / "store"), str(tmp_path / "other")
    fourfold.open(root).close()
    without = call(command, optional=optional)
    expected = parse(name, call(command, root, optional=optional))
    assert str(expected["root"]) == root
    assert parse(name, [*without, "--root", root]) == expected
    assert parse(name, ["--root", root, *without]) == expected
    monkeypatch.setenv("FOURFOLD_ROOT", other)
    assert parse(name, call(command, root, optional=optional)) == expected
    assert parse(name, [*without, "--root", root]) == expected
    if name not in NEW_FOLDER:
        monkeypatch.setenv("FOURFOLD_ROOT", root)
        assert parse(name, without) == expected


@pytest.mark.parametrize("name", ROOTED)
def test_missing_root_is_named_with_the_ways_to_pass_it(name, monkeypatch):
    monkeypatch.delenv("FOURFOLD_ROOT", raising=False)
    command = COMMANDS[name]
    root = next(param for param in command.params if isinstance(param, RootArgument))
    if not root.required:
        assert "root" not in parse(name, call(command, optional=False))
        return
    with pytest.raises(click.UsageError) as refused:
        parse(name, call(command, optional=False))
    for part in ("ROOT", "--root", "FOURFOLD_ROOT"):
        assert part in refused.value.format_message()


def test_root_twice_is_refused(call, root):
    done = call("verify", root, "--root", root)
    assert done.code == 2
    assert "unexpected extra argument" in done.err


def test_optional_argument_is_not_root_when_variable_is_set(call, root):
    assert call("stream", "create", "orders", FOURFOLD_ROOT=str(root)).code == 0
    done = call("stream", "append", "orders", '{"id": 1}', FOURFOLD_ROOT=str(root))
    assert (done.code, done.err) == (0, "")
    assert call("stream", "read", "orders", "--root", root).out == '{"id": 1}\n'
    elsewhere = call("stream", "append", root, "orders", '{"id": 2}', FOURFOLD_ROOT="elsewhere")
    assert elsewhere.code == 0
    assert call("stream", "read", "orders", FOURFOLD_ROOT=str(root)).out.count("\n") == 2


def test_backup_and_restore_take_the_variable(call, root):
    assert call("backup", "copy", FOURFOLD_ROOT=str(root)).code == 0
    assert call("restore", "copy", FOURFOLD_ROOT="again").code == 0
    assert call("verify", "--root", "again").code == 0


def test_demo_creates_a_folder_and_ignores_the_variable():
    root = next(p for p in COMMANDS["demo"].params if isinstance(p, RootArgument))
    assert root.envvar is None
    assert parse("demo", ["--root", "new"])["root"] == Path("new")


def test_relative_root_that_starts_with_dash_is_option_value(call, root, tmp_path):
    assert call("space", "create", "did:web:a.example", "--root=-odd").code == 0
    assert call("space", "list", "--json", FOURFOLD_ROOT="-odd").document["spaces"]
