"""The random lives of `archive_machine`, over each kind of object store."""

from __future__ import annotations

import itertools

import pytest
from archive_machine import ArchiveMachine
from hypothesis import settings

from fourfold.objects import FolderStore
from support.properties import examples
from support.s3_server import serve_s3


@pytest.fixture(autouse=True)
def _small_levels(monkeypatch):
    """The levels of the index are so small that records are sealed and let go from both."""
    monkeypatch.setattr("fourfold.models.streams.append.STREAM_SCATTERED_PLACES", 2)
    monkeypatch.setattr("fourfold.models.streams.append.STREAM_RECENT_PLACES", 7)
    monkeypatch.setattr("fourfold.models.streams.append.STREAM_PLACES_MOVED", 3)


class InMemory(ArchiveMachine):
    """Objects in memory: writes tear."""


class InAFolder(ArchiveMachine):
    """Objects in a folder of this disk."""

    def open_objects(self):
        return FolderStore(self.folder / "objects")


class OnS3(ArchiveMachine):
    """Objects of a server that speaks the protocol of S3."""

    server = None
    numbers = itertools.count()

    def open_objects(self):
        return self.server.store(f"life-{next(self.numbers)}")


InMemory.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=20, deadline=None
)
TestInMemory = InMemory.TestCase
InAFolder.TestCase.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)
TestInAFolder = InAFolder.TestCase


@pytest.fixture(scope="module")
def _server():
    with serve_s3() as OnS3.server:
        yield


OnS3.TestCase.settings = settings(max_examples=4, stateful_step_count=10, deadline=None)
TestOnS3 = pytest.mark.usefixtures("_server")(OnS3.TestCase)


class LongLives(ArchiveMachine):
    """The same, for longer and more often."""


LongLives.TestCase.settings = settings(max_examples=400, stateful_step_count=60, deadline=None)
TestLongLives = pytest.mark.slow(pytest.mark.timeout(3600)(LongLives.TestCase))
