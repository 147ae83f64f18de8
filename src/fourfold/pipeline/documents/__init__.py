"""What documents plug into the pipeline: their tables."""

from __future__ import annotations
