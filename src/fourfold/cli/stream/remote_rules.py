"""The rules of a server's streams, with the calls that the commands make on those of a folder."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

from fourfold import limits
from fourfold.client import StreamClient, answers
from fourfold.client import rules as calls
from fourfold.client.calls import Call
from fourfold.client.patience import Patience
from fourfold.client.rules import LiveTemplate
from fourfold.client.waiting import TouchWaiting
from fourfold.errors import BadAnswer, FourfoldError, InvalidInput
from fourfold.models.streams.names import Offset, read_offset
from fourfold.models.streams.schemas.registry import Registry
from fourfold.models.streams.touch import (
    ActiveTemplate,
    Encoding,
    Key,
    Meta,
    Template,
    Touched,
)


class RemoteSchemas:
    """`Schemas` over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address

    def get(self, name: str) -> Registry:
        return self._registry(calls.schema(self._address, name))

    def put(self, name: str, change: dict[str, Any]) -> Registry:
        return self._registry(calls.set_schema(self._address, name, change))

    def _registry(self, call: Call) -> Registry:
        told = answers.document(self._client.send(call))
        try:
            return msgspec.convert(told, Registry)
        except msgspec.ValidationError as error:
            raise BadAnswer(f"the schemas of the stream cannot be read: {error}") from None


class RemoteProfile:
    """A profile as the server tells it; it may be of a kind that is not known here."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told

    def plain(self) -> dict[str, Any]:
        return self._told


class RemoteProfiles:
    """`Profiles` over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address

    def get(self, name: str) -> RemoteProfile:
        return self._profile(calls.profile(self._address, name))

    def put(self, name: str, given: dict[str, Any]) -> RemoteProfile:
        return self._profile(calls.set_profile(self._address, name, given))

    def _profile(self, call: Call) -> RemoteProfile:
        told = answers.document(self._client.send(call))
        if not isinstance(told, dict) or "kind" not in told:
            raise BadAnswer("the profile of the stream cannot be read")
        return RemoteProfile(told)


class RemoteTouches:
    """`Touches` over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client

    def meta(self, name: str) -> Meta:
        """How many wait is known to the server alone."""
        found = self._client.touch(name)
        active = sum(each.state == "active" for each in found.templates)
        return Meta(found.cursor, offset_of(found.processed_offset).record - 1, active, 0)

    def templates(self, name: str) -> tuple[ActiveTemplate, ...]:
        return tuple(map(_template, self._client.touch(name).templates))

    def activate(self, name: str, wanted: Sequence[Template]) -> tuple[ActiveTemplate, ...]:
        return tuple(map(_template, self._client.touch_templates(name, wanted)))

    def wait(self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float) -> Touched:
        """As patient as a follower is, with a server that has answered once."""
        timeout = None if timeout_s == math.inf else timeout_s
        waiting = TouchWaiting(self._client.settings.address, name, keys, cursor, timeout)
        told = waiting.take(self._client.send(waiting.call()))
        patience = Patience(limits.CLIENT_FOLLOW_RETRY_S)
        while told is None:
            try:
                told = waiting.take(self._client.send(waiting.call()))
                patience.restart()
            except FourfoldError as error:
                time.sleep(patience.pause(error))
        return told


def offset_of(text: str) -> Offset:
    """An offset of a server as the record and the incarnation that it names."""
    try:
        return read_offset(text) or Offset(0, 0)
    except InvalidInput:
        raise BadAnswer(
            f"{text!r:.80} is not an offset of a Fourfold server",
            hint="The command line works with Fourfold's own server.",
        ) from None


def _template(told: LiveTemplate) -> ActiveTemplate:
    return ActiveTemplate(
        told.id,
        told.entity,
        cast("dict[str, Encoding]", told.fields),
        cast("Literal['active', 'retired']", told.state),
        offset_of(told.active_from_offset).record,
        told.last_seen_at_ms or 0,
        told.inactivity_ttl_ms or 0,
    )
