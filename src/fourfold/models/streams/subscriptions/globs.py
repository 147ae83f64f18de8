"""Patterns of stream names: `*` is one part between slashes, `**` any number of them. Pure."""

from __future__ import annotations

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.names import stored


def check_pattern(given: object) -> str:
    """A pattern that can match a name, without slashes at its ends."""
    if not isinstance(given, str):
        raise InvalidInput(f"a pattern is text, not {given!r:.80}")
    pattern = stored(given).strip("/")
    if not 0 < len(pattern) <= limits.SUBSCRIPTION_PATTERN_MAX or not pattern.isprintable():
        raise InvalidInput(
            f"a pattern is printable text of 1 to {limits.SUBSCRIPTION_PATTERN_MAX} characters"
        )
    parts = pattern.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise InvalidInput(f"{pattern!r:.80} matches no name of a stream")
    if any("**" in part and part != "**" for part in parts):
        raise InvalidInput(
            f"{pattern!r:.80} has ** inside of a part", hint="Write ** alone between slashes."
        )
    return pattern


def matches(pattern: str, name: str) -> bool:
    """Whether a name is one of those that a pattern means; quick for every pattern and name."""
    wanted, given = pattern.split("/"), name.split("/")
    at = here = 0
    # Where the last ** stood, and how far it reached: when the rest fails it reaches further.
    star, reached = -1, 0
    while here < len(given):
        if at < len(wanted) and wanted[at] == "**":
            star, reached = at, here
            at += 1
        elif at < len(wanted) and _part_matches(wanted[at], given[here]):
            at += 1
            here += 1
        elif star >= 0:
            reached += 1
            at, here = star + 1, reached
        else:
            return False
    return all(part == "**" for part in wanted[at:])


def literal_prefix(pattern: str) -> str:
    """What every name that matches begins with."""
    kept: list[str] = []
    for part in pattern.split("/"):
        if part == "**":
            # `a/**` means `a` too, so the slash before it is not certain.
            return "/".join(kept)
        before, star, _ = part.partition("*")
        if star:
            return "/".join([*kept, before])
        kept.append(part)
    return "/".join(kept)


def _part_matches(pattern: str, part: str) -> bool:
    first, *between = pattern.split("*")
    if not between:
        return first == part
    last = between.pop()
    if len(part) < len(first) + len(last) or not part.startswith(first) or not part.endswith(last):
        return False
    at, end = len(first), len(part) - len(last)
    for piece in between:
        at = part.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True
