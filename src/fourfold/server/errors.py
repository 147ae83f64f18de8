"""What went wrong, as those may hear it who only know the server's address.

Messages name the file that they are about, which helps whoever looks after the store. Where that
file lies on the server's disk is nobody else's business: it is left out of every answer.
"""

from __future__ import annotations

import re
from typing import Final

from fourfold.errors import FourfoldError

# What a client has said stands in quotes in a message, and stays; also when it looks like a path.
_SUBJECT: Final = re.compile(r"\A(?:/.*?|[^\s'\":]+/[^\s'\":]*): (?=.)", re.DOTALL)
_OF_THE_SYSTEM: Final = re.compile(r"(\[Errno -?\d+\] [^:']*): '[^']*'(?: -> '[^']*')?")
_ANYWHERE: Final = re.compile(r"(?<![\w.:/'\"])/[^\s'\":/`]+/[^\s'\":`]+")


def redact_paths(error: FourfoldError) -> FourfoldError:
    """The same error without the paths of files."""
    found = error.with_message(_without_paths(error.message))
    found.hint = _without_paths(error.hint)
    return found


def _without_paths(text: str) -> str:
    if "/" not in text:
        return text
    text = _OF_THE_SYSTEM.sub(r"\1", _SUBJECT.sub("", text))
    return _ANYWHERE.sub("a file of the server", text)
