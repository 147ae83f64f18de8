"""The notebook of the tour runs, and its stored outputs are what it shows."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
from pathlib import Path

TREE = Path(__file__).parents[2]
NOTEBOOK = TREE / "examples" / "tour.ipynb"
VARYING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?|ts_ms=\d+|\b\d{13}\b|[0-9a-f]{12,}"
)
"""Times, and names that contain random bits."""


def load_runner():
    spec = importlib.util.spec_from_file_location("run_notebook", TREE / "docs" / "run_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs_of(notebook):
    """Return what each cell shows, without times and random names."""
    return [
        (number, output["output_type"], VARYING.sub("*", json.dumps(output)))
        for number, cell in enumerate(notebook["cells"])
        for output in cell.get("outputs", ())
    ]


def test_stored_outputs_of_the_notebook_are_what_it_shows(tmp_path, monkeypatch):
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert str(Path.home()) not in json.dumps(stored)
    shown = copy.deepcopy(stored)
    for cell in shown["cells"]:
        cell.pop("outputs", None)
    monkeypatch.chdir(tmp_path)
    load_runner().run(shown)
    assert outputs_of(shown) == outputs_of(stored)
    kinds = {kind for cell in stored["cells"] for out in cell.get("outputs", ()) for kind in out}
    assert {"data", "text"} <= kinds
    assert any("<svg" in text for _, _, text in outputs_of(stored))
