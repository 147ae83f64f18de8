"""Static files of the explorer, under names that contain a hash of their content.

A changed file has another name, so browsers may cache each of them for good.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import Final

from fourfold.errors import NotFound
from fourfold.server.request import Response

FOLDER: Final = "/static/"
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


_COMMENT: Final = re.compile(rb"/\*.*?\*/", re.DOTALL)
_SPACE: Final = re.compile(rb"\s*([{};,])\s*|(?<=:) ")


def _shorten(style: bytes) -> bytes:
    """Return a style sheet without comments, and without spaces that mean nothing.

    No rule has a string with one of the characters that lose the spaces next to them.
    """
    return _SPACE.sub(rb"\1", _COMMENT.sub(b"", style))


class Assets:
    """The static files of the package, read once."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._files: dict[str, tuple[str, bytes]] = {}
        for file in files("fourfold.explorer").joinpath("static").iterdir():
            stem, _, kind = file.name.rpartition(".")
            content = _shorten(file.read_bytes()) if kind == "css" else file.read_bytes()
            hashed = f"{stem}.{hashlib.sha256(content).hexdigest()[:12]}.{kind}"
            self._names[file.name] = hashed
            self._files[hashed] = _TYPES[kind], content

    def path(self, name: str) -> str:
        """Return the path of a file by its plain name."""
        return FOLDER + self._names[name]

    def response(self, name: str) -> Response:
        """Return a file by its name with the hash; raise NotFound for any other name."""
        if name not in self._files:
            raise NotFound(f"unknown file {name!r:.80}")
        content_type, content = self._files[name]
        return Response(
            200,
            {"content-type": content_type, "cache-control": "public, max-age=31536000, immutable"},
            content,
        )
