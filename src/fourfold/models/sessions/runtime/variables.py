"""The variables of a session: a dict whose large values are stored once and read when used.

A snapshot is `{"fourfold_vars": 1, "vars": {name: {"value": v} or {"ref": payload}}}`: each value
beyond 512 canonical bytes is a separate payload. So a step that changes one variable writes that
one, however large the others are, and equal states are equal snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from fourfold import limits
from fourfold.content import PayloadRef, content_id, encode
from fourfold.errors import ContentError, CorruptData, InvalidInput
from fourfold.models.sessions.runtime.ports import Port, SessionStore

_VERSION = "fourfold_vars"


class Vars(MutableMapping[str, Any]):
    """Names and values. A value that was changed in place is noticed when a snapshot is made."""

    def __init__(
        self, entries: dict[str, dict[str, Any]], read: Callable[[PayloadRef], Any]
    ) -> None:
        self._entries = dict(entries)
        self._live: dict[str, Any] = {}
        self._read = read

    def __getitem__(self, name: str) -> Any:
        if name not in self._live:
            entry = self._entries[name]
            self._live[name] = entry["value"] if "value" in entry else self._read(entry["ref"])
        return self._live[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if type(name) is not str:
            raise InvalidInput(f"a variable has a name, not {repr(name)[:100]}")
        self._live[name] = value

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._entries.pop(name, None)
        self._live.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._live or name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._entries, *self._live}))

    def __len__(self) -> int:
        return len({*self._entries, *self._live})

    def __repr__(self) -> str:
        return f"<Vars {', '.join(self)}>"

    async def snapshot(self, port: Port) -> dict[str, Any]:
        """Return the variables as they are now; large values are stored when this returns."""
        for name, value in self._live.items():
            try:
                data = encode(value)
            except ContentError as error:
                raise error.with_message(f"variable {name!r}: {error.message}") from error
            entry = self._entries.get(name)
            if len(data) <= limits.PAYLOAD_INLINE_BYTES_MAX:
                self._entries[name] = {"value": value}
            elif entry is None or "ref" not in entry or entry["ref"].id != content_id(data):
                self._entries[name] = {"ref": await port.intern(value, "vars")}
        return {_VERSION: 1, "vars": dict(self._entries)}


def restored(sessions: SessionStore, vars_ref: Any) -> Vars:
    """Return the variables of a snapshot, or of a dict of another program in `vars_ref`."""
    return Vars(entries_of(sessions, vars_ref), sessions.read_payload)


def entries_of(sessions: SessionStore, vars_ref: Any) -> dict[str, dict[str, Any]]:
    """Return the stored entries of variables, by name; raise CorruptData if they are no dict."""
    payload = sessions.read_payload(vars_ref)
    if payload is None:
        return {}
    if not isinstance(payload, dict):
        raise CorruptData(
            f"the variables of the session are {type(payload).__name__}, not a dict",
            hint="Publish a head whose vars_ref is a dict.",
        )
    if payload.keys() == {_VERSION, "vars"}:
        entries: dict[str, dict[str, Any]] = payload["vars"]
        return entries
    return {name: {"value": value} for name, value in payload.items()}
