"""The benchmark of a large store visits every page, and calls that the client has."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
import pytest
from bench.large import visits
from bench.large.__main__ import measure
from bench.large.building import BATCH, Size, build

from fourfold.explorer import explorer
from server.served_streams import Served

LEFT_OUT = {
    *("/blob", "/blobs", "/restore", "/graphs", "/leases"),  # bounded, or as fast as a document
    *("/memories", "/memory", "/item"),  # pages of documents
    *("/job", "/run", "/keys", "/newkey", "/deletekey", "/problem", "/problems"),  # always small
}


def test_the_benchmark_of_a_large_store_visits_its_pages(tmp_path):
    pages = {page.path for module in explorer._MODULES for page in module.PAGES}
    paths = {urlsplit(path).path for path in visits.requests(Size(), "2026-01-01").values()}
    assert pages - paths == LEFT_OUT


@pytest.mark.slow
def test_a_small_store_is_built_and_measured(tmp_path):
    size = Size(*[BATCH] * len(msgspec.structs.fields(Size)))
    build(tmp_path / "store", size, lambda _: None)
    server = Served(tmp_path / "store")
    try:
        lines = measure(server.port, size, lambda _: None)
    finally:
        server.kill()
    assert {line.what for line in lines} >= {"home", "merge", "client: read a stream"}
    assert all(line.first_ms > 0 for line in lines)
