"""The golden archive of tables, the current format: what it holds, and how a test unpacks it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("tables")
NODES = ("publisher", "fenced")
"""Stores that published to the archive: the last one, and one that was fenced by a take-over."""


def unpack(target: Path, *names: str) -> None:
    """Unpack the archive, in `objects`, and some nodes, below a folder."""
    with tarfile.open(FOLDER / "stores.tar.xz") as tar:
        wanted = {"objects", *names}
        members = [entry for entry in tar if entry.name.split("/")[0] in wanted]
        tar.extractall(target, members=members, filter="data")


def expected() -> dict[str, Any]:
    """Return what was read when the archive was made: of each point, and of each node."""
    return json.loads((FOLDER / "states.json").read_text(encoding="utf-8"))
