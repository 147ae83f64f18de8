"""The import law of pyproject.toml holds: data flows one way, each client has one owner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import repository_files as tree


def test_the_import_law_holds():
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--no-cache"],
        cwd=tree.ROOT,
        env=tree.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
