"""Declarations of pages, forms and feeds, and what their handlers receive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import Struct

from fourfold.explorer.api import Api
from fourfold.explorer.links import Links, format_at
from fourfold.server.request import Request, Response
from fourfold.wire.store import CurrentKey, GrantInfo


class ExplorerQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of every page."""

    at: str = ""
    """Seq, time or id of a restore point to look at the store; empty for now."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request for a page."""

    request: Request
    api: Api
    link: Links
    at: int | datetime | None
    now_ms: int
    render: Callable[..., str]
    """Renders a template for this visit, from keyword arguments."""

    @property
    def time_ms(self) -> int | None:
        """The time of the visit in milliseconds since the epoch; None for now or a seq."""
        return int(self.at.timestamp() * 1000) if isinstance(self.at, datetime) else None

    @property
    def time(self) -> str:
        """The time of the visit as a parameter of reads of several logs; empty for now or a seq."""
        return format_at(self.at) if isinstance(self.at, datetime) else ""

    async def grants(self) -> list[GrantInfo] | None:
        """Return what the key of the visitor allows, or None if the server requires none."""
        key = (await self.api.get("/v1/key", CurrentKey)).key
        return None if key is None else key.grants

    async def list_prefix(self, model: str, prefix: str) -> str:
        """Return the prefix of a list: the one that the visitor asks for, or that of the key."""
        grants = () if prefix else await self.grants() or ()
        return prefix or next((grant.prefix for grant in grants if grant.model == model), "")


@dataclass(frozen=True, slots=True)
class ExplorerPage:
    """A page at `path`, and the same data as JSON at `path` with `.json` appended.

    The handler returns the data; the template shows it and has no other source.
    """

    path: str
    template: str
    handler: Callable[[Visit, Any], Awaitable[dict[str, Any]]]
    query: type[ExplorerQuery]
    summary: str
    cancellable: bool = False
    """True if its work ends when the visitor leaves."""

    @property
    def json_path(self) -> str:
        """Path of the data as JSON."""
        return "/index.json" if self.path == "/" else f"{self.path}.json"


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page, which a script inserts."""

    path: str
    template: str
    handler: Callable[[Visit, Any], Awaitable[dict[str, Any]]]
    query: type[ExplorerQuery]
    summary: str


@dataclass(frozen=True, slots=True)
class Form:
    """A form that changes something and then leads to the address that its handler returns.

    If there is something to show that must not have an address, the handler returns the data of a
    template instead.
    """

    path: str
    handler: Callable[[Visit, Any], Awaitable[str | dict[str, Any]]]
    fields: Any
    """Struct of its fields, or `dict[str, str]`."""
    summary: str
    template: str = ""


@dataclass(frozen=True, slots=True)
class PageFeed:
    """Server-sent events with parts of a page."""

    path: str
    handler: Callable[[Visit, Any], Awaitable[Response]]
    query: type[ExplorerQuery]
    summary: str
    cancellable: bool = False
    """True if its work ends when the visitor leaves."""
