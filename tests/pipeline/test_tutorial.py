"""The tutorial and the notebook run as printed, with fewer spaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fourfold

pytestmark = pytest.mark.spark

TREE = Path(__file__).parents[2]
TUTORIAL = TREE / "docs" / "tutorials" / "ten-thousand-spaces.md"
NOTEBOOK = TREE / "examples" / "ten_thousand_spaces.ipynb"
FEWER = 12


def blocks_of_the_page():
    """Return every Python block, by the rules used for the other pages."""
    result, inside = [], None
    for line in TUTORIAL.read_text(encoding="utf-8").splitlines():
        if line == "```python":
            inside = []
        elif line == "```" and inside is not None:
            result.append("\n".join(inside))
            inside = None
        elif inside is not None:
            inside.append(line)
    return result


def cells_of_the_notebook():
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def test_notebook_equals_tutorial():
    assert cells_of_the_notebook() == blocks_of_the_page()
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in content["cells"])


def test_notebook_runs_cell_by_cell(spark, tmp_path, capsys):
    cells = cells_of_the_notebook()
    assert 'SPACES = "shops", 10_000' in cells[0]
    cells[0] = cells[0].replace("10_000", str(FEWER))
    # Spark's processes have another working folder, so the path is absolute.
    cells[0] = cells[0].replace('"shops"', repr(str(tmp_path / "shops")))
    # The session is shared with other tests and stays open.
    cells[-1] = cells[-1].replace("spark.stop()", "")
    names = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"cell {number}", "exec"), names)
    assert names["spark"] is spark
    assert f"{FEWER} files checked, all sound" in capsys.readouterr().out
    assert [tuple(row) for row in names["answer"].collect()] == [counted_online(tmp_path / "shops")]


def counted_online(root):
    """Return the answer without Spark: orders paid now, and those once cancelled."""
    paid = cancelled = 0
    with fourfold.open(root, mode="r") as store:
        assert len(store.spaces()) == FEWER
        for did in store.spaces():
            space = store.space(did)
            for name in space.ids():
                if space.read(name).document["state"] != "paid":
                    continue
                seqs = [version.seq for version in space.history(name)]
                was = {space.read(name, at=seq).document["state"] for seq in seqs}
                paid += 1
                cancelled += "cancelled" in was
    return paid, cancelled
