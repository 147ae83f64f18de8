"""The pipeline's scratch space in a store: `.pipeline`, with staged files and locks.

Its name begins with a dot, so backups leave it out; nothing in it is needed once no job and no
query runs.
"""

from __future__ import annotations

from pathlib import Path


def pipeline_folder(root: Path) -> Path:
    return root / ".pipeline"


def staging_folder(root: Path) -> Path:
    """Where results wait until they are committed."""
    return pipeline_folder(root) / "staging"


def staging_of(root: Path, work: str) -> Path:
    """The folder of one piece of work among the staged ones."""
    return staging_folder(root) / work
