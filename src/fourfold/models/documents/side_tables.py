"""Checking what lies beside the log of a space: its blobs, its tables that nobody writes yet, and
the times of its branches.

The bytes and the size of a blob follow from its hash. Its content type and its time are remarks
that nothing vouches for, so only their form is checked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from fourfold.models.documents.faults import Fault, Part, Rule
from fourfold.models.documents.history import View

_MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def _reserved(view: View, part: Part) -> Iterator[str]:
    del part
    for table, ref in view.rows(view.sql.verify_reserved):
        sentence = f"{table} {_shown(ref)}: this table is reserved, and nothing writes it"
        yield Fault(sentence, table, {"ref": ref})


def _births(view: View, part: Part) -> Iterator[str]:
    del part
    for name, created_at, expected in view.rows(view.sql.verify_births):
        if created_at != expected:
            yield Fault(
                f"branch {_shown(name)}: was not made when its row says",
                "branch",
                {"name": name},
                expected=expected,
                found=created_at,
            )


def _blobs(view: View, part: Part) -> Iterator[str]:
    for row in view.rows(view.sql.verify_blobs, part.bounds):
        named, data, kind, size, content_type, created_at = row
        digits = hashlib.sha256(data).hexdigest()
        wrong, expected, found = None, None, None
        if digits.encode() != named or kind != "blob":
            wrong, expected, found = "its bytes are not what its hash says", named, digits
        elif size != len(data):
            wrong = f"has {len(data)} bytes, and its row says {size}"
            expected, found = str(len(data)), str(size)
        elif not _is_text(content_type) or not _MOMENT.fullmatch(created_at):
            wrong, found = "its content type or its time cannot be read", created_at
        if wrong is not None:
            yield Fault(
                f"blob {_shown(named)}: {wrong}",
                "blob_store",
                {"hash": named},
                expected=expected,
                found=found,
            )


def _metadata(view: View, part: Part) -> Iterator[str]:
    for branch, entity in view.rows(view.sql.verify_metadata, part.bounds):
        yield Fault(
            f"blob {_shown(entity.rpartition(b':')[2])}: is missing, and {_shown(entity)} "
            f"on {_shown(branch)} says what it is",
            "blob_store",
            {"hash": entity.rpartition(b":")[2]},
        )


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or bool(value.decode().isprintable())
    except UnicodeDecodeError:
        return False


def _shown(name: Any) -> str:
    """A name from the file as a message gives it, also when it is damaged."""
    return repr(name.decode(errors="backslashreplace")) if isinstance(name, bytes) else repr(name)


RULES = (
    Rule("blobs", "hash", _blobs),
    Rule("metadata of blobs", "entity", _metadata),
    Rule("reserved tables", "", _reserved),
    Rule("births of branches", "", _births),
)
