"""What Spark's Python workers keep out of the search for garbage.

Spark collects garbage after every task and after every step of planning. In a process that has
loaded as much as a worker this takes tens of milliseconds, and finds nothing: modules, classes and
functions stay. `settle` takes them out of the search, so that a collection looks at what the last
task left, and at nothing else.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_SETTLINGS: Final = 2
"""The first work of a process loads more (adbc, folds), so there is a second time."""
_settled = 0


def settle() -> None:
    """Called where a piece of work begins, which is right after a collection of Spark's: whatever
    is there now is in use. Elsewhere than in a worker it does nothing, since a cycle that is taken
    out of the search is never freed.
    """
    global _settled  # noqa: PLW0603 - the state of the process, as the garbage collector is
    if _settled < _SETTLINGS and _in_worker():
        _settled += 1
        gc.freeze()


def _in_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
