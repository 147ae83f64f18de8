"""A transcript as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Final

from fourfold.cli.output import Output
from fourfold.models.sessions.transcript import TranscriptEntry
from fourfold.models.sessions.transcript_formats import to_text

_TEXT_CHARS: Final = 2_000
"""Characters of one entry that are printed without `--full`."""
_BODY_INDENT: Final = 8


def print_transcript(out: Output, entries: Iterable[TranscriptEntry], *, full: bool) -> None:
    """Print entries as text: a line with event, time and title, then the content, indented.

    The content is wrapped to the width of a terminal, and shortened unless `full` is True.
    """
    for entry in entries:
        out.line(f"{entry.event:>6}  {entry.at}  {entry.title}", "cyan")
        text = to_text(entry.content)
        for line in _wrapped(text if full else _shortened(text), out.width):
            out.line(" " * _BODY_INDENT + line if line else "")


def _shortened(text: str) -> str:
    left = len(text) - _TEXT_CHARS
    return text if left <= 0 else f"{text[:_TEXT_CHARS]}\n[{left} more characters: --full]"


def _wrapped(text: str, width: int | None) -> list[str]:
    lines = text.splitlines()
    if width is None:
        return lines
    room = max(width - _BODY_INDENT, 20)
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, room, replace_whitespace=False, break_on_hyphens=False)
        or [""]
    ]
