# Generated from ../coroutines/remote_server.py by `make generate`: change that file.
"""A server itself, for threads: probes, its API and the keys of its signatures."""

from __future__ import annotations

import builtins
from typing import Any

from fourfold.client import responses, server
from fourfold.client.server import ServerCalls
from fourfold.client.threads.connection import Connection
from fourfold.wire.errors import Health, ProblemKind
from fourfold.wire.store import Probe
from fourfold.wire.subscriptions import WebhookKey, WebhookKeys


class RemoteServer:
    """A server itself: its probes, its API and the keys of its signatures. No call needs a key."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._calls = ServerCalls(connection.settings.address)

    def health(self) -> Health:
        """Return the health of the server; `ok` is False if it cannot do its work.

        It is asked once: a server without a response raises ServerUnreachable. A key for the whole
        store shows names and messages too.
        """
        response = self._connection.transport.send(self._calls.get_health())
        return responses.decode(response, Health, "the health")

    def live(self) -> Probe:
        """Return whether the server handles requests: restart it if this fails.

        It is asked once: a server without a response raises ServerUnreachable.
        """
        return self._probe("livez")

    def ready(self) -> Probe:
        """Return whether the server is ready; `ok` is False while a database is not, or at its end.

        It is asked once: a server without a response raises ServerUnreachable.
        """
        return self._probe("readyz")

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of all routes."""
        return server.parse_document(self._connection.send(self._calls.get_openapi()))

    def error_kind(self, kind: str) -> ProblemKind:
        """Return what a kind of error means, and what to do.

        Raises:
            NotFound: There is no such kind.
        """
        response = self._connection.send(self._calls.get_error_kind(kind))
        return responses.decode(response, ProblemKind, "an error kind")

    def webhook_keys(self) -> builtins.list[WebhookKey]:
        """Return the public keys that verify the signatures of webhook calls.

        Raises:
            MissingDependency: The server cannot sign: it lacks the extra for signatures.
        """
        response = self._connection.send(self._calls.list_webhook_keys())
        return responses.decode(response, WebhookKeys, "the webhook keys").keys

    def __repr__(self) -> str:
        return f"<Server at {self._connection.settings.address.root}>"

    def _probe(self, name: str) -> Probe:
        response = self._connection.transport.send(self._calls.probe(name))
        return responses.decode(response, Probe, "a probe")
