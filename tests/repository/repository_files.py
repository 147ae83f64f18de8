"""The files of this repository, as the tests in this folder see them."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON_FOLDERS = ("src", "tests", "bench", "examples")
_TEXT_SUFFIXES = {
    "",
    ".cfg",
    ".css",
    ".html",
    ".js",
    ".json",
    ".md",
    ".py",
    ".sh",
    ".sql",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
}
_GENERATED = {"build", "dist", "__pycache__", "node_modules"}


@cache
def files() -> tuple[Path, ...]:
    """Every file that is tracked or would be; without git, every file that is not hidden."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True)
        found = [ROOT / name for name in done.stdout.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = [path for path in ROOT.rglob("*") if not _is_generated(path.relative_to(ROOT))]
    return tuple(sorted(path for path in found if path.is_file()))


def _is_generated(path: Path) -> bool:
    return any(part in _GENERATED or part.startswith(".") for part in path.parts)


def text_files() -> list[Path]:
    return [path for path in files() if path.suffix in _TEXT_SUFFIXES]


def python_files() -> list[Path]:
    return [
        path
        for path in files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PYTHON_FOLDERS
    ]


def pages() -> list[Path]:
    """README, CONTRIBUTING and the like, and all of docs/."""
    return [
        path
        for path in files()
        if path.suffix == ".md"
        and (path.parent == ROOT or path.relative_to(ROOT).parts[0] == "docs")
    ]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def environment(**changes: str) -> dict[str, str]:
    """The environment of a child that uses this checkout, without settings of the caller."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOURFOLD_")}
    inherited = kept.get("PYTHONPATH")
    kept["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *([inherited] if inherited else [])])
    return kept | changes
