"""The reference of documents is complete: every public call, record and limit is on its page."""

from __future__ import annotations

import inspect

import pytest
import repository_files as tree

from fourfold.models import documents
from fourfold.models.documents import bundle
from fourfold.models.documents.blobs import BlobStat, SpaceBlobs
from fourfold.models.documents.branches import Branches
from fourfold.models.documents.comparison import Change, Difference
from fourfold.models.documents.feed import Watch
from fourfold.models.documents.merge import MergeResult
from fourfold.models.documents.snapshots import MaintenanceReport

PAGE = (tree.ROOT / "docs" / "reference" / "documents.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())  # Lines are wrapped anywhere.
CALLS = [
    *(f"space.{name}(" for name in vars(documents.Space)),
    *(f"space.branches.{name}(" for name in vars(Branches)),
    *(f"{name}(" for name in vars(SpaceBlobs)),
    *(f"space.indexes.{name}(" for name in vars(documents.Indexes)),
]
RECORDS = [
    documents.Branch,
    documents.Commit,
    documents.LogEntry,
    documents.Revision,
    documents.State,
    documents.Facet,
    documents.FindPage,
    documents.IndexInfo,
    documents.Match,
    BlobStat,
    Change,
    Difference,
    MaintenanceReport,
    MergeResult,
    bundle.ExportResult,
]


@pytest.mark.parametrize(
    "call", [each for each in CALLS if not each.split(".")[-1].startswith("_")]
)
def test_every_call_is_documented(call):
    assert f"`{call}" in TEXT or f", `{call}" in TEXT


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_record_is_documented_with_its_fields(record):
    fields = ", ".join(inspect.signature(record).parameters)
    assert f"`{record.__name__}({fields})`" in TEXT


@pytest.mark.parametrize(
    "function",
    [
        getattr(documents.Space, name)
        for name in ("transact", "read", "history", "log", "watch", "find")
    ]
    + [Branches.create, Branches.merge, Branches.diff],
    ids=lambda function: function.__qualname__,
)
def test_every_argument_is_documented_with_its_default(function):
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.default is not inspect.Parameter.empty:
            default = "''" if parameter.default == "" else repr(parameter.default)
            assert f"{parameter.name}={default}".replace("'", '"') in TEXT, parameter


@pytest.mark.parametrize("name", ["next", "next_async", "position", "ended", "close"])
def test_every_part_of_a_watch_is_documented(name):
    assert hasattr(Watch, name)
    assert f"`{name}" in TEXT or f" {name}(" in TEXT
