"""Named queries: found by name, refused when a name is wrong, quiet about comments."""

from __future__ import annotations

import copy
import pickle

import pytest

from fourfold.errors import InvalidInput, NotFound
from fourfold.kernel import load_queries
from fourfold.kernel.named_queries import parse_queries

TEXT = """\
-- What this file is about.

-- name: first
-- What it asks.
SELECT 1
  -- and why
  + 1;

-- name: second
SELECT '{name}'
"""


def test_queries_are_found_by_name_without_their_comments():
    queries = parse_queries("test.sql", TEXT)
    assert queries.first == "SELECT 1\n  + 1"
    assert queries.second == "SELECT '{name}'"
    assert list(queries) == ["first", "second"]


def test_unknown_query_name_raises_with_file_name():
    with pytest.raises(NotFound, match=r"test\.sql: unknown query 'frist'"):
        parse_queries("test.sql", TEXT).frist  # noqa: B018


@pytest.mark.parametrize("name", ["first", "not a name", "", "_private", "1st"])
def test_duplicate_or_invalid_query_name_is_refused(name):
    with pytest.raises(InvalidInput, match="duplicate or invalid query name"):
        parse_queries("test.sql", f"{TEXT}-- name: {name}\nSELECT 1\n")


def test_queries_survive_copying_and_pickling():
    queries = parse_queries("test.sql", TEXT)
    for again in (copy.copy(queries), copy.deepcopy(queries), pickle.loads(pickle.dumps(queries))):
        assert again.first == queries.first


def test_kernel_queries_load():
    queries = load_queries("fourfold.kernel")
    assert {"begin", "commit", "rollback", "sequence_claim"} <= set(queries)
    assert all(getattr(queries, name) for name in queries)
