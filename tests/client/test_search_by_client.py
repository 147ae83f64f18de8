"""Searches by a client find what a local space finds, and raise the same errors."""

from __future__ import annotations

import asyncio
import json

import pytest
from same_program import refused
from served_streams import Served

import fourfold
from fourfold import errors
from fourfold.cli import main
from fourfold.client import AsyncRemoteStore

DID = "did:web:search.example"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A space with a text index, in a folder and on a server, and the folder of a third one."""
    folder = tmp_path_factory.mktemp("search")
    for name in ("local", "served", "command"):
        with fourfold.open(folder / name) as store:
            space = store.space(DID)
            space.indexes.create("words", ["/title", "/tags/*"], kind="text")
            for number in range(5):
                space.set(f"n{number}", {"title": f"Crème {number}", "tags": ["a b", "c" * number]})
            space.branches.create("work")
            space.set("n1", {"title": "other"}, branch="work")
    served = Served(folder / "served")
    with (
        fourfold.open(folder / "local") as local,
        fourfold.connect(f"http://127.0.0.1:{served.port}") as remote,
    ):
        yield local.space(DID), remote.space(DID), served.port, folder / "command"
    served.kill()


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("creme", {"limit": 2}),
        ("creme", {"at": 3, "order": "newest"}),
        ("other", {"branch": "work"}),
        ("creme", {"branch": "work", "index": "words", "paths": ["/title"]}),
        ('"a b" cc*', {}),
        ("nothing", {}),
    ],
)
def test_pages_of_a_server_equal_those_of_a_folder(both, query, options):
    local, remote, *_ = both
    page, same = local.search(query, **options), remote.search(query, **options)
    assert same == page
    if page.next is not None:
        following = remote.search(query, **options, after=same.next)
        assert following == local.search(query, **options, after=page.next)
        assert not {hit.id for hit in following} & {hit.id for hit in page}


def test_errors_of_a_server_equal_those_of_a_folder(both):
    for space in both[:2]:
        refused(
            errors.InvalidInput,
            "order must be 'score' or 'newest', got 'x'",
            lambda space=space: space.search("a", order="x"),
        )
        refused(
            errors.NotFound,
            "unknown text index 'x'",
            lambda space=space: space.search("a", index="x"),
        )
        refused(
            errors.Refused,
            "no text index with the paths ['/x']",
            lambda space=space: space.search("a", paths=["/x"]),
        )
        refused(
            errors.InvalidInput,
            "after: must be `next` of a page of this query, got 'x'",
            lambda space=space: space.search("a", after="x"),
        )


def test_coroutines_search(both):
    async def run():
        async with AsyncRemoteStore(f"http://127.0.0.1:{both[2]}") as store:
            space = await store.documents.open(DID)
            return await space.search("creme", limit=2)

    assert asyncio.run(run()) == both[0].search("creme", limit=2)


def test_command_prints_hits_with_their_matches(both, capsys):
    arguments = ["space", "search", str(both[3]), DID]
    assert main.run([*arguments, "creme", "--order", "newest", "--limit", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["n4", lines[1].split()[1], "[Crème]", "4"]
    assert lines[-1].startswith("5 hits. There are more: --after ")
    assert main.run([*arguments, "a -3", "--path", "/tags/*", "--at", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["total"], document["seq"], document["index"]) == (2, 2, "words")
    assert main.run([*arguments, "none"]) == 0
    assert capsys.readouterr().out == "no hits\n"
