"""Limits of schemas of streams: lenses, proofs, and the messages that are held against them."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import MIB

LENS_OPS_MAX: Final = 256
"""Ops of a lens, those within others counted too."""
LENS_DEPTH_MAX: Final = 16
"""How deep ops may lie within ops."""
LENS_NUMBER_CHARS_MAX: Final = 300
"""Characters of text that a lens makes a number of; every longer one stays text."""
SCHEMA_MESSAGE_DEPTH_MAX: Final = 200
"""How deep arrays and objects of a message may lie within each other: what is let in can be read by
every library on the way, whatever else is on the stack.
"""
SCHEMA_PATTERN_BYTES: Final = 1 * MIB
SCHEMA_PATTERN_STATES_BYTES: Final = 2 * MIB
"""Memory of one regular expression of a schema, compiled, and of the states met while it runs."""
SCHEMA_PARTS_MAX: Final = 20_000
SCHEMA_IN_PLACE_MAX: Final = 500
"""Schemas within a schema, in all and for one value, once references are followed: a validator does
that each time it meets one.
"""
SCHEMA_CHECKS_MAX: Final = 10_000_000
"""Values of an append times schemas that each of them is checked against, at most: 0.2 to 2 s."""
SCHEMA_INLINE_CHECKS: Final = 20_000
"""The same, up to which an append is validated in its transaction: at most a few milliseconds."""
SCHEMA_INLINE_PARTS: Final = 200
"""Parts of a schema up to which it may be compiled in a transaction, which takes milliseconds."""
SCHEMA_THREADS: Final = 2
"""Threads that validate the appends of coroutines before their transactions."""
SCHEMA_REASON_WAYS: Final = 8
"""Depth of a message times ways in which its schema leads back to itself, up to which the reason
why it is not valid is searched for: the search doubles with each of them.
"""
SCHEMA_REASON_CHARS: Final = 300
"""Characters of the reason why a message does not fit, or of a schema that is quoted."""
SCHEMAS_COMPILED_MAX: Final = 256
"""Schemas that are kept compiled."""
PROOF_STEPS_MAX: Final = 1_000
PROOF_DEPTH_MAX: Final = 64
"""Parts of two schemas that a proof compares one by one, and how deep they may lie."""
PROOF_LIBRARY_DEPTH_MAX: Final = 40
"""How deep a part may be that is given to the library whole: deeper ones keep it busy for ever."""
PROOF_LIBRARY_PARTS_MAX: Final = 5_000
"""Parts that it may have, once its references are followed."""
PROOF_GAPS_SHOWN: Final = 3
"""Places that are named when a lens is refused."""
