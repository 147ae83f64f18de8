"""Indexes over published segments: they map keys to records.

An index is a set of runs, sorted files that each cover a range of offsets. New segments become runs
of level 0; runs of one level are merged into one of the next. A read by key looks up the runs, and
then reads only segments that contain the key.
"""

from __future__ import annotations
