"""`schema.sql` of each kind of database equals its migrations: objects, columns, keys, rows."""

from __future__ import annotations

import re

import pytest

from fourfold.kernel.driver import Connection
from fourfold.kernel.named_queries import read_sql
from fourfold.models.model import all_models

PACKAGES = {
    "revisions": "fourfold.models.documents.revisions",
    "facts": "fourfold.models.documents.facts",
}
KINDS = [
    (kind, PACKAGES.get(kind.name, f"fourfold.models.{model.name}"))
    for model in all_models()
    for kind in model.kinds
]
META = "INSERT INTO kernel_meta (key, value) VALUES ('created_at', '2026-01-02T03:04:05Z')"


def build(*texts):
    """Return a database in memory, with the tables of the kernel."""
    connection = Connection(":memory:")
    connection.execute(read_sql("fourfold.kernel", "schema.sql"))
    connection.execute(META)
    for text in texts:
        connection.execute(text)
    return connection


def statement(sql):
    """Return a statement without comments and without the choice of whitespace."""
    text = re.sub(r"--[^\n]*", " ", sql or "")
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(text.split()))


def objects(connection):
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")
    return {(kind, name, table): statement(sql) for kind, name, table, sql in rows}


def tables(connection):
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")
    return sorted(name for (name,) in rows)


def columns(connection, name):
    return list(connection.execute(f"SELECT * FROM pragma_table_xinfo('{name}')"))


def keys(connection, name):
    indexes = connection.execute(
        f"SELECT name, \"unique\", partial FROM pragma_index_list('{name}')"
    )
    return sorted(
        (index[1:], tuple(connection.execute(f"SELECT * FROM pragma_index_xinfo('{index[1]}')")))
        for index in indexes
    )


def rows(connection, name):
    return sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))


@pytest.mark.parametrize(("kind", "package"), KINDS, ids=[kind.name for kind, _ in KINDS])
def test_schema_file_equals_the_migrations(kind, package):
    migrated = build(*(migration.sql for migration in kind.migrations))
    whole = build(read_sql(package, "schema.sql"))
    assert objects(whole) == objects(migrated)
    for name in tables(migrated):
        assert columns(whole, name) == columns(migrated, name), name
        assert keys(whole, name) == keys(migrated, name), name
        assert rows(whole, name) == rows(migrated, name), name


@pytest.mark.parametrize("package", [package for _, package in KINDS])
def test_schema_file_has_no_alterations(package):
    text = read_sql(package, "schema.sql")
    assert not re.search(r"^(?:ALTER|DROP)\b", text, re.MULTILINE)
