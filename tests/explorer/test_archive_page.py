"""The page of the archive: what is only on this disk, of databases and of streams."""

from __future__ import annotations

import json

import pytest

import fourfold
from fourfold.objects import FolderStore
from server.served_streams import Served

HTML = {"accept": "text/html"}
JSON = {"content-type": "application/json"}


@pytest.fixture
def served(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        store.space("did:web:shop.example").set("note", {"n": 1})
        for name, size in (("small", 10), ("large", 1_000)):
            store.streams.create(name, content_type="text/plain").append(b"x" * size)
        store.streams.create("empty", content_type="text/plain")
    server = Served(tmp_path / "store")
    yield server
    server.kill()


def archive(server):
    data = json.loads(server.ask("GET", "/archive.json").text)
    return data, server.ask("GET", "/archive", headers=HTML).text.decode()


def test_the_archive_lists_what_is_only_on_this_disk(served):
    data, shown = archive(served)
    assert data["streams"] == {
        "streams": 2,
        "records": 2,
        "bytes": 1_010,
        "complete": True,
        "largest": [
            {"name": "large", "records": 1, "bytes": 1_000},
            {"name": "small", "records": 1, "bytes": 10},
        ],
    }
    assert not data["is_published"]
    assert data["tables"] == []
    assert "records of <b>2</b> streams" in shown
    preview = served.ask("GET", "/run?kind=publish", headers=HTML).text.decode()
    assert "2 records, 1.0 KB, of 2" in preview
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        store.jobs.run("publish")
    data, shown = archive(served)
    assert (data["streams"]["records"], data["streams"]["largest"]) == (0, [])
    tables = {row["name"]: row for row in data["tables"]}
    assert tables["documents.revision"]["rows"] == 1
    assert tables["streams.records"]["files"] == 2
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        assert {row.name: row.version for row in store.archive_tables()} == {
            name: row["version"] for name, row in tables.items()
        }
    for name, row in tables.items():
        assert name in shown
        objects = FolderStore(served.root / "objects")
        assert len([*objects.list(f"{row['folder']}/_delta_log/")]) == row["version"] + 1
    assert data["is_published"]
    assert "<b>nothing</b> is only on this disk" in shown
    served.stream("POST", "small", b"more", content_type="text/plain")
    data, shown = archive(served)
    assert data["streams"]["largest"] == [{"name": "small", "records": 1, "bytes": 4}]
    assert "lagging" in shown


def test_only_some_streams_are_examined_and_the_page_says_so(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        for number in range(3):
            store.streams.create(f"s{number}", content_type="text/plain").append(b"x")
        some = store.archive.find_unpublished(1, examined=2)
        assert (some.streams, some.records, some.complete) == (2, 2, False)
        assert [row.name for row in some.largest] == ["s0"]
        assert store.archive.find_unpublished(1, examined=3).complete
