"""The sweeper continues after failures, and `/health` reports them."""

from __future__ import annotations

import json
import time

import pytest
from both_fronts import Front

from fourfold.errors import StorageError
from fourfold.server.run import Sweeper


@pytest.fixture
def front(tmp_path):
    made = Front(tmp_path / "store", fast=True)
    yield made
    made.stop()


def health(front):
    status, _, body = front.ask(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")[0]
    return status, json.loads(body)


def until(found):
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


@pytest.mark.parametrize("error", [StorageError("the disk is gone"), RuntimeError("a fault")])
def test_failed_sweep_is_reported_and_retried(front, monkeypatch, error):
    failing, sweeps = True, []

    def sweep():
        sweeps.append(1)
        if failing:
            raise error

    monkeypatch.setattr(front.streams, "sweep", sweep)
    with Sweeper(front.streams, every_s=0.005):
        until(lambda: len(sweeps) > 2)
        status, response = health(front)
        assert (status, response["ok"]) == (503, False)
        assert str(error) in response["error"]["message"]
        failing = False
        until(lambda: front.streams.sweep_failure is None)
        assert health(front)[0] == 200
