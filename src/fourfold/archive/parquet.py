"""The one place that imports pyarrow, when it is first needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from fourfold.errors import MissingDependency


@cache
def arrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.compute  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency(
            "segments are Parquet files, for which pyarrow is needed; it is not installed",
            hint="pip install 'fourfold[archive]'",
        ) from None
    return pa, pq
