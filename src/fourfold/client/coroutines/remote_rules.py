"""Schemas and profiles of the streams of a server, for coroutines."""

from __future__ import annotations

from typing import Any

from fourfold.client import rules, stream_records
from fourfold.client.coroutines.streams import AsyncStreamClient
from fourfold.models.streams.profiles import GenericProfile
from fourfold.models.streams.schemas.registry import Registry


class AsyncRemoteSchemas:
    """Schemas of the streams of a server."""

    def __init__(self, client: AsyncStreamClient) -> None:
        self._client = client
        self._address = client.settings.address

    def __repr__(self) -> str:
        return f"<Schemas at {self._address.root}>"

    async def get(self, name: str) -> Registry:
        """Return the registry of a stream; an empty one if none was set."""
        response = await self._client.send(rules.schema(self._address, name))
        return stream_records.parse_registry(response)

    async def put(self, name: str, change: Any) -> Registry:
        """Change `schema` and `lens`, `routingKey` or `search`, and return the new registry."""
        response = await self._client.send(rules.set_schema(self._address, name, change))
        return stream_records.parse_registry(response)


class AsyncRemoteProfiles:
    """Profiles of the streams of a server."""

    def __init__(self, client: AsyncStreamClient) -> None:
        self._client = client
        self._address = client.settings.address

    def __repr__(self) -> str:
        return f"<Profiles at {self._address.root}>"

    async def get(self, name: str) -> GenericProfile:
        """Return the profile of a stream; the generic one if none was set."""
        response = await self._client.send(rules.profile(self._address, name))
        return stream_records.parse_profile(response)

    async def put(self, name: str, value: Any) -> GenericProfile:
        """Set the profile of a stream from JSON, for all later appends."""
        response = await self._client.send(rules.set_profile(self._address, name, value))
        return stream_records.parse_profile(response)
