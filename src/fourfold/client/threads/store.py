# Generated from ../coroutines/store.py by `make generate`: change that file.
"""A store of a server, with the methods of `fourfold.Store`, for threads.

with RemoteStore("http://127.0.0.1:4437") as store:
    space = store.space("did:web:shop.example")
    space.set("order-1", {"total": 70})
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from fourfold import limits
from fourfold.archive.restore_points import PointInfo
from fourfold.arguments import check_arguments
from fourfold.client import maintenance, sql
from fourfold.client.containers import StoreContainer
from fourfold.client.maintenance import StoreCalls
from fourfold.client.threads.remote_graphs import RemoteGraphs
from fourfold.client.threads.remote_jobs import RemoteJobs, RemoteKeys
from fourfold.client.threads.remote_memory import RemoteMemory
from fourfold.client.threads.remote_server import RemoteServer
from fourfold.client.threads.remote_sessions import RemoteSessions
from fourfold.client.threads.remote_spaces import RemoteDocuments, RemoteSpace
from fourfold.client.threads.remote_streams import RemoteStreams
from fourfold.client.threads.streams import StreamClient
from fourfold.content.namespaces import MEMORY_DID
from fourfold.sql_result import Result
from fourfold.wire.sql import SqlTable
from fourfold.wire.store import (
    Activity,
    ArchiveTableList,
    ArchiveTableRow,
    AuditPage,
    BackupPage,
    BackupRow,
    DatabaseStatusPage,
    DatabaseStatusRow,
    PointPage,
    PointRow,
    StoreOverview,
)


@check_arguments()
class RemoteStore(StoreContainer):
    """A store of a server. Any number of threads may use it.

    Args:
        url: Address of the server, such as `http://127.0.0.1:4437`.
        key: API key, if the server requires one.
        timeout: Seconds to wait for a response.
        retry_for: Seconds for which a request that is safe to repeat is retried while the server is
            unreachable or busy; None retries forever.
        verify: Trusted certificates: True for the usual ones, a file, a context, or False for any.
        headers: Headers to send with every request.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = limits.CLIENT_TIMEOUT_S,
        retry_for: float | None = limits.CLIENT_RETRY_S,
        verify: bool | str | Path | ssl.SSLContext = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._client = StreamClient(
            url, key=key, timeout=timeout, retry_for=retry_for, verify=verify, headers=headers
        )
        self.documents = RemoteDocuments(self._client)
        """Spaces of the store."""
        self.streams = RemoteStreams(self._client)
        """Streams of the store."""
        self.graphs = RemoteGraphs(self._client)
        """Graphs of the store: apps with their types and objects."""
        self.sessions = RemoteSessions(self._client)
        """Sessions of the store: event logs, views, heads and payloads."""
        self.jobs = RemoteJobs(self._client)
        """Jobs of the server: maintenance, loads and tables."""
        self.keys = RemoteKeys(self._client)
        """Keys of the server."""
        self.server = RemoteServer(self._client)
        """The server itself: probes, its API and the keys of its signatures."""
        self._calls = StoreCalls(self._client.settings.address)

    def space(self, did: str, history: str | None = None) -> RemoteSpace:
        """Open the space of documents with this DID, and create it if needed.

        `history` is the kind of history of a new space: "revisions" (the default) or "facts". An
        existing space keeps its own; a different value is refused.
        """
        return self.documents.create(did, history)

    def spaces(self) -> list[str]:
        """Return the DIDs of all spaces in this store, sorted."""
        return [did for did in self.documents]

    def memory(self, name: str) -> RemoteMemory:
        """Open the memory with this name, and create it if needed.

        memory = store.memory("assistant")
        memory.put(("users", "ada"), "food", {"likes": "leek soup"})
        memory.search("soup")
        """
        memory = RemoteMemory(self._client, name)
        memory.create()
        return memory

    def memories(self) -> list[str]:
        """Return the names of all memories in this store, sorted."""
        dids = self.spaces()
        return [did.removeprefix(MEMORY_DID) for did in dids if did.startswith(MEMORY_DID)]

    def sql(
        self,
        query: str,
        params: Sequence[Any] | Mapping[str, Any] = (),
        *,
        at: datetime | int | str | None = None,
        branch: str = "",
        model: str | None = None,
        space: str | None = None,
        timeout_s: float = 10.0,
        max_rows: int = 100_000,
        max_bytes: int = 64 * limits.MIB,
    ) -> Result:
        """Run a SELECT over the tables of all models that the key may query; return its rows.

        The query sees one state of each database, which `result.cut` names, and writes nothing.
        `sql_tables` lists the tables.

        Args:
            query: One SELECT, in the dialect of SQLite.
            params: Values of `?` or `:name` in it.
            at: As of a time or the id of a restore point; a seq if the query reads one log.
            branch: Branch of `documents_state` and `documents_history`; "*" for every branch.
            model: Model whose tables can be named without prefix, such as `state`.
            space: Only this space; other models have no tables then.
            timeout_s: Time after which the query is stopped, at most 60.
            max_rows: Rows after which the result is truncated, at most 100,000.
            max_bytes: Bytes of values after which the result is truncated; a server sends at most
                16 MiB.

        Raises:
            InvalidInput: The query is not valid.
            NotFound: A table, a space or a branch is unknown, or not for this key.
            Refused: The query does something else than to read tables, or needs too much memory.
            DeadlineExceeded: It took longer than `timeout_s`.
        """
        body = sql.build_query(
            query,
            params,
            at,
            branch=branch,
            model=model,
            space=space,
            timeout_s=timeout_s,
            max_rows=max_rows,
            max_bytes=max_bytes,
        )
        call = sql.run_sql(self._client.settings.address, body)
        return sql.parse_result(self._client.send(call))

    def sql_tables(self) -> list[SqlTable]:
        """Return the tables that `sql` can read with the key of this store, with their columns."""
        call = sql.list_tables(self._client.settings.address)
        return sql.parse_tables(self._client.send(call))

    def points(self) -> list[PointInfo]:
        """Return the restore points of this store, oldest first."""
        points: list[PointInfo] = []
        for page in self._client.pages(self._calls.list_points(), PointPage):
            points += map(maintenance.to_point, page.items)
        return points[::-1]

    def archive_tables(self) -> list[ArchiveTableRow]:
        """Return the Delta tables of the archive, by name: versions, files, rows and bytes."""
        response = self._client.send(self._calls.list_archive_tables())
        return maintenance.parse(response, ArchiveTableList).tables

    def point(self, point_id: str) -> PointInfo:
        """Return a restore point by its id.

        Raises:
            NotFound: There is no such restore point.
        """
        response = self._client.send(self._calls.get_point(point_id))
        return maintenance.to_point(maintenance.parse(response, PointRow))

    def overview(self, at: datetime | str | None = None) -> StoreOverview:
        """Return what each model of the store contains: counts, sizes and health.

        Args:
            at: As of a time, or of the id of a restore point, without sizes; by default now.

        Raises:
            NotFound: There is no such restore point.
        """
        return maintenance.parse(self._client.send(self._calls.overview(at)), StoreOverview)

    def activity(self, at: datetime | str | None = None) -> Activity:
        """Return the newest entries of all models, and their number by the minute of an hour.

        Args:
            at: What happened at or before a time, or the id of a restore point; by default now.

        Raises:
            NotFound: There is no such restore point.
        """
        return maintenance.parse(self._client.send(self._calls.activity(at)), Activity)

    def published(self, models: Sequence[str] | None = None) -> list[DatabaseStatusRow]:
        """Return the publish status of each database; newer data exists only on its disk.

        `models` selects some of the models.
        """
        is_selected = maintenance.select_databases(models)
        rows: list[DatabaseStatusRow] = []
        for page in self._client.pages(self._calls.list_databases(), DatabaseStatusPage):
            rows += [row for row in page.items if is_selected(row.name)]
        return rows

    def backups(self) -> list[BackupRow]:
        """Return the backups that jobs made, and those before migrations."""
        rows: list[BackupRow] = []
        for page in self._client.pages(self._calls.list_backups(), BackupPage):
            rows += page.items
        return rows

    def audit(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        key: str | None = None,
        operation: str | None = None,
        refused: bool = False,
    ) -> AuditPage:
        """Return a page of the audit log, newest entries first.

        Needs a key for the store with the scope `audit` or `admin`.

        Args:
            limit: Maximum number of entries.
            cursor: `next_cursor` of the page before.
            key: Only entries of this key.
            operation: Only entries of this operation.
            refused: Only requests that failed or were refused.
        """
        call = self._calls.audit(limit, cursor, key=key, operation=operation, refused=refused)
        return maintenance.parse(self._client.send(call), AuditPage)

    def metrics_text(self) -> str:
        """Return the metrics of the server in the Prometheus exposition format."""
        return (self._client.send(self._calls.metrics())).body.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; followers close their own."""
        self._client.close()

    def __repr__(self) -> str:
        return f"<Store at {self._client.settings.address.root}>"
