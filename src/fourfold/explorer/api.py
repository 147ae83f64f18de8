"""The HTTP API, called inside the process: the only way by which pages read and change a store.

A call passes the same checks as a request over the network, with the key of the visitor.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from fourfold.errors import Forbidden
from fourfold.server.request import Headers, Request, Response
from fourfold.server.streams import StreamProtocol

T = TypeVar("T")
_IDENTITY: Final = ("authorization", "cookie", "host", "origin", "sec-fetch-site")
"""Headers that decide what a visitor may do."""


class Api:
    """The API on behalf of one visitor."""

    def __init__(self, protocol: StreamProtocol, request: Request) -> None:
        self._protocol = protocol
        self._request = request
        self._headers: Headers = {
            name: request.headers[name] for name in _IDENTITY if name in request.headers
        }

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Headers | None = None,
        /,
        **query: object,
    ) -> Response:
        """Send a request; parameters that are None or empty are left out, lists are repeated.

        Raises:
            FourfoldError: any error that the API responds with.
        """
        response = await self._send(method, path, body, headers, query)
        if response.pieces is not None:
            response.body = b"".join([piece async for piece in response.pieces])
        return response

    async def iter_events(
        self, path: str, /, **query: object
    ) -> AsyncGenerator[tuple[str, bytes], None]:
        """Yield name and data of the events of a feed, until it ends; comments are left out."""
        response = await self._send("GET", path, None, None, query)
        assert response.pieces is not None
        async for piece in response.pieces:
            for block in piece.split(b"\n\n"):
                fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
                if b"event" in fields:
                    yield fields[b"event"].decode(), fields[b"data"]

    async def _send(
        self,
        method: str,
        path: str,
        body: object,
        headers: Headers | None,
        query: dict[str, object],
    ) -> Response:
        pairs = [
            (name, value)
            for name, values in query.items()
            for value in (values if isinstance(values, list) else [values])
            if value not in {None, ""}
        ]
        request = Request(
            method,
            path,
            urlencode(pairs),
            {**self._headers, **(headers or {})},
            b"" if body is None else msgspec.json.encode(body),
            self._request.scheme,
            self._request.root,
            self._request.client,
        )
        return await self._protocol.run(self._protocol.admit(request), request)

    async def get(self, path: str, kind: type[T], /, **query: object) -> T:
        """Return the body of a response to GET as a value of `kind`."""
        return self.decode(await self.call("GET", path, **query), kind)

    async def post(self, path: str, kind: type[T], body: object, /) -> T:
        """Return the body of a response to POST, of a request that only reads."""
        return self.decode(await self.call("POST", path, body), kind)

    @staticmethod
    def decode(response: Response, kind: type[T]) -> T:
        """Return the body of a response as a value of `kind`."""
        return msgspec.json.decode(response.body, type=kind)

    async def find(self, path: str, kind: type[T], /, **query: object) -> T | None:
        """Return the body of a response to GET, or None if the key does not allow it."""
        try:
            return await self.get(path, kind, **query)
        except Forbidden:
            return None
