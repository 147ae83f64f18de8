"""Search and aggregates over the messages of a stream: the log, segments, and their companions.

A search reads the newest records first, within a budget of bytes and time. Of segments it reads
companions if there are any, and records otherwise; the results are the same.
"""

from __future__ import annotations
