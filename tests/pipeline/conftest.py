"""One Spark session for all tests of the pipeline, started when the first of them asks for it."""

from __future__ import annotations

import os

import pytest

from fourfold.pipeline import session

# Compiled quickly and collected simply: tests are short. Plans do not adapt, so they are the same
# every time.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "OFF",
}


@pytest.fixture(scope="session")
def spark():
    # Workers have the environment that the JVM was started with; the S3 server of the tests takes
    # any key.
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    running = session("local[2]", **QUICK)
    yield running
    running.stop()


@pytest.fixture
def read(spark):
    """A table as a DataFrame: `read(root, "revisions", columns="id,seq")`."""

    def reader(root, table, **options):
        source = spark.read.format("fourfold").option("root", str(root)).option("table", table)
        for name, value in options.items():
            source = source.option(name, value)
        return source.load()

    return reader
