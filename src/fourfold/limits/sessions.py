"""Limits of sessions and of the adapters for agents."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import KIB, MIB

SESSION_ID_CHARS_MAX: Final = 200
SESSION_KEY_CHARS_MAX: Final = 200
"""The key of a request that may be sent again."""
SESSION_EVENT_TYPE_CHARS_MAX: Final = 100
SESSION_EVENT_BYTES_MAX: Final = 8 * MIB
"""One event, without the payloads that it refers to."""
SESSION_BATCH_EVENTS_MAX: Final = 100_000
"""Events in one batch: bounds how long one transaction holds the writer."""
SESSION_PAYLOAD_ROW_BYTES_MAX: Final = 64 * KIB
"""A larger payload is a file of its own; a smaller one would waste most of its file's last block,
and cost an fsync.
"""
SESSION_PAYLOAD_TOUCH_S: Final = 60
"""How exactly the age of a payload is known: a younger one is not written again to say so."""
SESSION_GRACE_S: Final = 86_400.0
"""Grace period of unreferenced payloads, for writers that are about to refer to them."""
SESSION_SNAPSHOT_EVENTS_MIN: Final = 32
"""A head makes a snapshot of the folded state once so many events came since the last one."""
SESSION_SNAPSHOT_EVENTS_MAX: Final = 256
"""So many events make one without a head: opening a session never folds more."""
SESSION_SLOTS_MAX: Final = 4_096
"""Sessions whose state is kept in memory."""
SESSION_PAGE_EVENTS: Final = 500
"""Rows that are read at once, so that a long walk holds no snapshot open."""
SESSION_FEED_PAGE_EVENTS: Final = 256
"""Events that a feed reads ahead."""
SESSION_FEED_TRANSIENTS_MAX: Final = 1_024
"""Transient items that wait for one subscriber; what is more is dropped, and a gap says so."""
SESSION_DRAIN_S: Final = 5.0
"""How long a closing store waits for its subscribers to take what is there."""
SESSION_STEPS_MAX: Final = 25
"""Steps of one turn, if its runtime says nothing else."""
SESSION_FANOUT_MAX: Final = 50
"""Children that one call starts."""
SESSION_FANOUT_THREADS: Final = 16
"""Children that run at the same time."""
SESSION_DEPTH_MAX: Final = 16
"""Children of children: a step function that always calls itself comes to an end."""
SESSION_ERROR_CHARS_MAX: Final = 4_000
"""The message of an error, as a turn or an eval keeps it."""
SESSION_PURGE_EVENTS: Final = 2_000
"""Events of a deleted session that one transaction removes: others write in between."""
SESSION_UPKEEP_DEADLINE_S: Final = 3_600.0
ADAPTER_THREADS_MAX: Final = 256
"""Threads of LangGraph whose newest checkpoints are kept in memory."""
ADAPTER_EVENTS_MAX: Final = 1_024
"""Events of one such thread that are."""
ADAPTER_ITEM_BYTES_MAX: Final = 4_096
"""An item of a conversation that stands in its event; a larger one is a payload."""
ADAPTER_LISTS_MAX: Final = 32
"""Lists of one such thread that are."""
