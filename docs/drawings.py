"""Drawings of the architecture, docs/images/layers.svg and data.svg: `python docs/drawings.py`.

The layers are those of the import law in pyproject.toml, so the drawing cannot differ from it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent
LAYERS = DOCS / "images" / "layers.svg"
DATA = DOCS / "images" / "data.svg"
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1b1f24; text-anchor: middle }
.note { font-size: 11px; fill: #57606a }
rect { fill: #eef3fb; stroke: #2456a6; rx: 6 } .store { fill: #fff6e5; stroke: #b3731b }
path { stroke: #57606a; fill: none; marker-end: url(#arrow) }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .note { fill: #9da7b3 } path { stroke: #9da7b3 }
  rect { fill: #1c2738; stroke: #7aa7f0 } .store { fill: #33270f; stroke: #d9a441 } }
"""
_ARROW = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto"><path d="M0 0 8 4 0 8z" '
    'style="fill:#57606a;stroke:none;marker-end:none"/></marker>'
)


def layers() -> str:
    """Draw the packages, the highest first: each imports only from those below."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (law,) = [contract for contract in contracts if contract["type"] == "layers"]
    width, height = 700, 34
    parts = []
    for row, layer in enumerate(law["layers"]):
        names = [name.strip(" ()") for name in layer.split("|")]
        share = width / len(names)
        for column, name in enumerate(names):
            parts += _box(column * share + 4, row * height + 4, share - 8, height - 8, name)
    return _svg(width, len(law["layers"]) * height, parts)


def data() -> str:
    """Draw the way of a write: to the log of its model, and from there to readers and archives."""
    parts = [
        *_box(10, 110, 120, 44, "programs", "library, HTTP, MCP"),
        *_box(180, 110, 120, 44, "group commit", "one sync for many"),
        *_box(180, 20, 120, 44, "live readers", "woken by commits"),
    ]
    models = ("documents", "streams", "graphs", "sessions")
    for row, model in enumerate(models):
        parts += _box(350, 10 + 66 * row, 130, 50, f"log of {model}", "SQLite", kind="store")
        parts.append(f'<path d="M300 132 C325 132 325 {35 + 66 * row} 348 {35 + 66 * row}"/>')
        parts.append(f'<path d="M480 {35 + 66 * row} C505 {35 + 66 * row} 505 65 528 65"/>')
        parts.append(f'<path d="M480 {35 + 66 * row} C505 {35 + 66 * row} 505 200 528 200"/>')
    parts += [
        *_box(530, 43, 150, 44, "fold", "state at any seq or time"),
        *_box(530, 178, 150, 44, "archive", "Delta tables, manifests", kind="store"),
        *_box(740, 43, 130, 44, "reads and SQL", "now and in the past"),
        *_box(740, 143, 130, 44, "Spark", "every log as a table"),
        *_box(740, 213, 130, 44, "bootstrap, replica", "restored elsewhere"),
        '<path d="M130 132 178 132"/>',
        '<path d="M240 110 240 66"/>',
        '<path d="M680 65 738 65"/>',
        '<path d="M680 200 C710 200 710 165 738 165"/>',
        '<path d="M680 200 C710 200 710 235 738 235"/>',
    ]
    return _svg(880, 275, parts)


def write() -> None:
    """Write both drawings."""
    LAYERS.write_text(layers(), encoding="utf-8")
    DATA.write_text(data(), encoding="utf-8")


def _box(  # noqa: PLR0917 - a place and a size
    left: float, top: float, width: float, height: float, title: str, note: str = "", kind: str = ""
) -> list[str]:
    middle, base = left + width / 2, top + height / 2
    marked = f' class="{kind}"' if kind else ""
    parts = [
        f'<rect{marked} x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"/>',
        f'<text x="{middle:g}" y="{base + (-2 if note else 4):g}">{escape(title)}</text>',
    ]
    if note:
        parts.append(f'<text class="note" x="{middle:g}" y="{base + 14:g}">{escape(note)}</text>')
    return parts


def _svg(width: int, height: int, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", _ARROW, *parts, "</svg>", ""])


if __name__ == "__main__":
    write()
