"""Run examples/tour.ipynb and store its outputs: `python docs/run_notebook.py`.

Each cell runs in one namespace, in an empty folder. What a notebook would show is stored: the
printed text, and the value of the last expression as text and as HTML. Paths are relative to the
folder, so that the outputs do not name this machine.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tour.ipynb"


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run(notebook)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def run(notebook: dict[str, Any]) -> None:
    """Run the cells of a notebook in the current folder, and replace their outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = _run_cell("".join(cell["source"]), count, names)


def _run_cell(source: str, count: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)  # noqa: S102 - that is the purpose
        if isinstance(last, ast.Expr):
            code = compile(ast.Expression(last.value), f"cell {count}", "eval")
            value = eval(code, names)  # noqa: S307 - as above
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = _lines(printed.getvalue())
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": _lines(value._repr_html_()), **data}
        shown = {"data": data, "execution_count": count, "metadata": {}}
        outputs.append({**shown, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.replace(f"{os.path.realpath(os.curdir)}/", "").splitlines(keepends=True)


if __name__ == "__main__":
    main()
