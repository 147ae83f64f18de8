"""What `materialize` keeps of documents: their state. How it does so is `jobs/materialize.py`."""

from __future__ import annotations

from typing import Final

NOUN: Final = "entity"
TABLES: Final = ("state",)
