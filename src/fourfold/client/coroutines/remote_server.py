"""A server itself, for coroutines: probes, its API and the keys of its signatures."""

from __future__ import annotations

import builtins
from typing import Any

from fourfold.client import responses, server
from fourfold.client.coroutines.connection import AsyncConnection
from fourfold.client.server import ServerCalls
from fourfold.wire.errors import Health, ProblemKind
from fourfold.wire.store import Probe
from fourfold.wire.subscriptions import WebhookKey, WebhookKeys


class AsyncRemoteServer:
    """A server itself: its probes, its API and the keys of its signatures. No call needs a key."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._calls = ServerCalls(connection.settings.address)

    async def health(self) -> Health:
        """Return the health of the server; `ok` is False if it cannot do its work.

        It is asked once: a server without a response raises ServerUnreachable. A key for the whole
        store shows names and messages too.
        """
        response = await self._connection.transport.send(self._calls.get_health())
        return responses.decode(response, Health, "the health")

    async def live(self) -> Probe:
        """Return whether the server handles requests: restart it if this fails.

        It is asked once: a server without a response raises ServerUnreachable.
        """
        return await self._probe("livez")

    async def ready(self) -> Probe:
        """Return whether the server is ready; `ok` is False while a database is not, or at its end.

        It is asked once: a server without a response raises ServerUnreachable.
        """
        return await self._probe("readyz")

    async def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of all routes."""
        return server.parse_document(await self._connection.send(self._calls.get_openapi()))

    async def error_kind(self, kind: str) -> ProblemKind:
        """Return what a kind of error means, and what to do.

        Raises:
            NotFound: There is no such kind.
        """
        response = await self._connection.send(self._calls.get_error_kind(kind))
        return responses.decode(response, ProblemKind, "an error kind")

    async def webhook_keys(self) -> builtins.list[WebhookKey]:
        """Return the public keys that verify the signatures of webhook calls.

        Raises:
            MissingDependency: The server cannot sign: it lacks the extra for signatures.
        """
        response = await self._connection.send(self._calls.list_webhook_keys())
        return responses.decode(response, WebhookKeys, "the webhook keys").keys

    def __repr__(self) -> str:
        return f"<Server at {self._connection.settings.address.root}>"

    async def _probe(self, name: str) -> Probe:
        response = await self._connection.transport.send(self._calls.probe(name))
        return responses.decode(response, Probe, "a probe")
