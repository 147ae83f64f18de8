"""A stream with touch enabled, in a file that can be reopened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import opened_streams
import pytest
from opened_streams import JSON, Opened
from touched_streams import TOUCHED

from fourfold.models.streams.touch import Touches


@pytest.fixture
def opened(tmp_path, monkeypatch):
    quick = opened_streams.PROFILE.with_(synchronous="OFF")
    monkeypatch.setattr(opened_streams, "PROFILE", quick)
    found = Opened(tmp_path / "s.sqlite")
    found.streams.create("s", JSON)
    found.streams.profiles.put("s", TOUCHED)
    yield found
    found.database.close()


@pytest.fixture
def streams(opened):
    return opened.streams


@pytest.fixture
def touches(streams):
    return Touches(streams)


@pytest.fixture
def stream(streams):
    return streams.open("s")


@pytest.fixture
def in_thread():
    """Return a function that calls another one in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(function).result(30)
