"""Addresses of pages, and the time at which a visitor looks at the store.

`at` goes along with every link. A time applies to the whole store; a seq applies to one space, and
the id of an event to one session, so links that leave it drop it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from fourfold.errors import InvalidInput

LOG_PARAMETERS: Final = ("did", "sid", "app")
"""Parameters that name a log: a space, a session, or an app."""


class Links:
    """Build the addresses of pages, for one request."""

    def __init__(self, root: str, at: str = "", log: str = "") -> None:
        """Build links of a page about one log: a space, a session or an app."""
        self.root = quote(root)
        """Path where the server is mounted, quoted."""
        self._at = at
        self._log = log

    def __call__(self, path: str, **query: object) -> str:
        """Return the address of a page; parameters that are None or empty are left out.

        The time of the visit is added unless `at` is passed; `at=None` leaves it out.
        """
        if "at" not in query and self._keeps_at(query):
            query["at"] = self._at
        pairs = [(name, value) for name, value in query.items() if value not in {None, ""}]
        return f"{self.root}{quote(path)}{'?' if pairs else ''}{urlencode(pairs)}"

    def api(self, path: str) -> str:
        """Return the address of a path of the API."""
        return f"{self.root}{quote(path, safe='/:')}"

    def _keeps_at(self, query: dict[str, object]) -> bool:
        if not self._at.isdecimal():
            return True
        return self._log in {query.get(name) for name in LOG_PARAMETERS}


def parse_at(text: str) -> int | datetime | None:
    """Parse the parameter `at`: a seq or a time; None if it is empty.

    A time without a zone is UTC.

    Raises:
        InvalidInput: it is neither.
    """
    if not text:
        return None
    if text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"at: must be a seq, a time or a restore point, got {text!r:.80}",
            hint="Write a time such as 2026-11-15T18:00, or the id of a restore point.",
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def format_at(at: int | datetime | None) -> str:
    """Return the parameter `at` in its one form: a seq, or a time in UTC."""
    if isinstance(at, datetime):
        return at.isoformat().replace("+00:00", "Z")
    return "" if at is None else str(at)
