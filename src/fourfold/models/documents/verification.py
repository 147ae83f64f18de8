"""Checking a space: every commit against its digest, every derived row against the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fourfold.errors import FourfoldError
from fourfold.models.documents import reader
from fourfold.models.documents.chain import Link, chain
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.history import History, View

_UNREADABLE = (FourfoldError, ValueError, TypeError, AttributeError, RecursionError)
"""What damaged rows raise when they are read. A text that is no text is a ValueError."""


def problems(view: View, history: History) -> list[str]:
    """Everything that is wrong, in sentences: in the log itself, and in what is derived from it."""
    found: list[str] = []
    for what, check in (
        ("log", history.problems(view)),
        ("branches", _branches(view)),
        ("snapshots", _snapshots(view)),
    ):
        try:
            found.extend(check)
        except _UNREADABLE as error:
            found.append(f"the {what} cannot be checked to the end: {error}")
    return found


def _branches(view: View) -> Iterator[str]:
    """The branches are what the commits that made and ended them say."""
    expected: dict[str, list[Any]] = {"": [None, None, 0, 0, "active"]}
    for seq, name, original in view.rows(view.sql.verify_lines):
        branch = _text(name)
        asked = {} if original is None else decode(original)
        cmd = asked.get("cmd")
        if cmd == "branch/create":
            expected[asked["name"]] = [asked["parent"], asked["at"], seq, seq, "active"]
        elif cmd == "branch/delete":
            expected[asked["name"]][4] = "deleted"
        elif branch in expected:
            expected[branch][3] = seq
        else:
            yield f"commit {seq}: its branch {branch!r} was never made"
    for name, parent, *rest, status in view.rows(view.sql.verify_branches):
        branch = _text(name)
        if [_text(parent), *rest, _text(status)] != expected.pop(branch, None):
            yield f"branch {branch!r} is not what the log says"
    for branch in expected:
        yield f"branch {branch!r} is missing"


def _snapshots(view: View) -> Iterator[str]:
    """A snapshot is what replay without it gives, at a seq where its entity changed."""
    for named, of, seq, value in view.rows(view.sql.verify_snapshots):
        branch, entity = _text(named), _text(of)
        where = f"snapshot of {entity!r} on {branch!r} at seq {seq}"
        try:
            links = [Link(branch, seq), *chain(view, branch, seq)[1:]]
            found = reader.entry(view, links, entity, derived=False)
            same = found is not None and found.seq == seq and found.document is not None
            same = same and trusted(found.document) == _text(value)  # type: ignore[union-attr]
        except _UNREADABLE as error:
            yield f"{where} cannot be checked: {error}"
            continue
        if not same:
            yield f"{where} is not what the log says"


def _text(value: Any) -> Any:
    """A column as text. Damage that makes it none is shown, and then equals nothing."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
