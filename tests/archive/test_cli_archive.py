"""`fourfold publish`, `bootstrap` and `verify --objects`, and the store that they open."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

import fourfold
from fourfold.archive import manifest
from fourfold.cli import main
from fourfold.errors import CorruptData, ReadOnly
from fourfold.objects import FolderStore
from support.s3_server import serve_s3


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run `fourfold ...` in this process; return all that it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0, environment=None):
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            actual = main.run([*map(str, arguments)])
        printed = capfd.readouterr()
        assert actual == code, printed.out + printed.err
        return printed.out + printed.err

    return call


@pytest.fixture
def shop(tmp_path):
    """A store with one stream of ten records."""
    with fourfold.open(tmp_path / "shop") as store:
        store.streams.create("orders", "text/plain").append([b"%d" % n for n in range(10)])
    return tmp_path / "shop"


def records(root, name="orders", **options):
    with fourfold.open(root, **options) as store:
        return [record.payload for record in store.streams.read(name)[1].records]


def test_store_is_published_read_and_rebuilt_from_command_line(run, shop, tmp_path):
    run("publish", "shop", "--objects", "objects")
    expected = [b"%d" % n for n in range(10)]
    assert records(shop) == expected
    assert records(shop, mode="r") == expected
    report = json.loads(run("bootstrap", "again", "--objects", "objects", "--json"))
    assert (report["streams"], report["records"], report["lost"]) == (1, 10, [])
    shutil.rmtree(shop)
    assert records(tmp_path / "again") == expected
    run("verify", "again", "--objects")


def test_another_address_than_the_first_is_refused(run, shop):
    run("publish", "shop", "--objects", "objects")
    assert "error[refused]" in run("publish", "shop", "--objects", "elsewhere", code=6)
    assert records(shop) == [b"%d" % n for n in range(10)]


def test_nothing_is_published_from_a_folder_that_is_no_store(run, tmp_path):
    assert "error[not_found]" in run("publish", "nothing", "--objects", "objects", code=3)
    assert not (tmp_path / "nothing").exists()


def test_what_is_damaged_in_the_object_store_is_found(run, shop, tmp_path):
    run("publish", "shop", "--objects", "objects")
    with FolderStore(tmp_path / "objects") as objects:
        key = next(info.key for info in objects.list("streams/") if "/segments/" in info.key)
        data = objects.get(key).data
        objects.put(key, data[:-9] + b"damaged!!")
    assert key in run("verify", "shop", "--objects", code=8)
    run("verify", "shop")
    with FolderStore(tmp_path / "objects") as objects:
        objects.delete(key)
    assert "missing" in run("verify", "shop", "--objects", code=8)
    shutil.rmtree(shop / "streams" / ".segments")
    with pytest.raises(CorruptData, match="missing"):
        records(shop)


def test_fenced_node_gets_an_error_on_the_command_line(run, shop, tmp_path):
    run("publish", "shop", "--objects", "objects")
    run("bootstrap", "again", "--objects", "objects")
    run("publish", "again")
    run("stream", "append", "shop", "orders", "more")
    assert "error[publisher_fenced]" in run("publish", "shop", code=6)


def test_retired_objects_are_listed_before_they_are_deleted(run, shop):
    run("publish", "shop", "--objects", "objects")
    run("stream", "delete", "shop", "orders")
    run("publish", "shop")
    assert "would delete 0 objects" in run("publish", "shop", "--dry-run")
    soon = {"FOURFOLD_ARCHIVE_GRACE_S": "0"}
    assert "would delete 1 object" in run("publish", "shop", "--dry-run", environment=soon)
    assert "deleted 1 object" in run("publish", "shop", "--collect", environment=soon)


def test_a_damaged_manifest_fails_the_bootstrap_and_restores_the_others(run, shop, tmp_path):
    with fourfold.open(shop) as store:
        store.streams.create("other", "text/plain").append([b"x"])
    run("publish", "shop", "--objects", "objects")
    with FolderStore(tmp_path / "objects") as objects:
        objects.put(manifest.manifest_key("other"), b"{")
    assert "error[corrupt_data]" in run("bootstrap", "again", "--objects", "objects", code=8)
    assert records(tmp_path / "again") == [b"%d" % n for n in range(10)]


def test_an_object_store_that_ignores_conditions_is_refused(run, shop):
    with serve_s3(ignore_conditions=True) as server:
        keys = {
            "AWS_ACCESS_KEY_ID": server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
        }
        url = server.url("shop") + "&allow_http=true"
        printed = run("publish", "shop", "--objects", url, code=6, environment=keys)
    assert "ignores conditional writes" in printed


def test_a_store_that_is_open_for_reading_publishes_nothing(shop):
    with fourfold.open(shop, mode="r") as store, pytest.raises(ReadOnly):
        _ = store.archive


def test_a_backup_of_a_published_store_is_whole(run, shop, tmp_path):
    run("publish", "shop")
    run("backup", "shop", "copy")
    shutil.rmtree(shop)
    run("restore", "copy", "again")
    run("verify", "again", "--objects")
    assert records(tmp_path / "again") == [b"%d" % n for n in range(10)]


def test_stream_of_any_length_is_read_in_same_memory(tmp_path):
    """Peak memory of a process that reads 64 MiB from segments, beside one that reads 1 MiB."""
    code = """
import resource, sys
import fourfold
from fourfold.models.streams.validation import format_offset
with fourfold.open(sys.argv[1], mode="r") as store:
    at, held = "-1", 0
    while True:
        _, chunk = store.streams.read(sys.argv[2], at)
        held += sum(len(each.payload) for each in chunk.records)
        at = chunk.offset
        if chunk.up_to_date:
            break
print(held, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    settings = {"archive.seal_bytes": 4 * 2**20}
    with fourfold.open(tmp_path / "store", settings=settings) as store:
        for name, count in (("small", 1), ("large", 64)):
            stream = store.streams.create(name, "text/plain")
            for number in range(count):
                stream.append([bytes([number]) * 1024] * 1024)
        assert not store.archive.publish_all().failures

    def peak(name):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "store"), name],
            capture_output=True,
            text=True,
            check=True,
        )
        return [int(part) for part in done.stdout.split()]

    (small, low), (large, high) = peak("small"), peak("large")
    assert (small, large) == (2**20, 64 * 2**20)
    # A few row groups and one answer, in KiB; not the stream.
    assert high - low < 40 * 1024
