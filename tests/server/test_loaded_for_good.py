"""While a server runs, loaded objects are excluded from garbage collection; later ones are not.

It runs in its own process, since the exclusion covers everything.
"""

from __future__ import annotations

import subprocess
import sys

CHILD = """
import gc, pathlib, sys, weakref
import uvicorn
import fourfold
from fourfold.server.auth import Access
from fourfold.server.run import serve

class Knot:
    def __init__(self):
        self.own = self

def knot():
    return weakref.ref(Knot())

gc.disable()
earlier = knot()

def run(server, sockets):
    server.started = True
    assert earlier() is None, "garbage of before was kept"
    assert gc.get_freeze_count() > 10_000, gc.get_freeze_count()
    assert len(gc.get_objects()) < gc.get_freeze_count() // 4
    later = knot()
    gc.collect()
    assert later() is None, "garbage of now is kept"

uvicorn.Server.run = run
root = pathlib.Path(sys.argv[1])
with fourfold.open(root) as store:
    serve(store.streams, Access(root), host="127.0.0.1", port=1)
assert gc.get_freeze_count() == 0
print("as it should be")
"""


def test_loaded_objects_are_collected_once_before_the_server_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "as it should be\n"), done.stderr
