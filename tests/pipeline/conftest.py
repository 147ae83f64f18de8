"""One Spark session for all pipeline tests, started on first use."""

from __future__ import annotations

import os

import pytest

from fourfold.pipeline import read as read_table
from fourfold.pipeline import session

# Plans are not adaptive, so that they are deterministic. tests/conftest.py has the options of JVMs.
QUICK = {
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "OFF",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    # Workers inherit the environment of the JVM; the S3 server of the tests accepts any key.
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    os.environ["FOURFOLD_PIPELINE_CACHE_FOLDER"] = str(tmp_path_factory.mktemp("exports"))
    running = session("local[2]", **QUICK)
    yield running
    running.stop()


@pytest.fixture
def compiled(spark):
    """Spark compiles its plans, as it does by default."""
    settings = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def read(spark):
    """Return a function that reads a table: `read(root, "revisions", columns="id,seq")`."""

    def reader(root, table, **options):
        return read_table(spark, root=root, table=table, **options)

    return reader
