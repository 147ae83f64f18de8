# Generated from ../coroutines/remote_jobs.py by `make generate`: change that file.
"""Jobs and keys of a server, for threads."""

from __future__ import annotations

import builtins
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fourfold.client import maintenance
from fourfold.client.maintenance import Progress, StoreCalls
from fourfold.client.reader import EventReader
from fourfold.client.threads.connection import Connection, LiveFeed
from fourfold.wire.pipeline import RunPage, RunRow, TableFolderPage, TableFolderRow
from fourfold.wire.store import (
    CreatedKey,
    CurrentKey,
    DeletedKey,
    JobInfo,
    JobPage,
    KeyInfo,
    KeyList,
    UploadInfo,
    UploadList,
)


class RemoteJobs:
    """Jobs of a server, such as verify, publish, compact, load and stats."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._calls = StoreCalls(connection.settings.address)

    def start(self, kind: str, **options: Any) -> JobInfo:
        """Start a job and return it; it continues when this program ends.

        Args:
            kind: Kind of the job.
            options: Its options, such as `name` of a backup.
        """
        call = self._calls.start_job(kind, options)
        return maintenance.parse(self._connection.send(call), JobInfo)

    def get(self, job_id: str) -> JobInfo:
        """Return a job with its progress.

        Raises:
            NotFound: There is no such job.
        """
        return maintenance.parse(self._connection.send(self._calls.get_job(job_id)), JobInfo)

    def list(
        self, kind: str | None = None, status: str | None = None, limit: int = 100
    ) -> builtins.list[JobInfo]:
        """Return jobs and runs of the pipeline by other processes, newest first.

        Args:
            kind: Only jobs of this kind.
            status: Only jobs with this status.
            limit: Maximum number of jobs.
        """
        jobs: builtins.list[JobInfo] = []
        call = self._calls.list_jobs(kind, status)
        for page in self._connection.pages(call, JobPage, limit):
            jobs += page.items
            if len(jobs) >= limit:
                break
        return jobs[:limit]

    def cancel(self, job_id: str) -> JobInfo:
        """Cancel a job and return it once it has ended; one that has ended stays as it is.

        Raises:
            NotFound: There is no such job.
            Refused: It is a run of another process than the server.
        """
        call = self._calls.cancel_job(job_id)
        return maintenance.parse(self._connection.send(call), JobInfo)

    def wait(self, job_id: str, progress: Progress | None = None) -> JobInfo:
        """Return a job when it has succeeded.

        Args:
            job_id: The job.
            progress: Called with what is being done, the steps so far, and all steps.

        Raises:
            FourfoldError: The error of a job that failed; Refused if it was cancelled.
        """
        settings = self._connection.settings
        reader = EventReader(self._calls.follow_job(job_id), maintenance.decode_job)
        with LiveFeed(settings, reader, settings.retry_for) as feed:
            for event in feed:
                job = event.item
                if job is not None and progress is not None:
                    progress(job.progress.label, job.progress.done, job.progress.total)
        return maintenance.check_job(self.get(job_id))

    def run(self, kind: str, progress: Progress | None = None, **options: Any) -> JobInfo:
        """Start a job and return it when it has succeeded, like `start` and `wait`."""
        return self.wait((self.start(kind, **options)).id, progress)

    def upload(self, path: str | Path, name: str | None = None) -> UploadInfo:
        """Send a file to the server, in pieces, for a job that loads it.

        Args:
            path: The file.
            name: Name of the upload; by default that of the file.
        """
        name = Path(path).name if name is None else name
        for offset, piece in maintenance.iter_pieces(path):
            response = self._connection.send(self._calls.put_upload(name, offset, piece))
        return maintenance.parse(response, UploadInfo)

    def load(self, path: str | Path, progress: Progress | None = None, **options: Any) -> JobInfo:
        """Write the lines of a file of this machine into a model, and return the job.

        Repeating a load changes nothing, and one that was interrupted is continued.

        Args:
            path: A file with lines of JSON.
            progress: Called with what is being done, the steps so far, and all steps.
            options: Those of the job: `model`, `space`, `space_from`, `id`, `rows`, `stream`.
        """
        upload = self.upload(path, uuid.uuid4().hex)
        try:
            return self.run("load", progress, upload=upload.name, **options)
        finally:
            self.delete_upload(upload.name)

    def delete_upload(self, name: str) -> None:
        """Delete an upload; a job that reads it still does.

        Raises:
            NotFound: There is no such upload.
        """
        self._connection.send(self._calls.delete_upload(name))

    def uploads(self) -> builtins.list[UploadInfo]:
        """Return the uploads, in the order of their names."""
        response = self._connection.send(self._calls.list_uploads())
        return maintenance.parse(response, UploadList).items

    def runs(self, job: str | None = None, limit: int = 100) -> builtins.list[RunRow]:
        """Return runs of pipeline jobs, newest first, whichever process started them.

        Args:
            job: Only runs of this job.
            limit: Maximum number of runs.
        """
        runs: builtins.list[RunRow] = []
        for page in self._connection.pages(self._calls.list_runs(job), RunPage, limit):
            runs += page.items
            if len(runs) >= limit:
                break
        return runs[:limit]

    def tables(self) -> builtins.list[TableFolderRow]:
        """Return the tables that pipeline jobs wrote, with rows, sizes and watermarks."""
        folders: builtins.list[TableFolderRow] = []
        call = self._calls.list_table_folders()
        for page in self._connection.pages(call, TableFolderPage):
            folders += page.items
        return folders


class RemoteKeys:
    """Keys of a server; calls need a key for the store with the scope `admin`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._calls = StoreCalls(connection.settings.address)

    def create(
        self,
        scopes: Sequence[str],
        *,
        models: Sequence[str] = (),
        prefix: str = "",
        label: str = "",
        expires_in_s: float | None = None,
        requests_per_s: float | None = None,
        bytes_per_day: int | None = None,
    ) -> CreatedKey:
        """Create a key; its secret is `key` of the result, and is not shown again.

        Args:
            scopes: What it may do: "read", "write", "admin", "metrics", "query", "audit", "sync".
            models: Models that it is for, by default all.
            prefix: Only objects whose names start with this.
            label: Display name of the key.
            expires_in_s: Time until it expires; None for a key that does not.
            requests_per_s: Requests per second that it may send; None for no limit.
            bytes_per_day: Bytes per day of the bodies that it sends and gets; None for no limit.

        Raises:
            Forbidden: It would be allowed more than the key of this store.
        """
        call = self._calls.create_key(
            *(scopes, models),
            prefix=prefix,
            label=label,
            expires_in_s=expires_in_s,
            requests_per_s=requests_per_s,
            bytes_per_day=bytes_per_day,
        )
        return maintenance.parse(self._connection.send(call), CreatedKey)

    def list(self) -> builtins.list[KeyInfo]:
        """Return the keys, without their secrets."""
        return maintenance.parse(self._connection.send(self._calls.list_keys()), KeyList).keys

    def current(self) -> KeyInfo | None:
        """Return the key of this client and what it allows; None if the server requires none."""
        response = self._connection.send(self._calls.get_key())
        return maintenance.parse(response, CurrentKey).key

    def rotate(
        self, key_id: str, *, overlap_s: float = 0.0, expires_in_s: float | None = None
    ) -> CreatedKey:
        """Replace a key by one that is allowed the same; its secret is `key` of the result.

        Args:
            key_id: The key to replace.
            overlap_s: Time until it expires; both keys are accepted until then.
            expires_in_s: Lifetime of the new key; by default that of the old one.

        Raises:
            NotFound: There is no such key.
            Forbidden: The new key would be allowed more than the key of this store.
        """
        call = self._calls.rotate_key(key_id, overlap_s, expires_in_s)
        return maintenance.parse(self._connection.send(call), CreatedKey)

    def expire(self, key_id: str, after_s: float | None = 0.0) -> KeyInfo:
        """Let a key expire after a time, by default at once; None for never. Returns the key.

        Raises:
            NotFound: There is no such key.
            Refused: It is the key of this store, and would expire at once.
            Forbidden: It would last longer than the key of this store.
        """
        call = self._calls.expire_key(key_id, after_s)
        return maintenance.parse(self._connection.send(call), KeyInfo)

    def delete(self, key_id: str) -> int:
        """Delete a key and return the number of keys that are left.

        Raises:
            NotFound: There is no such key.
            Refused: It is the key of this store.
        """
        call = self._calls.delete_key(key_id)
        return maintenance.parse(self._connection.send(call), DeletedKey).left
