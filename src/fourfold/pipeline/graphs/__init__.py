"""What graphs plug into the pipeline: their tables, the fold of current objects, checks."""

from __future__ import annotations
