"""Sessions beside what they cost at least, and beside others that keep conversations.

    python -m bench.sessions             the full run; writes bench/results/sessions-<date>.json
    python -m bench.sessions --quick     a small one, for looking around; writes no result
    python -m bench.sessions --only A,D  some workloads
    python -m bench.sessions --docs      the newest result into docs/performance.md

The peers come from PyPI and are optional; a line whose peer is not installed says so:
`pip install langgraph langgraph-checkpoint-sqlite openai-agents eventsourcing`.
"""

from __future__ import annotations
