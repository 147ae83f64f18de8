"""The spaces that a server has open: a bounded number, and none that is in use is closed."""

from __future__ import annotations

import asyncio

import pytest

import fourfold
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.documents.model import MODEL
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.workers import Workers
from fourfold.store.database_files import locate

DIDS = [f"did:key:{letter}" for letter in "abcdef"]


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        for did in DIDS:
            store.space(did).set("a", {"did": did})
            store.release(did)
        yield store


def opened(store):
    return [path for path in store.health() if path.startswith("spaces/")]


def test_idle_spaces_are_closed_when_there_are_too_many(store):
    async def main():
        spaces = OpenSpaces(store, Workers(), limit=2)
        async with spaces.use(DIDS[0]) as used:
            for did in DIDS[1:]:
                async with spaces.use(did) as space:
                    assert space["a"] == {"did": did}
                assert len(opened(store)) <= 2
            assert used["a"] == {"did": DIDS[0]}
            # All are in use: one more is opened rather than refused.
            async with spaces.use(DIDS[1]), spaces.use(DIDS[2]) as space:
                assert space["a"] == {"did": DIDS[2]}

    asyncio.run(main())


def test_concurrent_requests_open_a_space_once(store):
    async def main():
        spaces = OpenSpaces(store, Workers(), limit=2)

        async def read(did):
            async with spaces.use(did) as space:
                await asyncio.sleep(0)
                return space["a"]["did"]

        wanted = DIDS * 20
        assert await asyncio.gather(*map(read, wanted)) == wanted

    asyncio.run(main())


def test_unknown_space_is_not_opened(store):
    async def main():
        spaces = OpenSpaces(store, Workers())
        for did, error in (("did:key:unknown", NotFound), ("../x", InvalidInput)):
            with pytest.raises(error):
                async with spaces.use(did):
                    pass
        assert opened(store) == []

    asyncio.run(main())


def test_released_space_stays_open_while_it_is_lent(store):
    """The publisher of a server borrows databases that requests have open, and the reverse."""
    space = store.space(DIDS[0])
    file = locate(store, MODEL, f"spaces/{DIDS[0]}")
    with store.lent(file) as database:
        store.release(DIDS[0])
        with database.read() as snapshot:
            assert snapshot.value("SELECT 1") == 1
    assert database.is_closed()
    with store.lent(file) as database:
        space = store.space(DIDS[0])
        assert space.database is database
    assert space["a"] == {"did": DIDS[0]}
