"""How a key becomes a path inside a local folder, and back.

A segment is percent-encoded but for `a-z 0-9 - _ . = , @`, and a leading dot is encoded too. A
folder's name ends with "+", a file's does not:

    streams/ab12/0001.parquet    ->  streams+/ab12+/0001.parquet
    README                       ->  %52%45%41%44%4d%45

So the object "a" (file `a`) and the object "a/b" (file `a+/b`) never collide; two keys never share
a file on a file system that folds case or normalises Unicode, since capital letters and non-ASCII
bytes are encoded; and no key reaches a name that starts with a dot, which is where a store keeps
its own files.

A segment of 80 bytes or more would not fit a file name once encoded. Its first 80 bytes become a
folder whose name ends with "%", and the rest is treated likewise inside; when no rest is left, the
file is called "%". Every key that shares those 80 bytes lies in that folder, so walking the
folders in order still gives the keys in order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fourfold import limits

_FOLDER: Final = "+"
_CUT: Final = "%"
_PIECE: Final = limits.OBJECT_FOLDER_PIECE_BYTES
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.=,@")
_ENCODED: Final = tuple(chr(b) if b in _SAFE else f"%{b:02x}" for b in range(256))
_ESCAPE: Final = re.compile(rb"%([0-9a-f]{2})")


def path_names(key: str) -> list[str]:
    """The names of the folders from the root, then that of the file."""
    *folders, last = key.encode().split(b"/")
    names = folder_names(folders)
    rest = _cut(last, names)
    names.append(_encode(rest) if rest else _CUT)
    return names


def folder_names(segments: list[bytes]) -> list[str]:
    """The names of the folders that hold every key that starts with these whole segments."""
    names: list[str] = []
    for segment in segments:
        rest = _cut(segment, names)
        names.append(_encode(rest) + _FOLDER)
    return names


def _cut(segment: bytes, names: list[str]) -> bytes:
    while len(segment) >= _PIECE:
        names.append(_encode(segment[:_PIECE]) + _CUT)
        segment = segment[_PIECE:]
    return segment


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory entry and the start of every key below it: for a file, the whole key."""

    name: str
    start: bytes
    is_folder: bool


def decode_entry(above: bytes, name: str, *, is_folder: bool) -> Entry | None:
    """The entry called `name` in the folder of all keys that start with `above`.

    None when no key maps to it: other programs' files are not objects.
    """
    if is_folder and name.endswith(_FOLDER):
        piece, tail = _decode(name[:-1]), b"/"
    elif is_folder and name.endswith(_CUT):
        piece, tail = _decode(name[:-1]), b""
        if piece is not None and len(piece) != _PIECE:
            return None
        return None if piece is None else Entry(name, above + piece, is_folder)
    elif is_folder:
        return None
    else:
        piece, tail = b"" if name == _CUT else _decode(name), b""
    if piece is None or len(piece) >= _PIECE:
        return None
    # Only the rest of a cut segment may be empty: no key has an empty segment.
    if not piece and (not above or above.endswith(b"/")):
        return None
    return Entry(name, above + piece + tail, is_folder)


def _encode(piece: bytes) -> str:
    name = "".join(_ENCODED[b] for b in piece)
    return f"%2e{name[1:]}" if name.startswith(".") else name


def _decode(name: str) -> bytes | None:
    try:
        piece = _ESCAPE.sub(lambda m: bytes((int(m[1], 16),)), name.encode("ascii"))
    except UnicodeEncodeError:
        return None
    return piece if _encode(piece) == name else None
