"""What `load` accepts for documents; the implementation is in `jobs/load.py`."""

from __future__ import annotations

from typing import Final

WHAT: Final = ("documents", "operations")
