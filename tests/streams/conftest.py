"""A stream with touch enabled, in a file that can be reopened."""

from __future__ import annotations

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
