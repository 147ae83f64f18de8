"""Addresses of object stores: what they open, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fourfold.errors import InvalidConfig
from fourfold.objects import FolderStore, MemoryStore, S3Store, open_objects

if TYPE_CHECKING:
    from support.s3_server import S3Server


def test_memory_is_new_at_every_opening() -> None:
    with open_objects("memory:") as one, open_objects("memory:") as two:
        assert isinstance(one, MemoryStore)
        one.put("k", b"x")
        assert two.head("k") is None


def test_paths_and_file_addresses_open_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "with space%41"
    addresses = [
        folder,
        str(folder),
        "with space%41",
        "./with space%41",
        "~/with space%41",
        f"file://{tmp_path}/with%20space%2541",
        f"file://localhost{tmp_path}/with%20space%2541",
        f"file:{tmp_path}/with%20space%2541",
    ]
    for number, address in enumerate(addresses):
        with open_objects(address) as store:
            assert isinstance(store, FolderStore)
            assert store.root == folder
            store.put(f"k{number}", b"x")
    with open_objects(folder) as store:
        assert len(list(store.list())) == len(addresses)


def test_a_relative_path_with_a_colon_needs_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_objects("./a:b") as store:
        store.put("k", b"x")
    assert (tmp_path / "a:b" / "k").read_bytes() == b"x"
    with pytest.raises(InvalidConfig, match="unknown scheme") as caught:
        open_objects("a:b")
    assert "./like:this" in caught.value.hint


def test_an_s3_address_names_bucket_prefix_and_endpoint(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with open_objects(s3_server.url("by/url") + "&region=eu-west-1") as store:
        assert isinstance(store, S3Store)
        assert store.settings.region == "eu-west-1"
        store.put("k", b"x")
    with s3_server.store() as whole:
        assert whole.get("by/url/k").data == b"x"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "  ",
        "nul\0",
        "memory:x",
        "memory://",
        "file://elsewhere/path",
        "file:",
        "file:///x?y=1",
        "http://example.org/x",
        "gs://bucket",
        "s3://",
        "s3://b",
        "s3:bucket",
        "s3://key:hush@bucket/x",
        "s3://bucket/x#y",
        "s3://bucket/a//b",
        "s3://bucket?endpoint=http://example.org",
        "s3://bucket?endpoint",
        "s3://bucket?secret_access_key=hush",
        "s3://bucket?allow_http=perhaps",
        "s3://key:hush@bucket:port/[",
        "s3://bucket?endpoint=https://user:hush@example.org:port",
    ],
)
def test_an_address_that_names_no_store_is_refused(address: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        open_objects(address)
    assert caught.value.hint
    assert "hush" not in str(caught.value)


def test_objects_work_without_obstore_and_s3_names_what_to_install(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["obstore"] = None
from fourfold.errors import MissingDependency
from fourfold.objects import open_objects
for address in ("memory:", sys.argv[1]):
    with open_objects(address) as store:
        store.put("k", b"x", if_absent=True)
        assert store.get("k").data == b"x"
try:
    open_objects("s3://bucket/prefix")
except MissingDependency as exc:
    assert isinstance(exc, ImportError)
    print(exc, exc.hint)
"""
    result = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "obstore" in result.stdout
    assert "pip install 'fourfold[s3]'" in result.stdout


def test_importing_objects_does_not_import_obstore() -> None:
    script = "import sys, fourfold.objects; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
