"""Hypothesis strategies for content, and `typed_form`, which compares values with their types.

`content_values` draws every value that the canonical encoding accepts: all types, odd keys, deep
and shared structures, and numbers that other encodings confuse.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from hypothesis import strategies as st

from fourfold.content import PAYLOAD_KINDS, PayloadRef

TypedForm: TypeAlias = tuple[Any, ...]


def content_keys() -> st.SearchStrategy[str]:
    """Draw keys of a dict, often ones that look like a tag or an escaped tag."""
    return st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            ["~", "~~", "~set", "~~set", "~bytes", "~ref", "", "a", "é", "\x00", "\U0001f600"]
        ),
    )


def json_values(*, max_leaves: int = 20) -> st.SearchStrategy[Any]:
    """Draw values that plain JSON can hold without tags."""
    leaves = st.one_of(
        st.none(), st.booleans(), _integers(), _floats(), st.text(max_size=20), content_keys()
    )
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.lists(parts, max_size=5), st.dictionaries(content_keys(), parts, max_size=5)
        ),
        max_leaves=max_leaves,
    )


def content_leaves() -> st.SearchStrategy[Any]:
    """Draw values without parts."""
    return st.one_of(
        st.none(),
        st.booleans(),
        _integers(),
        _floats(),
        st.text(max_size=20),
        st.binary(max_size=20),
        aware_datetimes(),
        st.uuids(),
        st.decimals(allow_nan=False, allow_infinity=False),
        payload_refs(),
    )


def content_values(*, max_leaves: int = 20) -> st.SearchStrategy[Any]:
    """Draw any value that the canonical encoding accepts."""
    hashable = st.recursive(
        content_leaves(),
        lambda parts: st.one_of(
            st.lists(parts, max_size=4).map(tuple), st.frozensets(parts, max_size=4)
        ),
        max_leaves=8,
    )
    return st.recursive(
        st.one_of(content_leaves(), hashable),
        lambda parts: st.one_of(
            st.lists(parts, max_size=5),
            st.lists(parts, max_size=5).map(tuple),
            st.dictionaries(content_keys(), parts, max_size=5),
            st.sets(hashable, max_size=4),
        ),
        max_leaves=max_leaves,
    )


def confusable_values() -> st.SearchStrategy[Any]:
    """Draw small values that Python, JSON or a careless encoding confuses."""
    leaves: st.SearchStrategy[Any] = st.sampled_from(
        [
            *(None, False, True, 0, 1, 0.0, -0.0, 1.0, "", "0", "1", "null", "~", "~set"),
            *(b"", b"0", Decimal(0), Decimal("0.0"), Decimal("-0"), Decimal(1), Decimal("1E+1")),
            *(datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00.000000Z", UUID(int=0)),
            *(str(UUID(int=0)), frozenset(), frozenset({0}), frozenset({False}), frozenset({0.0})),
        ]
    )
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.lists(parts, max_size=2),
            st.dictionaries(st.sampled_from(["", "~set", "~~set", "~bytes"]), parts, max_size=2),
        ),
        max_leaves=4,
    )


def aware_datetimes() -> st.SearchStrategy[datetime]:
    """Draw datetimes with a fixed offset, at least a day away from the limits of the calendar."""
    offsets = st.integers(-24 * 60 + 1, 24 * 60 - 1).map(
        lambda minutes: timezone(timedelta(minutes=minutes))
    )
    return st.datetimes(
        min_value=datetime(1, 1, 3),  # noqa: DTZ001 - the zone is drawn separately
        max_value=datetime(9999, 12, 29),  # noqa: DTZ001
        timezones=st.one_of(st.just(UTC), offsets),
    )


def payload_refs() -> st.SearchStrategy[PayloadRef]:
    """Draw references to payloads."""
    return st.builds(
        PayloadRef,
        st.binary(min_size=32, max_size=32).map(lambda digest: f"sha256:{digest.hex()}"),
        st.sampled_from(sorted(PAYLOAD_KINDS)),
        st.integers(0, 2**63 - 1),
    )


def typed_form(value: object) -> TypedForm:
    """Return a form that is equal for two values only if they are the same, type by type.

    It makes the same three identifications as the canonical encoding (tuple and list, set and
    frozenset, one instant in two zones) and no others; it shares no code with it.
    """
    if isinstance(value, dict):
        return ("dict", frozenset((key, typed_form(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", *(typed_form(item) for item in value))
    if isinstance(value, (set, frozenset)):
        return ("set", frozenset(typed_form(item) for item in value))
    return _leaf_form(value)


def _leaf_form(value: object) -> TypedForm:
    if isinstance(value, float):
        return ("float", value, math.copysign(1.0, value))
    if isinstance(value, Decimal):
        return ("decimal", value.as_tuple())
    if isinstance(value, datetime):
        return ("datetime", value.astimezone(UTC))
    return (type(value).__name__, value)


def _integers() -> st.SearchStrategy[int]:
    return st.one_of(
        st.integers(),
        st.integers(-(2**70), 2**70),
        st.integers(-3, 3).map(lambda step: 2**53 + step),
        st.integers(-3, 3).map(lambda step: 10**4300 + step),
    )


def _floats() -> st.SearchStrategy[float]:
    return st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([0.0, -0.0, 1e16, 1e15, 1e-5, 1e-4, 5e-324, 1.7976931348623157e308]),
    )
