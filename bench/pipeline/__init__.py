"""The pipeline beside its limits: native Parquet for scans, a plain Python fold for states."""

from __future__ import annotations
