"""What `load` brings into documents: documents and operations. How is in `jobs/load.py`."""

from __future__ import annotations

from typing import Final

WHAT: Final = ("documents", "operations")
