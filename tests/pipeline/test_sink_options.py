"""Options and columns of the sink, checked before Spark runs. No session is needed."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import fourfold
from fourfold.errors import FourfoldError, Refused
from fourfold.pipeline.documents import sink

A = "did:web:a.example"
ROWS = StructType([StructField("id", StringType()), StructField("data", StringType())])


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"histroy": "facts"}, "histroy"),
        ({"history": "diary"}, "diary"),
        ({"space": None}, "space"),
        ({"space": "nowhere"}, "nowhere"),
        ({"skip_bad": "maybe"}, "maybe"),
        ({"wait_s": "long"}, "long"),
        ({"wait_s": "inf"}, "inf"),
        ({"order": "when"}, "when"),
        ({"root": None}, "root"),
        ({"url": "http://127.0.0.1:4437"}, "either"),
        ({"query": "of-a-stream"}, "query"),
    ],
)
def test_sink_refuses_invalid_options(root, options, word):
    given = {"root": str(root), "space": A, **options}
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(FourfoldError, match=word):
        sink.batch_writer(given, ROWS, False)


def test_misspelt_sink_option_has_suggestion(root):
    with pytest.raises(FourfoldError) as caught:
        sink.batch_writer({"root": str(root), "spaces": A}, ROWS, False)
    assert "Did you mean 'space'?" in caught.value.message


def test_root_that_is_not_a_store_is_not_created(tmp_path):
    with pytest.raises(FourfoldError, match="not a Fourfold store"):
        sink.batch_writer({"root": str(tmp_path / "nowhere"), "space": A}, ROWS, False)
    assert not (tmp_path / "nowhere").exists()


def test_sink_refuses_overwrite(root):
    with pytest.raises(Refused, match="cannot overwrite"):
        sink.batch_writer({"root": str(root), "space": A}, ROWS, True)


def test_sink_checks_spark_types_of_columns(root):
    numbers = StructType([StructField("id", LongType()), StructField("data", StringType())])
    with pytest.raises(FourfoldError, match="bigint"):
        sink.batch_writer({"root": str(root), "space": A}, numbers, False)


@pytest.mark.parametrize("as_uri", [True, False])
def test_query_id_is_read_from_checkpoint(root, tmp_path, as_uri):
    folder = tmp_path / "a checkpoint"
    folder.mkdir()
    place = folder.as_uri() if as_uri else str(folder)
    options = {"root": str(root), "space": A, "checkpointLocation": place}
    for text in (None, "{}", "nonsense"):
        if text is not None:
            (folder / "metadata").write_text(text)
        with pytest.raises(FourfoldError, match="cannot read the id"):
            sink.stream_writer(options, ROWS, False)
    (folder / "metadata").write_text(json.dumps({"id": "one"}))
    assert sink.stream_writer(options, ROWS, False)._options.batch.session == "query:one"
    named = sink.stream_writer({**options, "query": "mine"}, ROWS, False)
    assert named._options.batch.session == "query:mine"
    with pytest.raises(FourfoldError, match="s3a://bucket"):
        sink.stream_writer({**options, "checkpointLocation": "s3a://bucket/x"}, ROWS, False)
