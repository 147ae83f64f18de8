"""The messages of a JSON array out of bytes, in whatever pieces they come. Pure.

A message is given as the bytes that came. Only what belongs to the message that is not complete yet
is held, so an answer of any size needs the memory of its largest message.
"""

from __future__ import annotations

import re

from fourfold.errors import BadAnswer

# Text is skipped whole; the second kind is text that is not complete yet.
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_TOKEN = re.compile(_TEXT + rb'"|(' + _TEXT + rb"\\?\Z)|[\[\]{},]", re.DOTALL)
_SPACE = b" \t\r\n"


class MessageSplitter:
    """Give it the bytes of one array, get its elements as they become complete."""

    def __init__(self) -> None:
        self._held = b""
        self._at = 0
        self._depth = 0
        self.done = False

    def feed(self, piece: bytes) -> list[bytes]:
        text = self._held + piece
        found: list[bytes] = []
        start = 0
        at = self._at
        while not self.done:
            token = _TOKEN.search(text, at)
            if token is None:
                at = len(text)
                break
            if token[1] is not None:
                at = token.start()
                break
            at = token.end()
            start = self._take(text, token, start, found)
        self._held, self._at = text[start:], at - start
        if self.done and self._held.strip(_SPACE):
            raise BadAnswer("something follows the array of a JSON stream")
        return found

    def _take(self, text: bytes, token: re.Match[bytes], start: int, found: list[bytes]) -> int:
        """Note one token; where the message that is not complete yet begins."""
        mark = token[0]
        if mark in (b"[", b"{"):
            self._depth += 1
            if self._depth > 1:
                return start
            if mark == b"{" or text[start : token.start()].strip(_SPACE):
                raise BadAnswer("a part of a JSON stream is not an array")
            return token.end()
        if mark in (b"]", b"}"):
            self._depth -= 1
            self.done = self._depth <= 0
        elif mark != b"," or self._depth != 1:
            return start
        if (mark == b"," and self._depth == 1) or self.done:
            message = text[start : token.start()].strip(_SPACE)
            if message or not self.done:
                found.append(message)
            return token.end()
        return start

    def end(self) -> None:
        """No more bytes come."""
        if not self.done:
            raise BadAnswer("the array of a JSON stream is not complete")
