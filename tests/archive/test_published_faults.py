"""Published stores when something is wrong: with the objects, the database, or who publishes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from published_stores import (
    DID,
    objects_of,
    open_store,
    published,
    rebuilt,
)

from fourfold.errors import FutureFormat
from fourfold.objects import FolderStore
from fourfold.store import database_files
from fourfold.store.restoration import rebuild


def test_an_object_with_the_rows_of_another_one_is_damaged(store, url, tmp_path):
    for number in range(2):
        store.space(DID).set("a", {"n": number})
        published(store)
    first, second = sorted(
        key
        for key in objects_of(url)
        if key.startswith("tables/documents.revision/") and key.endswith(".parquet")
    )
    with FolderStore(url) as objects:
        objects.put(second, objects.get(first).data)
    assert any(second in problem.message for problem in store.verify(objects=True).problems)
    with open_store(tmp_path / "again", url) as again:
        assert second in rebuild(again).failures[f"spaces/{DID}"].message


def test_database_of_a_later_version_is_refused(store, url, tmp_path, monkeypatch):
    subject = database_files._subject
    later = {"migrations": 99}
    monkeypatch.setattr(database_files, "_subject", lambda *args: replace(subject(*args), **later))
    store.space(DID).set("a", {"n": 1})
    published(store)
    with pytest.raises(FutureFormat):
        rebuilt(tmp_path / "again", url)


def test_what_is_there_stays_as_it_is(store, url, tmp_path):
    store.space(DID).set("a", {"n": 1})
    published(store)
    again = rebuilt(tmp_path / "again", url)
    with open_store(again, url) as opened:
        opened.space(DID).set("a", {"n": 2})
        report = rebuild(opened)
        assert report.present == [f"spaces/{DID}"]
        assert opened.space(DID).read("a").document == {"n": 2}


def test_threads_that_publish_the_same_store_take_turns(store):
    space = store.space(DID)
    with ThreadPoolExecutor(4) as pool:
        for number in range(3):
            space.set("a", {"n": number})
            for done in [pool.submit(store.publish) for _ in range(4)]:
                done.result().raise_if_failed()
