"""The JSON documents that the reference of the command line shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def documented_json(command: str) -> dict[str, object]:
    """Return the example of what `fourfold COMMAND --json` prints."""
    text = REFERENCE.read_text(encoding="utf-8")
    section = re.search(
        rf"^## `fourfold {command}`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    block = re.search(r"^```json\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    return json.loads(block[1])
