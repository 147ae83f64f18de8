"""Tables of Spark's catalog over a store: `CREATE TABLE ... USING fourfold` and `load(path)`."""

from __future__ import annotations

import pytest
import sample_store

import fourfold
from fourfold.errors import InvalidInput
from fourfold.pipeline.options import read_options
from fourfold.pipeline.spark import unwrap_error

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables") / "a store"
    sample_store.build(folder)
    return folder


@pytest.fixture
def name(spark):
    yield "created"
    spark.sql("drop table if exists created")


def rows(frame):
    return sorted(map(repr, frame.collect()))


@pytest.mark.parametrize(
    "form",
    [
        "using fourfold options (root '{root}', table 'state', branch '*')",
        "using fourfold options (Table 'state', Branch '*') location '{root}'",
        "using fourfold options (path '{root}', table 'state', branch '*') comment 'a table'",
    ],
)
def test_created_table_reads_the_store_with_its_options(spark, read, root, name, form):
    spark.sql(f"create table {name} " + form.format(root=root))
    expected = read(root, "state", branch="*").collect()
    assert rows(spark.table(name)) == sorted(map(repr, expected))
    few = spark.sql(f"select id from {name} where seq > 4 and branch = 'draft'")
    ids = sorted(row.id for row in expected if row.seq > 4 and row.branch == "draft")
    assert sorted(row.id for row in few.collect()) == ids != []


def test_created_table_shows_new_commits_and_drop_keeps_store(spark, tmp_path, name):
    with fourfold.open(tmp_path) as store:
        space = store.space("did:web:a.example")
        space.set("a", {"n": 1})
        spark.sql(
            f"create table {name} using fourfold options (table 'revisions', columns 'id,seq') "
            f"location '{tmp_path}'"
        )
        assert spark.table(name).columns == ["id", "seq"]
        space.set("b", {"n": 2})
        assert {row.id for row in spark.table(name).collect()} == {"a", "b"}
        spark.sql(f"drop table {name}")
        assert space.read("b").document == {"n": 2}
    with fourfold.open(tmp_path, mode="r") as store:
        assert store.space("did:web:a.example").verify() == []


def test_create_table_refuses_invalid_options(spark, root, name):
    for form, problem in {
        f"options (root '{root}', table 'nothing')": "unknown table 'nothing'",
        f"options (root '{root}', tabel 'state')": "Did you mean 'table'",
        "options (root '/nowhere', table 'state')": "not a Fourfold store",
    }.items():
        with pytest.raises(Exception, match=problem) as caught:
            spark.sql(f"create table {name} using fourfold {form}")
        assert isinstance(unwrap_error(caught.value), fourfold.FourfoldError)


def test_created_table_with_columns_raises_with_hint(spark, root, name):
    form = f"(id string) using fourfold options (root '{root}', table 'state')"
    spark.sql(f"create table {name} {form}")
    with pytest.raises(Exception, match="created with a list of columns") as caught:
        spark.table(name).collect()
    assert isinstance(unwrap_error(caught.value), InvalidInput)


def test_load_accepts_root_as_path(spark, read, root):
    reader = spark.read.format("fourfold").option("table", "revisions")
    expected = rows(read(root, "revisions"))
    assert rows(reader.load(str(root))) == expected
    assert rows(reader.option("root", str(root)).load(str(root))) == expected


def test_path_options_are_checked():
    table = {"table": "state"}
    assert read_options({"path": "/a", **table}).root == "/a"
    assert read_options({"path": "file:/a%20b", **table}).root == "/a b"
    assert read_options({"path": "file:///a", **table}).root == "/a"
    with pytest.raises(InvalidInput, match="contradicts"):
        read_options({"path": "/a", "root": "/b", **table})
    with pytest.raises(InvalidInput, match="one path"):
        read_options({"paths": '["/a", "/b"]', **table})
