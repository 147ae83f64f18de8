"""Strip file paths of the server from error messages that are sent to clients.

Messages name the file that they are about, for the operator of the store. Clients must not learn
where it is on the server's disk.
"""

from __future__ import annotations

import re
from typing import Final

from fourfold.errors import FourfoldError

# Values that a client sent are quoted in messages, and stay even if they look like paths.
_SUBJECT: Final = re.compile(r"\A(?:/.*?|[^\s'\":]+/[^\s'\":]*): (?=.)", re.DOTALL)
_OS_ERROR: Final = re.compile(r"(\[Errno -?\d+\] [^:']*): '[^']*'(?: -> '[^']*')?")
_ANYWHERE: Final = re.compile(r"(?<![\w.:/'\"])/[^\s'\":/`]+/[^\s'\":`]+")


def redact_paths(error: FourfoldError) -> FourfoldError:
    """Return a copy of an error without file paths."""
    redacted = error.with_message(_without_paths(error.message))
    redacted.hint = _without_paths(error.hint)
    return redacted


def _without_paths(text: str) -> str:
    if "/" not in text:
        return text
    text = _OS_ERROR.sub(r"\1", _SUBJECT.sub("", text))
    return _ANYWHERE.sub("a file of the server", text)
