"""The package works in a ZIP file, as Spark sends it to executors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import fourfold

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import fourfold
from fourfold.models.model import all_models
assert fourfold.__file__.startswith(sys.argv[1]), fourfold.__file__
with fourfold.open(sys.argv[2]) as store:
    space = store.space("did:web:a.example")
    space.set("a", {"n": 1})
    store.streams.create("s", "application/json").append({"n": 2})
    store.sessions.create_session({"id": "t"})
    store.graphs.create("notes")
    print(store.sql("select document from documents_state").rows)
assert len(all_models()) == 4
"""


def test_stores_of_all_models_are_written_by_a_zipped_package(tmp_path):
    package = Path(fourfold.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__", "static", "*.png")
    shutil.copytree(package, tmp_path / "package" / "fourfold", ignore=ignored)
    archive = shutil.make_archive(str(tmp_path / "fourfold"), "zip", tmp_path / "package")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, archive, tmp_path / "store"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == """[('{"n":1}',)]"""
