"""What `fourfold serve` does beside other servers of the same protocol, and beside Redis.

One load generator, all servers on one machine in one run, in turns. `python -m bench.streams`.
"""

from __future__ import annotations
