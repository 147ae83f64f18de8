"""How many examples a property gets: all of them in the slow suite, a third in the other suites.

`make test-slow` runs every property once more, with THOROUGH_TESTS=1 and so at full length.
"""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("THOROUGH_TESTS"))


def examples(count: int) -> int:
    """Return how many of `count` examples to run: all of them in a thorough run."""
    return count if THOROUGH else max(5, count // 3)
