"""The pipeline's scratch folder in a store: `.pipeline`, with staged files and locks.

Its name begins with a dot, so backups skip it; nothing in it is needed once no job and no query
runs.
"""

from __future__ import annotations

from pathlib import Path


def staging_folder(root: Path) -> Path:
    """Return the folder where results are staged until they are committed."""
    # Spark's tasks import this module, and need no SQLite, which a store imports.
    from fourfold.store.layout import pipeline_folder  # noqa: PLC0415

    return pipeline_folder(root) / "staging"


def staging_of(root: Path, work: str) -> Path:
    """Return the staging folder of one run or query."""
    return staging_folder(root) / work
