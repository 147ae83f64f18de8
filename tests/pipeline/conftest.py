"""One Spark session for all pipeline tests, started on first use."""

from __future__ import annotations

import os

import pytest

from fourfold.pipeline import session

# Fast compilation and simple gc, because tests are short. Plans are not adaptive, so that they are
# deterministic.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "OFF",
}


@pytest.fixture(scope="session")
def spark():
    # Workers inherit the environment of the JVM; the S3 server of the tests accepts any key.
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    running = session("local[2]", **QUICK)
    yield running
    running.stop()


@pytest.fixture
def read(spark):
    """Return a function that reads a table: `read(root, "revisions", columns="id,seq")`."""

    def reader(root, table, **options):
        source = spark.read.format("fourfold").option("root", str(root)).option("table", table)
        for name, value in options.items():
            source = source.option(name, value)
        return source.load()

    return reader
