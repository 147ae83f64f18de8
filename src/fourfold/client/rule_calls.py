"""The calls of both clients on the rules of a stream: schemas, profiles, and waiting for changes.

    client.set_schema("orders", {"type": "object", "required": ["id"]})
    client.set_profile("todos", "state-protocol", touch=True)
    told = client.touch_wait("todos", [Row("todo", "7")], timeout=60)

They are of Fourfold's own server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from fourfold.client import rules
from fourfold.client.answers import Answer
from fourfold.client.calls import Call
from fourfold.client.rules import LiveTemplate, SchemaRegistry, StreamProfile, TouchFacts
from fourfold.client.transport import Settings
from fourfold.client.waiting import TouchWaiting
from fourfold.models.streams import declarations
from fourfold.models.streams.declarations import UNCHANGED, FieldsGiven, KeyGiven
from fourfold.models.streams.touch.records import Key, Template, Touched


class RuleCalls(ABC):
    """For threads."""

    settings: Settings

    @abstractmethod
    def send(self, call: Call) -> Answer:
        """One request, repeated while that is safe."""

    def schema(self, name: str) -> SchemaRegistry:
        """The schemas of a stream, and what else is declared of its messages."""
        return rules.registry_of(self.send(rules.schema(self.settings.address, name)))

    def set_schema(
        self,
        name: str,
        schema: Any = UNCHANGED,
        *,
        lens: Any = None,
        routing_key: KeyGiven = UNCHANGED,
        search: FieldsGiven = UNCHANGED,
    ) -> SchemaRegistry:
        """A new version of the schema of a stream, with a lens that brings messages of the version
        before into it; and where messages have their routing key, and by which fields they are
        found. What is not given stays as it is. A schema is not sent again when no answer comes:
        that raises OutcomeUnknown.
        """
        change = declarations.registry_change(schema, lens, routing_key, search)
        call = rules.set_schema(self.settings.address, name, change)
        return rules.registry_of(self.send(call))

    def profile(self, name: str) -> StreamProfile:
        """What a stream is used as."""
        return rules.profile_of(self.send(rules.profile(self.settings.address, name)))

    def set_profile(
        self,
        name: str,
        kind: str,
        *,
        touch: bool | None = None,
        redact: Sequence[str] | None = None,
        routing_key: Sequence[str] | None = None,
    ) -> StreamProfile:
        """Use a stream as something: "generic", "state-protocol" (with `touch`), or "evlog" (with
        `redact` and `routing_key`). What is not given is as it is by default.
        """
        given = declarations.profile(kind, touch, redact, routing_key)
        call = rules.set_profile(self.settings.address, name, given)
        return rules.profile_of(self.send(call))

    def touch(self, name: str) -> TouchFacts:
        """Where a stream is for those who wait for changes of it, and its live templates."""
        return rules.touch_of(self.send(rules.touch(self.settings.address, name)))

    def touch_wait(
        self,
        name: str,
        keys: Sequence[Key],
        *,
        cursor: str | None = None,
        timeout: float | None = None,
    ) -> Touched:
        """Wait until one of the keys is touched by a change behind the cursor, from now on if there
        is none; at most `timeout` seconds, for ever if not given. It goes on over the limits of the
        server and over connections that break, and misses nothing.
        """
        waiting = TouchWaiting(self.settings.address, name, keys, cursor, timeout)
        while True:
            told = waiting.take(self.send(waiting.call()))
            if told is not None:
                return told

    def touch_templates(self, name: str, wanted: Sequence[Template]) -> tuple[LiveTemplate, ...]:
        """Make live templates active, so that somebody can wait with them; in the order given."""
        call = rules.touch_templates(self.settings.address, name, wanted)
        return rules.templates_of(self.send(call))


class AsyncRuleCalls(ABC):
    """The same for coroutines."""

    settings: Settings

    @abstractmethod
    async def send(self, call: Call) -> Answer:
        """One request, repeated while that is safe."""

    async def schema(self, name: str) -> SchemaRegistry:
        """The schemas of a stream, and what else is declared of its messages."""
        return rules.registry_of(await self.send(rules.schema(self.settings.address, name)))

    async def set_schema(
        self,
        name: str,
        schema: Any = UNCHANGED,
        *,
        lens: Any = None,
        routing_key: KeyGiven = UNCHANGED,
        search: FieldsGiven = UNCHANGED,
    ) -> SchemaRegistry:
        """A new version of the schema of a stream, and other declarations; what is not given stays
        as it is.
        """
        change = declarations.registry_change(schema, lens, routing_key, search)
        call = rules.set_schema(self.settings.address, name, change)
        return rules.registry_of(await self.send(call))

    async def profile(self, name: str) -> StreamProfile:
        """What a stream is used as."""
        return rules.profile_of(await self.send(rules.profile(self.settings.address, name)))

    async def set_profile(
        self,
        name: str,
        kind: str,
        *,
        touch: bool | None = None,
        redact: Sequence[str] | None = None,
        routing_key: Sequence[str] | None = None,
    ) -> StreamProfile:
        """Use a stream as something; what is not given is as it is by default."""
        given = declarations.profile(kind, touch, redact, routing_key)
        call = rules.set_profile(self.settings.address, name, given)
        return rules.profile_of(await self.send(call))

    async def touch(self, name: str) -> TouchFacts:
        """Where a stream is for those who wait for changes of it, and its live templates."""
        return rules.touch_of(await self.send(rules.touch(self.settings.address, name)))

    async def touch_wait(
        self,
        name: str,
        keys: Sequence[Key],
        *,
        cursor: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a wait that is over gives a cursor
    ) -> Touched:
        """Wait until one of the keys is touched by a change behind the cursor. Cancel it to end
        it.
        """
        waiting = TouchWaiting(self.settings.address, name, keys, cursor, timeout)
        while True:
            told = waiting.take(await self.send(waiting.call()))
            if told is not None:
                return told

    async def touch_templates(
        self, name: str, wanted: Sequence[Template]
    ) -> tuple[LiveTemplate, ...]:
        """Make live templates active, so that somebody can wait with them; in the order given."""
        call = rules.touch_templates(self.settings.address, name, wanted)
        return rules.templates_of(await self.send(call))
