"""Functions that the process of `test_build_process.py` runs."""

from __future__ import annotations

import os
import signal


def process_id(_segments):
    """Return the process that builds."""
    return os.getpid()


def read_all(segments, request):
    """Return the payloads of a segment."""
    return [payload for _, payload, _, _ in segments.records(request, 0, 1 << 40)]


def fail(_segments, error):
    raise error


def kill(_segments):
    os.kill(os.getpid(), signal.SIGKILL)


def wait_forever(_segments):
    signal.pause()
