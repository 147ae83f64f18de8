"""What the tests of the command line share: a way to call it, and a store to call it on."""

from __future__ import annotations

import io
import os
import subprocess
from types import SimpleNamespace

import pytest
from cli_process import Done, finish, start
from space_calls import DID

import fourfold
from fourfold.cli import main


@pytest.fixture
def process(tmp_path):
    """Run `python -m fourfold ...` to its end, in an empty folder; keywords are variables."""
    folder = tmp_path / "here"
    folder.mkdir(exist_ok=True)

    def run(*arguments, **environ):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return finish(start(*arguments, cwd=folder, home=tmp_path, environ=environ, **pipes))

    return run


@pytest.fixture
def root(tmp_path):
    """A closed store with one small database."""
    with fourfold.open(tmp_path / "store") as store:
        store.database("notes")
    return tmp_path / "store"


@pytest.fixture
def run(tmp_path, monkeypatch, capfdbinary):
    """Run `fourfold space ...` in this process, in an empty folder; `stdin` is what it may read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOURFOLD_ROOT", raising=False)

    def call(*arguments, stdin=b""):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        code = main.run(["space", *map(str, arguments)])
        printed = capfdbinary.readouterr()
        return Done(code, printed.out.decode(), printed.err.decode())

    return call


@pytest.fixture
def call(tmp_path, monkeypatch, capfdbinary):
    """Run `fourfold ...` in this process, in an empty folder; keywords are variables."""
    folder = tmp_path / "here"
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("FOURFOLD_")]:
        monkeypatch.delenv(name)

    def run(*arguments, **environ):
        capfdbinary.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            try:
                code = main.run([*map(str, arguments)])
            except SystemExit as leave:  # Completion leaves the process.
                code = leave.code or 0
        printed = capfdbinary.readouterr()
        return Done(code, printed.out.decode(), printed.err.decode())

    run.folder = folder
    return run


@pytest.fixture
def on(run):
    """Run a command on the space of a store that has one; it must succeed."""
    assert run("create", "shop", DID).code == 0

    def call(name, *arguments, **given):
        done = run(*name.split(), "shop", DID, *arguments, **given)
        assert (done.code, done.err) == (0, ""), done
        return done

    return call


@pytest.fixture
def refused(run, on):
    """Run a command that must be refused; the error, which the two forms of output agree on."""

    def call(name, *arguments, **given):
        plain = run(*name.split(), "shop", DID, *arguments, **given)
        as_json = run(*name.split(), "shop", DID, *arguments, "--json", **given)
        error = as_json.error
        assert as_json.out == ""
        assert plain.code == as_json.code != 0
        assert plain.err.startswith(f"error[{error['kind']}]: ")
        return error

    return call
