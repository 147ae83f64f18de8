"""What `materialize` stores of documents; the implementation is in `jobs/materialize.py`."""

from __future__ import annotations

from typing import Final

NOUN: Final = "entity"
TABLES: Final = ("state",)
