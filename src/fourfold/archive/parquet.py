"""Lazy import of pyarrow, the only one in this package."""

from __future__ import annotations

from functools import cache
from typing import Any

from fourfold.errors import MissingDependency
from fourfold.kernel.pauses import pausing_in_calls


@cache
def arrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet.

    Their import computes for half a second; it pauses while other threads write.
    """
    try:
        with pausing_in_calls():
            import pyarrow as pa  # noqa: PLC0415 - an extra
            import pyarrow.compute  # noqa: PLC0415 - an extra
            import pyarrow.parquet as pq  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "pyarrow is not installed; it is needed to read and write Parquet segments",
            hint="pip install 'fourfold[archive]'",
        ) from None
    return pa, pq


def has_arrow() -> bool:
    """Return True if pyarrow is installed."""
    try:
        arrow()
    except MissingDependency:
        return False
    return True
