"""Sinks of the pipeline that are killed write each row once; what they break is counted."""

from __future__ import annotations

import sys

import pytest
from bench.reliability import sinks
from bench.reliability.sinks import MODELS, Figures, run_round

from fourfold.pipeline.models import model_names

pytest.importorskip("pyspark")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it kills groups of processes")


def test_every_model_with_a_sink_is_killed():
    assert set(MODELS) == set(model_names("sink"))


@pytest.mark.parametrize(
    ("numbers", "missing", "twice", "disordered"),
    [
        ([0, 1, 2, 3], 0, 0, 0),
        ([0, 1, 3], 1, 0, 0),
        ([0, 1, 2, 2, 3, 3], 0, 2, 0),
        ([0, 2, 1, 3], 0, 0, 1),
    ],
)
def test_broken_rows_are_counted(numbers, missing, twice, disordered):
    figures = Figures()
    sinks._count(figures, numbers, 4)
    assert (figures.missing, figures.twice, figures.disordered) == (missing, twice, disordered)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_killed_sink_writes_each_row_once(tmp_path, name):
    figures = Figures()
    run_round(tmp_path / "store", name, seed=7, kills=3, figures=figures)
    assert figures.kills == 3
    assert figures.batches > 3
    assert figures.rows == figures.batches * sinks.ROWS * len(sinks.TARGETS)
    assert (figures.missing, figures.twice, figures.disordered) == (0, 0, 0)
