"""Errors that crossed Spark, as the errors that they were.

What is raised in one of Spark's Python processes reaches the driver as a Spark exception whose text
holds a traceback. Where the last line of that names an error of Fourfold's, `typed` gives that
error back, with its kind and its exit code.
"""

from __future__ import annotations

import re

from fourfold import errors
from fourfold.errors import FourfoldError

_LINE = re.compile(r"(?:^|[\s\]])fourfold\.errors\.(\w+): (.*)", re.MULTILINE)
_CLASSES = {cls.__name__: cls for cls in errors.tree()}


def typed(error: BaseException) -> BaseException:
    """The Fourfold error inside `error`, or `error` itself."""
    if isinstance(error, FourfoldError):
        return error
    for name, message in reversed(_LINE.findall(str(error))):
        cls = _CLASSES.get(name)
        if cls is not None:
            text, _, hint = message.strip().partition(HINT_MARK)
            return cls(text, hint=hint or None)
    return error


HINT_MARK = " || hint: "


def carried(error: FourfoldError) -> FourfoldError:
    """The same error with its hint inside its message, to be raised in a process of Spark's."""
    if HINT_MARK in error.message:
        return error
    return type(error)(
        f"{error.message}{HINT_MARK}{error.hint}".replace("\n", " "),
        hint=error.hint,
        details=error.details,
    )
