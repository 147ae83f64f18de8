"""The command line as users meet it: a process with its own streams and environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import fourfold

SOURCE = Path(fourfold.__file__).parents[1]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self):
        return json.loads(self.out)

    @property
    def error(self):
        (line,) = self.err.splitlines()
        return json.loads(line)["error"]


def environment(home, **changes):
    """A plain environment: nothing of the person who runs the tests changes the outcome."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    base = {"PYTHONPATH": str(SOURCE), "HOME": str(home), "XDG_CACHE_HOME": str(home)}
    return kept | base | changes


def start(*arguments, cwd, home, environ, **streams):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "fourfold", *map(str, arguments)],
        cwd=cwd,
        env=environment(home, **environ),
        stdin=subprocess.DEVNULL,
        **streams,
    )


def finish(child):
    out, err = child.communicate()
    return Done(child.returncode, (out or b"").decode(), (err or b"").decode())
