"""The store of the pictures in the documentation can be filled, with entries in all models."""

from __future__ import annotations

import sys
from pathlib import Path

import fourfold

DOCS = Path(__file__).parents[2] / "docs"


def test_example_store_has_entries_in_all_models(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    import example_store  # noqa: PLC0415 - a script of the documentation, not a package

    example_store.fill(tmp_path / "shop")
    with fourfold.open(tmp_path / "shop", mode="r") as store:
        assert store.space(example_store.DID).read(example_store.ORDER).document is not None
        assert store.memory("assistant").search("soup")
        assert store.streams.open("orders").info.next_offset > 100
        assert store.graphs.open("crm").read("parent", 1)
        assert store.sessions.current_view("support/refund-1042").current_head is not None
