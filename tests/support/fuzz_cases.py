"""How many cases a fuzz test runs, and the counts of what came of them.

FUZZ_EXAMPLES sets the number of cases of every fuzz test. With FUZZ_FIGURES, the process writes the
counts of each target into that folder when it ends; `python -m bench.reliability fuzz` uses both.
"""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from pathlib import Path

from support.properties import examples

_cases: dict[str, Counter[str]] = {}


def fuzz_examples(count: int) -> int:
    """Return how many cases to run: FUZZ_EXAMPLES, or as many as for other properties."""
    return int(os.environ.get("FUZZ_EXAMPLES", "0")) or examples(count)


def record_case(target: str, outcome: str) -> None:
    """Count a case."""
    if not _cases and (folder := os.environ.get("FUZZ_FIGURES")):
        atexit.register(_write, Path(folder))
    _cases.setdefault(target, Counter())[outcome] += 1


def _write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}.json").write_text(json.dumps(_cases))
