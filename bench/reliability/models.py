"""Appends and reads of all four models over HTTP, in one form."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from bench.reliability.history import Entry
from bench.reliability.server import Connection, Response

_PAGE = 1000


class Refused(Exception):
    """The server refused a request, and nothing of it was done."""


class Uncertain(Exception):
    """The server does not know whether it did what was requested."""


def expect(response: Response) -> Response:
    """Raise Refused or Uncertain unless the request succeeded."""
    if response.status < 400:
        return response
    uncertain = b"commit_uncertain" in response.body or response.status == 500
    raise (Uncertain if uncertain else Refused)(f"{response.status} {response.body[:300]!r}")


class Model(ABC):
    """A log of one model: values are appended, and read in their order."""

    name: str
    times_grow = False

    @abstractmethod
    def create(self, connection: Connection) -> None:
        """Create the log."""

    @abstractmethod
    def append(
        self,
        connection: Connection,
        values: Sequence[str],
        timeout_s: float,
        repeat: tuple[str, int] | None,
    ) -> int | None:
        """Append values together; return the position of the first one.

        With `repeat`, a client and a number, sending the same again has no further effect.
        """

    @abstractmethod
    def page(self, connection: Connection, after: int | None) -> list[Entry]:
        """Read the next entries after a position; empty at the end."""

    def tail(self, connection: Connection, after: int | None) -> list[Entry]:
        """Read all entries after a position."""
        entries: list[Entry] = []
        while page := self.page(connection, entries[-1].position if entries else after):
            entries += page
        return entries


class Documents(Model):
    """Commits of a space, each with one document per value."""

    name = "documents"
    times_grow = True
    _space = "/v1/spaces/did:web:history"

    def create(self, connection: Connection) -> None:
        expect(connection.request("PUT", self._space))

    def append(
        self,
        connection: Connection,
        values: Sequence[str],
        timeout_s: float,
        repeat: tuple[str, int] | None,
    ) -> int | None:
        operations = [
            {"op": "set", "id": f"entity-{number}", "value": {"value": value}}
            for number, value in enumerate(values)
        ]
        response = connection.request(
            "POST",
            f"{self._space}/transact",
            {"operations": operations},
            _idempotency(repeat),
            timeout_s=timeout_s,
        )
        return int(expect(response).json()["seq"])

    def page(self, connection: Connection, after: int | None) -> list[Entry]:
        query = urlencode({"limit": _PAGE, "after": after or 0})
        response = expect(connection.request("GET", f"{self._space}/log?{query}"))
        return [
            Entry(commit["seq"], operation["value"]["value"], commit["created_at"])
            for commit in response.json()["items"]
            for operation in commit["original"]["operations"]
        ]


class Streams(Model):
    """Records of a stream."""

    name = "streams"
    _stream = "/v1/stream/history"

    def create(self, connection: Connection) -> None:
        expect(connection.request("PUT", self._stream))

    def append(
        self,
        connection: Connection,
        values: Sequence[str],
        timeout_s: float,
        repeat: tuple[str, int] | None,
    ) -> int | None:
        headers = {}
        if repeat is not None:
            client, number = repeat
            headers = {
                "Producer-Id": client,
                "Producer-Epoch": "0",
                "Producer-Seq": str(number),
            }
        response = expect(
            connection.request("POST", self._stream, list(values), headers, timeout_s=timeout_s)
        )
        if repeat is not None and response.status == 204:
            return None
        return _offset(response) - len(values)

    def page(self, connection: Connection, after: int | None) -> list[Entry]:
        offset = "-1" if after is None else f"{0:016d}_{after + 1:016d}"
        query = urlencode({"offset": offset, "format": "records"})
        response = expect(connection.request("GET", f"{self._stream}?{query}"))
        return [
            Entry(int(record["offset"].rpartition("_")[2]), record["text"].strip('"'))
            for record in response.json()
        ]


class Graphs(Model):
    """Attributes in the log of an app, one per value."""

    name = "graphs"
    _app = "/v1/apps/history"

    def create(self, connection: Connection) -> None:
        expect(connection.request("PUT", self._app))
        for kind in ("parent", "attr"):
            body = {"kind": kind, "type_key": kind}
            expect(connection.request("POST", f"{self._app}/types", body))

    def append(
        self,
        connection: Connection,
        values: Sequence[str],
        timeout_s: float,
        repeat: tuple[str, int] | None,
    ) -> int | None:
        operations: list[dict[str, object]] = [{"op": "parent_create", "type_key": "parent"}]
        for value in values:
            payload = {"parent_id": {"$op": 0}, "value": value}
            operations.append({"op": "attr_create", "type_key": "attr", "payload": payload})
        response = connection.request(
            "POST",
            f"{self._app}/envelopes",
            {"owner": 1, "operations": operations},
            _idempotency(repeat),
            timeout_s=timeout_s,
        )
        return int(expect(response).json()["seq"])

    def page(self, connection: Connection, after: int | None) -> list[Entry]:
        start = after or 0
        seq = expect(connection.request("GET", self._app)).json()["seq"]
        if seq <= start:
            return []
        query = urlencode({"kind": "attr", "after": start, "until": seq})
        feed = expect(connection.request("GET", f"{self._app}/feed?{query}"))
        return [
            Entry(changes["seq"], change["object"]["value_text"])
            for changes in _events(feed, "changes")
            for change in changes["changes"]
        ]


class Sessions(Model):
    """Events of a session."""

    name = "sessions"
    _session = "history"

    def create(self, connection: Connection) -> None:
        body = {"model": "any"}
        expect(connection.request("PUT", f"/v1/session/{self._session}", body))

    def append(
        self,
        connection: Connection,
        values: Sequence[str],
        timeout_s: float,
        repeat: tuple[str, int] | None,
    ) -> int | None:
        response = connection.request(
            "POST",
            f"/v1/sessions/events/{self._session}",
            {"events": [{"type": "history/value", "value": value} for value in values]},
            _idempotency(repeat),
            timeout_s=timeout_s,
        )
        return int(expect(response).json()["events"][0]["id"])

    def page(self, connection: Connection, after: int | None) -> list[Entry]:
        query = urlencode({"limit": _PAGE, "after": 1 if after is None else after})
        path = f"/v1/sessions/events/{self._session}?{query}"
        return [
            Entry(event["id"], event["data"]["value"])
            for event in expect(connection.request("GET", path)).json()["items"]
        ]


MODELS: tuple[type[Model], ...] = (Documents, Streams, Graphs, Sessions)


def _idempotency(repeat: tuple[str, int] | None) -> dict[str, str]:
    return {} if repeat is None else {"Idempotency-Key": f"{repeat[0]}-{repeat[1]}"}


def _events(feed: Response, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the data of the events of a feed that has ended."""
    for event in feed.body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in event.splitlines() if ": " in line)
        if fields.get("event") == kind:
            yield json.loads(fields["data"])


def _offset(response: Response) -> int:
    return int(response.headers["stream-next-offset"].rpartition("_")[2])
