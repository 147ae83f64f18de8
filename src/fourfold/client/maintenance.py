"""Requests and responses about the store as a whole: jobs, uploads, keys and restore points."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from fourfold import limits
from fourfold.archive.restore_points import PointInfo
from fourfold.client import responses
from fourfold.client.requests import Address, Call, format_time, stringify
from fourfold.client.responses import Response
from fourfold.errors import FourfoldError, InvalidInput, Refused
from fourfold.wire.store import ExpireKey, JobInfo, NewJob, NewKey, PointRow, RotateKey

UPLOAD_PIECE_BYTES: Final = 8 * limits.MIB
_JSON: Final = {"content-type": "application/json"}
Progress = Callable[[str, int, int], object]
"""Called with what is being done, the steps so far, and all steps."""


class StoreCalls:
    """The requests about the store as a whole."""

    def __init__(self, address: Address) -> None:
        self._root = f"{address.root}/v1"

    # Jobs

    def start_job(self, kind: str, options: dict[str, Any]) -> Call:
        """Build the request that starts a job, once; raise InvalidInput for wrong options."""
        try:
            body = msgspec.convert({"kind": kind, **options}, NewJob)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"job {kind!r:.80}: {error}") from None
        headers = {**_JSON, "idempotency-key": uuid.uuid4().hex}
        data = msgspec.json.encode(body)
        return Call("POST", f"{self._root}/jobs", f"start the job {kind}", headers, {}, data)

    def get_job(self, job_id: str) -> Call:
        """Build the request for a job."""
        return Call("GET", self._job(job_id), f"get the job {job_id}", {}, {})

    def list_jobs(self, kind: str | None, status: str | None) -> Call:
        """Build the request for a page of jobs."""
        params = stringify(("kind", kind), ("status", status))
        return Call("GET", f"{self._root}/jobs", "list jobs", {}, params)

    def cancel_job(self, job_id: str) -> Call:
        """Build the request that cancels a job."""
        return Call("DELETE", self._job(job_id), f"cancel the job {job_id}", {}, {})

    def follow_job(self, job_id: str) -> Call:
        """Build the request for the progress of a job."""
        url = f"{self._job(job_id)}/events"
        return Call("GET", url, f"follow the job {job_id}", {}, {}, live=True)

    def _job(self, job_id: str) -> str:
        return f"{self._root}/jobs/{quote(job_id, safe='')}"

    # Uploads

    def put_upload(self, name: str, offset: int, data: bytes) -> Call:
        """Build the request that sends a piece of a file."""
        headers = {"content-type": "application/octet-stream"}
        params = stringify(("offset", offset))
        return Call("PUT", self._upload(name), f"upload {name!r}", headers, params, data)

    def delete_upload(self, name: str) -> Call:
        """Build the request that deletes an upload."""
        return Call("DELETE", self._upload(name), f"delete the upload {name!r}", {}, {})

    def _upload(self, name: str) -> str:
        return f"{self._root}/uploads/{quote(name, safe='')}"

    # Keys

    def create_key(self, scopes: Sequence[str], models: Sequence[str], **fields: object) -> Call:
        """Build the request that creates a key, once."""
        fields = {"scopes": list(scopes), "models": list(models), **fields}
        try:
            body = msgspec.convert(fields, NewKey)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"key: {error}") from None
        # Sent once: a second response would not have the secret.
        data = msgspec.json.encode(body)
        url = f"{self._root}/keys"
        return Call("POST", url, "create a key", _JSON, {}, data, repeatable=False)

    def list_keys(self) -> Call:
        """Build the request for the keys."""
        return Call("GET", f"{self._root}/keys", "list the keys", {}, {})

    def rotate_key(self, key_id: str, overlap_s: float, expires_in_s: float | None) -> Call:
        """Build the request that replaces a key, once."""
        data = msgspec.json.encode(RotateKey(overlap_s=overlap_s, expires_in_s=expires_in_s))
        url = f"{self._root}/keys/{quote(key_id, safe='')}/rotate"
        return Call("POST", url, f"rotate the key {key_id}", _JSON, {}, data, repeatable=False)

    def expire_key(self, key_id: str, after_s: float | None) -> Call:
        """Build the request that sets when a key expires."""
        data = msgspec.json.encode(ExpireKey(after_s=after_s))
        url = f"{self._root}/keys/{quote(key_id, safe='')}/expire"
        return Call("POST", url, f"expire the key {key_id}", _JSON, {}, data)

    def delete_key(self, key_id: str) -> Call:
        """Build the request that deletes a key."""
        url = f"{self._root}/keys/{quote(key_id, safe='')}"
        return Call("DELETE", url, f"delete the key {key_id}", {}, {}, repeatable=False)

    def get_key(self) -> Call:
        """Build the request for the key of this client."""
        return Call("GET", f"{self._root}/key", "get the key", {}, {})

    # Overview, archive and metrics

    def overview(self, at: datetime | str | None) -> Call:
        """Build the request for the overview, now or at a time or restore point."""
        params = stringify(("at", _store_time(at)))
        return Call("GET", f"{self._root}/store", "get the overview", {}, params)

    def activity(self, at: datetime | str | None) -> Call:
        """Build the request for the newest entries of all models."""
        params = stringify(("at", _store_time(at)))
        return Call("GET", f"{self._root}/store/activity", "get the activity", {}, params)

    def list_databases(self) -> Call:
        """Build the request for a page of the publish status of databases."""
        return Call("GET", f"{self._root}/archive", "list the published databases", {}, {})

    def list_backups(self) -> Call:
        """Build the request for a page of backups."""
        return Call("GET", f"{self._root}/backups", "list backups", {}, {})

    def list_uploads(self) -> Call:
        """Build the request for the uploads."""
        return Call("GET", f"{self._root}/uploads", "list uploads", {}, {})

    def list_runs(self, job: str | None) -> Call:
        """Build the request for a page of runs of pipeline jobs."""
        params = stringify(("job", job))
        return Call("GET", f"{self._root}/pipeline/runs", "list runs", {}, params)

    def list_table_folders(self) -> Call:
        """Build the request for a page of tables that pipeline jobs wrote."""
        return Call("GET", f"{self._root}/pipeline/tables", "list tables", {}, {})

    def get_point(self, point_id: str) -> Call:
        """Build the request for a restore point."""
        url = f"{self._root}/points/{quote(point_id, safe='')}"
        return Call("GET", url, f"get the restore point {point_id!r}", {}, {})

    def list_archive_tables(self) -> Call:
        """Build the request for the tables of the archive."""
        return Call("GET", f"{self._root}/archive/tables", "list tables of the archive", {}, {})

    def list_points(self) -> Call:
        """Build the request for a page of restore points."""
        return Call("GET", f"{self._root}/points", "list restore points", {}, {})

    def audit(
        self,
        limit: int,
        cursor: str | None,
        key: str | None,
        operation: str | None,
        *,
        refused: bool,
    ) -> Call:
        """Build the request for a page of the audit log."""
        params = stringify(
            *(("limit", limit), ("cursor", cursor), ("key", key), ("operation", operation)),
            ("refused", "true" if refused else None),
        )
        return Call("GET", f"{self._root}/audit", "get the audit log", {}, params)

    def metrics(self) -> Call:
        """Build the request for the metrics."""
        url = f"{self._root.removesuffix('/v1')}/metrics"
        return Call("GET", url, "get the metrics", {}, {})


def _store_time(at: datetime | str | None) -> str | None:
    return at if isinstance(at, str) else format_time(at)


def parse(response: Response, kind: type[responses.B]) -> responses.B:
    """Return the body of a response."""
    return responses.decode(response, kind, "a request about the store")


def iter_pieces(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of a file with their offsets; an empty file is one piece."""
    offset = 0
    with Path(path).open("rb") as file:
        piece = file.read(UPLOAD_PIECE_BYTES)
        while piece or not offset:
            yield offset, piece
            offset += len(piece)
            piece = file.read(UPLOAD_PIECE_BYTES)
            if not piece:
                return


def decode_job(_name: str, data: bytes) -> JobInfo:
    """Return the job of an event."""
    return msgspec.json.decode(data, type=JobInfo)


def check_job(job: JobInfo) -> JobInfo:
    """Return a job that succeeded; raise its error otherwise."""
    if job.status == "succeeded":
        return job
    if job.error is None:
        raise Refused(f"job {job.id} ({job.kind}) was {job.status}", hint="Start it again.")
    kind = responses.KINDS.get(job.error.kind, FourfoldError)
    raise kind(f"job {job.id} ({job.kind}): {job.error.message}", hint=job.error.hint)


def to_point(row: PointRow) -> PointInfo:
    """Return a restore point as a local store lists it."""
    return PointInfo(**msgspec.structs.asdict(row))


def select_databases(models: Sequence[str] | None) -> Callable[[str], bool]:
    """Return a function that is True for the names of databases of these models.

    Raises:
        InvalidInput: A model is unknown.
    """
    if models is None:
        return lambda _name: True
    from fourfold.models.model import model_of_database  # noqa: PLC0415 - imports every model
    from fourfold.store.database_files import check_models  # noqa: PLC0415

    selected = check_models(models)
    return lambda name: model_of_database(name).name in selected
