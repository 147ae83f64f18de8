"""The kernel against C: the same statements, commits, pragmas and rows, taken in turns.

    python -m bench.kernel                 the full run; writes bench/results/kernel-<date>.json
    python -m bench.kernel --quick         a small one, for looking around; writes no result
    python -m bench.kernel --docs          the newest result into docs/performance.md

How it is done, and why each figure can be believed, stands in docs/performance.md.
"""

from __future__ import annotations
