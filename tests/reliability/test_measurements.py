"""Measurements of reliability work on a little data; figures become tables and a chart."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from bench.reliability import __main__ as commands
from bench.reliability import fuzz, readers, sizes, soak
from bench.reliability.chart import Panel, draw

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def test_idle_readers_are_measured(tmp_path):
    figure = readers.measure(tmp_path / "store", "sse", 20)
    assert figure.readers == 20
    assert figure.open_files > 20
    assert figure.memory_again_bytes > 0


def test_sizes_are_measured(tmp_path):
    result = sizes.run(tmp_path, 10)
    figures = {figure.name: figure for figure in result.figures}
    assert figures.keys() == {*sizes._KINDS, "space"}
    # Ten small rows may fit into pages that a new store has, and take no measurable time.
    assert all(min(figure.disk_bytes, figure.cpu_us) >= 0 for figure in result.figures)
    assert figures["space"].disk_bytes > figures["document"].disk_bytes
    assert result.server_bytes > 0
    assert "| space (1) |" in sizes.table(result, tmp_path / "sizes.json")


def test_soak_samples_a_server_under_load(tmp_path):
    *_, result = soak.run(tmp_path, 3, 1)
    assert result.errors == []
    assert all(result.appends.values())
    assert len(result.samples) >= 3
    assert result.events
    drawing = ET.fromstring(soak.chart(result))
    assert len(drawing.findall(".//{*}polyline")) == 6


def test_chart_scales_each_panel_from_zero():
    text = draw([0, 1, 2], [Panel("a < b", [0, 3, 4]), Panel("none", [0, 0, 0])], "minutes")
    drawing = ET.fromstring(text)
    (one, two) = drawing.findall(".//{*}polyline")
    assert one.get("points").split()[-1].endswith(",46.4")
    assert two.get("points").split()[-1].endswith(",128.0")
    assert "a &lt; b" in text


def test_figures_become_tables():
    text = commands.installations(
        [{"extra": "s3", "packages": 12, "megabytes": 40.3, "import_ms": 9.8, "passed": True}],
        Path("wheel.json"),
    )
    assert "| s3 | 12 | 40 MB | 10 ms | passed |" in text
    assert fuzz._outcomes({"a": 1, "b": 5, "c": 1, "d": 1, "e": 1}) == (
        "b: 5, a: 1, c: 1, d: 1, and 1 more"
    )
