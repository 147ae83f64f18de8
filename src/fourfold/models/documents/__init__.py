"""Documents: JSON objects with their whole history, on branches that fork and merge.

`pointer`, `patch`, `fold`, `overlap`, `difference` and `field_merge` are pure: the same arguments
give the same answer on every machine, whether one reader or a cluster of them asks.
"""

from __future__ import annotations
