"""Decimal text of integers of any size, in both directions.

The interpreter refuses to convert more than 4,300 digits (a limit that a program may move), because
its own conversion takes quadratic time. Here the number is cut into halves instead, which is a good
deal faster, and no global setting is read or changed.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact

# The interpreter's limit cannot be set below 640 digits, so these are always converted.
_LEAF_DIGITS = 600
_LEAF_BITS = 8_192

# An exact context of our own: the caller's may round, or print exponents in another way.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])


def integer_text(number: int) -> str:
    """The digits of `number`, with a leading minus when it is negative."""
    try:
        return int.__repr__(number)
    except ValueError:
        digits = str(_as_decimal(abs(number), {}))
        return f"-{digits}" if number < 0 else digits


def parse_integer(text: str) -> int:
    """The integer that `text` spells; `text` holds ASCII digits after an optional minus."""
    try:
        return int(text)
    except ValueError:
        if text.startswith("-"):
            return -_from_digits(text[1:], {})
        return _from_digits(text, {})


def _as_decimal(number: int, powers: dict[int, Decimal]) -> Decimal:
    bits = number.bit_length()
    if bits <= _LEAF_BITS:
        return Decimal(number)
    half = bits >> 1
    high = _as_decimal(number >> half, powers)
    low = _as_decimal(number & ((1 << half) - 1), powers)
    return _EXACT.fma(high, _power_of_two(half, powers), low)


def _power_of_two(exponent: int, powers: dict[int, Decimal]) -> Decimal:
    if exponent <= _LEAF_BITS:
        return Decimal(1 << exponent)
    power = powers.get(exponent)
    if power is None:
        # The halves of one level differ by at most one bit, so most calls end in the cache.
        root = _power_of_two(exponent >> 1, powers)
        power = _EXACT.multiply(root, root)
        if exponent & 1:
            power = _EXACT.multiply(power, Decimal(2))
        powers[exponent] = power
    return power


def _from_digits(digits: str, powers: dict[int, int]) -> int:
    count = len(digits)
    if count <= _LEAF_DIGITS:
        return int(digits)
    low = count >> 1
    power = powers.get(low)
    if power is None:
        power = powers[low] = 10**low
    return _from_digits(digits[: count - low], powers) * power + _from_digits(
        digits[count - low :], powers
    )
