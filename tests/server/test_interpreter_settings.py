"""The event loop of a server waits neither for other threads nor for the garbage collector."""

from __future__ import annotations

import gc
import sys
import threading
from types import SimpleNamespace

from fourfold.server import run


class Recorder:
    """A server that records the settings of the interpreter while it runs."""

    started = True
    config = SimpleNamespace(host="127.0.0.1", port=0)

    def run(self, sockets):
        self.switch_s = sys.getswitchinterval()
        self.thresholds = gc.get_threshold()
        self.frozen = gc.get_freeze_count()


def test_settings_hold_while_the_server_runs_and_are_restored():
    before = (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count())
    server = Recorder()
    run._run(server)
    assert server.switch_s == run.THREAD_SWITCH_S < before[0]
    assert server.thresholds == (*before[1][:2], run.GC_NEVER)
    assert server.frozen > before[2]
    assert (sys.getswitchinterval(), gc.get_threshold()) == before[:2]
    assert gc.get_freeze_count() == 0


def test_full_collections_still_run_in_the_background():
    """Cycles that grew old are freed, too."""
    collected = threading.Event()

    def note(phase, info):
        if phase == "stop" and info["generation"] == 2:
            collected.set()

    with run.rare_full_gc(every_s=0.01):
        gc.callbacks.append(note)
        try:
            assert collected.wait(30)
        finally:
            gc.callbacks.remove(note)
