"""Spark reads the golden stores of every version as the store itself does."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import fourfold
from golden import golden_store

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.json"))
TABLES = {
    "revisions": ("documents", "revisions"),
    "facts": ("documents", "revisions"),
    "streams": ("streams", "records"),
    "graphs": ("graphs", "parents"),
    "sessions": ("sessions", "events"),
}

pytestmark = pytest.mark.spark


@pytest.fixture
def golden(tmp_path):
    def unpack(version, name):
        with tarfile.open(GOLDEN / version / "stores.tar.xz") as tar:
            members = [entry for entry in tar if entry.name.split("/")[0] == name]
            tar.extractall(tmp_path, members=members, filter="data")
        return tmp_path / name

    return unpack


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", list(TABLES))
def test_spark_reads_golden_store(golden, read, version, name):
    root = golden(version, name)
    model, table = TABLES[name]
    with fourfold.open(root) as store:
        # Opening a database migrates it.
        golden_store.STORES[name][1](store)
        [[count]] = store.sql(f"select count(*) from {model}_{table}").rows
    assert count
    assert read(root, table, model=model).count() == count
