"""Limits of waiting for changes."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import KIB, MIB

TOUCH_KEYS_MAX: Final = 1_024
"""Keys of one wait."""
TOUCH_KEY_CHARS: Final = 4_096
"""Characters of an entity, a key or a value that is waited for."""
TOUCH_BACK_RECORDS: Final = 10_000
TOUCH_BACK_BYTES: Final = 16 * MIB
"""Maximum lag of a cursor for which the changes are scanned; from
further back everything counts as changed. Also what one look reads at most.
"""
TOUCH_LOOP_RECORDS: Final = 256
TOUCH_LOOP_BYTES: Final = 256 * KIB
"""What a look reads on an event loop before others have their turn."""
TOUCH_MARKS_MAX: Final = 32_768
"""Keys of which a stream's journal knows when they changed last; then it forgets the older half."""
TOUCH_JOURNALS_MAX: Final = 128
"""Streams that have one. The journal of a stream without waiters is rebuilt when it is needed."""
TOUCH_TEMPLATES_MAX: Final = 256
"""Templates of a stream that are active; and so many of the others are remembered."""
TOUCH_TEMPLATES_SWEPT: Final = 1_000
"""Templates that one sweep retires, and that it forgets."""
TOUCH_FIELDS_MAX: Final = 8
"""Fields that a template compares."""
TOUCH_NAME_CHARS: Final = 256
"""Characters of the entity of a template, and of each of its fields."""
TOUCH_TTL_MS: Final = 3_600_000
"""Idle time after which a template is retired, by default."""
TOUCH_TTL_MS_MIN: Final = 60_000
TOUCH_TTL_MS_MAX: Final = 7 * 24 * 3_600_000
TOUCH_SEEN_EVERY_MS: Final = 10_000
"""A template that is in use is written down as seen so often. After a crash it may count as unused
for so much longer than it was.
"""
TOUCH_RETIRED_KEPT_MS: Final = 24 * 3_600_000
"""How long a template that was retired is remembered."""
