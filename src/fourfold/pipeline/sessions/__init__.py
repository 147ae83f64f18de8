"""What sessions plug into the pipeline: their tables, the fold of views, checks and marks."""

from __future__ import annotations
