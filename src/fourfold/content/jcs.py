"""Portable canonical JSON: the JSON Canonicalization Scheme of RFC 8785.

It is for hashes and signatures that others must recompute with libraries of their own. It is not
c1: JSON has one kind of number, so 1.0 is written `1`, -0.0 is written `0`, and integers beyond
2**53 - 1 are refused; keys are sorted by UTF-16 code units. What Fourfold stores and reads back
itself is encoded by `canonical`.
"""

from __future__ import annotations

from typing import Any

import rfc8785

from fourfold.errors import ContentError

_HINT = (
    "RFC 8785 takes None, bool, int up to 2**53 - 1, finite float, str, list, dict with str keys."
)


def encode_jcs(value: Any) -> bytes:
    """The bytes that RFC 8785 prescribes for `value`."""
    try:
        return rfc8785.dumps(value)
    except ValueError as error:
        # Besides its own errors the package lets those of str.encode and of giant ints through.
        raise ContentError(f"cannot encode as RFC 8785: {str(error)[:200]}", hint=_HINT) from None
    except RecursionError:
        raise ContentError(
            "cannot encode as RFC 8785: the value is nested too deeply, or contains itself",
            hint=_HINT,
        ) from None
