"""Indexes over published segments: which keys are in which records.

An index is a set of runs, sorted files that each cover a range of offsets. New segments become runs
of level 0; runs of one level are merged into one of the next. Reads by key look into the runs, and
then only into segments that have the key.
"""

from __future__ import annotations
