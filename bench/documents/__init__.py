"""Documents against what they cost at least: the same rows, the same pragmas, taken in turns.

    python -m bench.documents             the full run; writes bench/results/documents-<date>.json
    python -m bench.documents --quick     a small one, for looking around; writes no result
    python -m bench.documents --only A,D  some workloads
    python -m bench.documents --docs      the newest result into docs/performance.md

How it is done, and why each figure can be believed, stands in docs/performance.md.
"""

from __future__ import annotations
