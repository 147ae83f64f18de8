"""Requests about the server itself: its probes, its API and the keys of its signatures."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from fourfold.client.requests import STREAMS, Address, Call
from fourfold.client.responses import Response
from fourfold.errors import BadAnswer

UNHEALTHY = (503,)
"""Status of a probe that fails; its body is the result."""


class ServerCalls:
    """The requests about a server."""

    def __init__(self, address: Address) -> None:
        self._root = address.root

    def get_health(self) -> Call:
        """Build the request for the health."""
        url = f"{self._root}/health"
        return Call("GET", url, "get the health", {}, {}, accepted=UNHEALTHY)

    def probe(self, name: str) -> Call:
        """Build the request of a probe: `livez` or `readyz`."""
        url = f"{self._root}/{name}"
        return Call("GET", url, f"probe {name}", {}, {}, accepted=UNHEALTHY)

    def get_openapi(self) -> Call:
        """Build the request for the description of the API."""
        return Call("GET", f"{self._root}/openapi.json", "get the OpenAPI document", {}, {})

    def get_error_kind(self, kind: str) -> Call:
        """Build the request for the meaning of a kind of error."""
        url = f"{self._root}/problems/{quote(kind, safe='')}"
        return Call("GET", url, f"get the error kind {kind!r:.80}", {}, {})

    def list_webhook_keys(self) -> Call:
        """Build the request for the public keys of webhook signatures."""
        url = f"{self._root}{STREAMS}/__ds/jwks.json"
        return Call("GET", url, "list the webhook keys", {}, {})


def parse_document(response: Response) -> dict[str, Any]:
    """Return the JSON object of a response."""
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BadAnswer(f"get the OpenAPI document: unexpected response: {error}") from None
