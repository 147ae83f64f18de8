"""Limits of graphs."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import MIB

INTEGER_MAX: Final = 2**63 - 1
"""The greatest integer that SQLite stores."""
GRAPH_NAME_MAX: Final = 256
"""Characters of a title, a type key, a setting's key, a label."""
ENVELOPE_OPERATIONS_MAX: Final = 10_000
"""Operations of one envelope: it is one transaction, during which no other writer runs."""
ENVELOPE_LOAD_PAGE: Final = 500
"""Envelopes that a load applies in one transaction."""
PACKAGE_BYTES_MAX: Final = 64 * MIB
"""A sync package; it is held in memory whole, because its signature covers all of it."""
FEED_PAGE_ROWS: Final = 1_000
"""Rows of a page of the change feed; a page is longer rather than cut one number in two."""
