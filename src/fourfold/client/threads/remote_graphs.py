# Generated from ../coroutines/remote_graphs.py by `make generate`: change that file.
"""Graphs of a server with the methods of `fourfold.Graphs`, for threads."""

from __future__ import annotations

import builtins
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.client import graphs, requests
from fourfold.client.containers import GraphsContainer
from fourfold.client.follower import RemoteChanges
from fourfold.client.graphs import ChangesDecoder, GraphCalls
from fourfold.client.reader import EventReader
from fourfold.client.threads.connection import Connection
from fourfold.client.threads.remote_graph import RemoteGraph
from fourfold.client.threads.remote_sync import RemoteSync
from fourfold.errors import NotFound, Refused
from fourfold.models.documents.feed import deadline_of
from fourfold.models.graphs import validation
from fourfold.models.graphs.feed import FeedFilter
from fourfold.models.graphs.pattern import Pattern
from fourfold.models.graphs.records import (
    App,
    ApplyResult,
    Kind,
    Type,
    Usage,
)
from fourfold.tabular import Rows
from fourfold.wire import graphs as wire


@check_arguments()
class RemoteGraphs(GraphsContainer):
    """The graphs of a server, with the methods of `fourfold.Graphs`.

    `create` and `open` return handles of apps, which have the calls about one app.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.calls = GraphCalls(connection.settings.address)
        self._slugs: dict[int, str] = {}
        """Slugs of apps by their ids; neither ever changes."""
        self.sync = RemoteSync(connection)
        """The node of the server as a peer, for a key with the scope `sync`."""

    # Apps

    def create(self, slug: str, title: str | None = None) -> RemoteGraph:
        """Create an app with its tables, or return the existing one of that slug."""
        validation.check_slug(slug)
        validation.check_text(slug if title is None else title, "title")
        call = self.calls.register_app(slug, slug if title is None else title)
        return self._handle(graphs.parse(self.connection.send(call), wire.AppInfo))

    def open(self, app: int | str) -> RemoteGraph:
        """Return a handle of an existing app, by its id or slug.

        Raises:
            NotFound: There is no such app.
        """
        return self._handle(self._info(app))

    def list(self, at: datetime | None = None) -> Rows[App]:
        """Return all apps, the system app included; with `at`, those created by that time."""
        return Rows(self.list_apps(at), App)

    def list_apps(self, at: datetime | None = None) -> tuple[App, ...]:
        """Return all apps, the system app included; with `at`, those created by that time."""
        return tuple(map(graphs.to_app, self._infos(at)))

    def app(self, app: int | str, at: datetime | None = None) -> App:
        """Return an app by its id or slug.

        Raises:
            NotFound: There is no such app, or there was none at that time.
        """
        return graphs.to_app(self._info(app, at))

    def usage(self, app_id: int) -> Usage:
        """Return the rows and bytes that an app stores, and its limits."""
        return graphs.to_usage(self._info(app_id))

    def list_types(self, app_id: int) -> tuple[Type, ...]:
        """Return the types of an app."""
        call = self.calls.list_types(self._slug(app_id))
        pages = self.connection.pages(call, wire.TypePage)
        return tuple([graphs.to_type(record) for page in pages for record in page.items])

    # Writing

    def apply(self, envelope: Mapping[str, Any], *, once: bool = False) -> ApplyResult:
        """Write an envelope of operations in one transaction under one seq, or nothing.

        Args:
            envelope: A `trace_id`, and the operations as `ops`.
            once: Write nothing if the app has an envelope with the trace id, and return its result.

        Raises:
            ReplayMismatch: With `once`, other operations were written with the trace id.
        """
        slug = self._slug(graphs.app_of(envelope))
        call = self.calls.apply(slug, envelope, uuid.uuid4().hex, once=once)
        return graphs.parse_applied(self.connection.send(call))

    def apply_once(self, envelope: Mapping[str, Any], key: str) -> ApplyResult:
        """Write an envelope like `apply`; repeated with its key within a week, nothing is written.

        Raises:
            ReplayMismatch: Another envelope was sent with the key.
        """
        app_id = graphs.app_of(envelope)
        call = self.calls.apply(self._slug(app_id), envelope, key)
        return graphs.parse_applied(self.connection.send(call))

    # Reading

    def position(self) -> int:
        """Return the newest committed seq."""
        call = requests.with_cursor(self.calls.list_apps(), None, 1)
        return graphs.parse(self.connection.send(call), wire.AppPage).seq

    def get_global_seq(self) -> int:
        """Alias of `position`: the name in specification 003."""
        return self.position()

    def feed(
        self,
        *,
        after: int = 0,
        apps: Iterable[int] | None = None,
        kinds: Iterable[Kind] | None = None,
        flag_mask: int | None = None,
        limit: int = limits.FEED_PAGE_ROWS,
        durable: bool = False,
        timeout: float | None = None,
    ) -> RemoteChanges:
        """Iterate over pages of changes after a seq and wait for more.

        It continues after broken connections. A page is a transaction.

        Args:
            after: Begin after this seq.
            apps: Only rows of these app ids.
            kinds: Only rows of these kinds.
            flag_mask: Only rows that have one of these sync flags.
            limit: Ignored: a page has the rows of one transaction.
            durable: Refused: a server does not report what survives a power cut.
            timeout: End after this many seconds without a change.
        """
        if durable:
            raise Refused(
                "a server has no feed of durable changes only",
                hint="Use `fourfold.open` on the machine that has the folder.",
            )
        query = FeedFilter.of(apps, kinds, flag_mask)
        slugs = [self._slugs.get(app) for app in query.apps or ()]
        slug = slugs[0] if len(slugs) == 1 else None
        return self.follow_app(slug, query, after, limit, timeout)

    def follow(
        self,
        *,
        after: int = 0,
        apps: Iterable[int] | None = None,
        kinds: Iterable[Kind] | None = None,
        flag_mask: int | None = None,
        limit: int = limits.FEED_PAGE_ROWS,
        durable: bool = False,
        timeout: float | None = None,
    ) -> RemoteChanges:
        """Alias of `feed`."""
        return self.feed(
            after=after,
            apps=apps,
            kinds=kinds,
            flag_mask=flag_mask,
            limit=limit,
            durable=durable,
            timeout=timeout,
        )

    def follow_app(
        self,
        slug: str | None,
        query: FeedFilter,
        after: int,
        limit: int,
        timeout: float | None,
        *,
        pattern: Pattern | None = None,
    ) -> RemoteChanges:
        """Follow the changes of one app, or of all of them."""
        deadline_of(timeout)
        validation.check_integer(limit, "limit", least=1)
        call = self.calls.feed(
            slug, query, validation.check_integer(after, "after"), pattern=pattern
        )
        reader = EventReader(call, ChangesDecoder(query).decode)
        return RemoteChanges(self.connection.settings, reader, timeout)

    def __repr__(self) -> str:
        return f"<Graphs at {self.connection.settings.address.root}>"

    def _handle(self, info: wire.AppInfo) -> RemoteGraph:
        self._slugs[info.app_id] = info.app
        return RemoteGraph(self, info.app_id, info.app, info.node)

    def _slug(self, app_id: int) -> str:
        if app_id not in self._slugs:
            self._info(app_id)
        return self._slugs[app_id]

    def _info(self, app: int | str, at: datetime | None = None) -> wire.AppInfo:
        if isinstance(app, str) and validation.is_slug(app):
            response = self.connection.send(self.calls.get_app(app, at))
            return graphs.parse(response, wire.AppInfo)
        for info in self._infos(at):
            if info.app_id == app:
                return info
        raise NotFound(f"unknown app {app!r:.100}", hint="List the apps with `fourfold app list`.")

    def _infos(self, at: datetime | None = None) -> builtins.list[wire.AppInfo]:
        """Return all apps, in the order of their ids, as a local store does."""
        infos: builtins.list[wire.AppInfo] = []
        for page in self.connection.pages(self.calls.list_apps(at), wire.AppPage):
            infos += page.items
        self._slugs.update((info.app_id, info.app) for info in infos)
        return sorted(infos, key=lambda info: info.app_id)
