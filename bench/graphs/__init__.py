"""Graphs against what they cost at least: the same rows into the same tables, taken in turns.

    python -m bench.graphs              the full run; writes bench/results/graphs-<date>.json
    python -m bench.graphs --quick      a small one, for looking around; writes no result
    python -m bench.graphs --only A,C   some workloads
    python -m bench.graphs --largest    workload D up to 10,000,000 rows; a result of its own
    python -m bench.graphs --docs       the newest results into docs/performance.md

How it is done, and why each figure can be believed, stands in docs/performance.md.
"""

from __future__ import annotations
