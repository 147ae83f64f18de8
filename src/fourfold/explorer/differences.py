"""Differences between two JSON values, element by element, and the authors of each value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from fourfold.explorer.values import escape_key

CHANGES_MAX: Final = 500
"""Changes that a page lists."""
_ABSENT: Final = object()


class ValueChange(Struct, frozen=True):
    """A value that differs: `+` added, `-` removed, `~` changed."""

    sign: str
    path: str
    before: Any = None
    after: Any = None


class Author(Struct, frozen=True):
    """A commit that set values of a document: its seq, and what it did."""

    seq: int
    op: str
    data: Any


def differences(before: Any, after: Any) -> list[ValueChange]:
    """Return what differs between two values; None stands for a document that does not exist."""
    rows = []
    for row in _compare("", _or_absent(before), _or_absent(after)):
        rows.append(row)
        if len(rows) == CHANGES_MAX:
            break
    return rows


def _or_absent(value: Any) -> Any:
    return _ABSENT if value is None else value


def _compare(path: str, before: Any, after: Any) -> Iterator[ValueChange]:
    if before is _ABSENT or after is _ABSENT:
        if after is not _ABSENT:
            yield ValueChange("+", path, None, after)
        elif before is not _ABSENT:
            yield ValueChange("-", path, before, None)
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            yield from _compare(
                f"{path}/{escape_key(key)}", before.get(key, _ABSENT), after.get(key, _ABSENT)
            )
    elif isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(path, before, after)
    elif before != after or type(before) is not type(after):
        yield ValueChange("~", path, before, after)


def _compare_lists(path: str, before: list[Any], after: list[Any]) -> Iterator[ValueChange]:
    """Compare the elements between the common start and the common end of two lists."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    for index in range(start, max(len(before), len(after)) - end):
        ours = before[index] if index < len(before) - end else _ABSENT
        theirs = after[index] if index < len(after) - end else _ABSENT
        yield from _compare(f"{path}/{index}", ours, theirs)


def find_authors(document: Any, revisions: Iterable[Author]) -> dict[str, int]:
    """Return for each value of a document the seq of the commit that last set it.

    Args:
        revisions: Commits of the document, newest first; those that set no value are passed over.
    """
    left = set(_leaves(document, ""))
    authors: dict[str, int] = {}
    for revision in revisions:
        if not left:
            break
        paths = [""]
        if revision.op == "patch":
            paths = [_changed_path(patch) for patch in revision.data or ()]
        for leaf in [leaf for leaf in left if any(_is_within(leaf, path) for path in paths)]:
            authors[leaf] = revision.seq
            left.discard(leaf)
    return authors


def _leaves(value: Any, path: str) -> Iterator[str]:
    """Yield the pointers of the values that have no parts."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}/{escape_key(key)}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}/{index}")
    else:
        yield path


def _changed_path(patch: dict[str, Any]) -> str:
    return str(patch.get("path", ""))


def _is_within(leaf: str, path: str) -> bool:
    return leaf == path or leaf.startswith(f"{path}/")
