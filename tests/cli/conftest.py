"""What the tests of the command line share: a way to call it, and a store to call it on."""

from __future__ import annotations

import subprocess

import pytest
from cli_process import finish, start

import fourfold


@pytest.fixture
def call(tmp_path):
    """Run `python -m fourfold ...` to its end, in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()

    def run(*arguments, **environ):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return finish(start(*arguments, cwd=folder, home=tmp_path, environ=environ, **pipes))

    run.folder = folder
    return run


@pytest.fixture
def root(tmp_path):
    """A closed store with one small database."""
    with fourfold.open(tmp_path / "store") as store:
        store.database("notes")
    return tmp_path / "store"
