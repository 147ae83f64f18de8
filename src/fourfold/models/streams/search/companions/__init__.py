"""Companions of segments: bundles that answer searches and aggregates without the records.

    col     columns of the declared fields, and the time of each message (Parquet)
    fts     a full-text index of the declared texts (SQLite with FTS5)
    agg     rollups, by time and then by group (Parquet)
    mblk    the same rollups, by group and then by time (Parquet)

One bundle, a ZIP file that is not compressed, belongs to one published segment. What it contains is
planned per stream; a changed plan has another generation, and its bundles are built again. A search
gives the same results without any of them.
"""

from __future__ import annotations
