"""A Delta log in an object store: one conditional PUT per commit.

    <prefix>/_delta_log/00000000000000000007.json                 a commit
    <prefix>/_delta_log/00000000000000000100.checkpoint.parquet   the state at a version
    <prefix>/_delta_log/_last_checkpoint                          version of the newest checkpoint

A version has one commit: `commit` puts it if absent, so of several writers one succeeds and the
others get CommitConflict with the commit that is there. A put whose response was lost is recognized
by the token in the commit. A truncated newest commit was never acknowledged: readers end before it,
and the next commit replaces it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive.delta_actions import (
    EMPTY,
    Action,
    DeltaCommit,
    Snapshot,
    decode_commit,
    encode_commit,
    replay,
)
from fourfold.archive.delta_checkpoint import count_actions, decode_checkpoint, encode_checkpoint
from fourfold.errors import (
    AlreadyExists,
    CorruptData,
    HistoryTruncated,
    NotFound,
    PreconditionFailed,
)
from fourfold.kernel import failpoints
from fourfold.objects import Object, ObjectInfo, ObjectStore
from fourfold.retry import Retries

DELTA_READ_CONCURRENCY: Final = 8
"""Commits that are read at the same time."""
_READS: Final = 3
"""Attempts to read a log while another process truncates it."""
_FOLDER: Final = "_delta_log/"
_ENTRY: Final = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")


class CommitConflict(PreconditionFailed):
    """Another commit has the version; `commit` is that one."""

    def __init__(self, message: str, commit: DeltaCommit | None = None, **options: Any) -> None:
        super().__init__(message, **options)
        self.commit = commit


class _VanishedCommit(Exception):
    """A commit was deleted after it was listed."""


class _LastCheckpoint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    version: int
    size: int = 0
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None


class _Entries(NamedTuple):
    commits: dict[int, ObjectInfo]
    checkpoints: dict[int, ObjectInfo]


class DeltaLog:
    """The log of the table under a prefix of an object store. Thread-safe."""

    def __init__(self, objects: ObjectStore, prefix: str, retries: Retries | None = None) -> None:
        self._objects = objects
        self._table = f"{prefix}/" if prefix else ""
        self._retries = retries or Retries()

    def key(self, path: str) -> str:
        """Return the object key of a data file."""
        return self._table + path

    # Reading

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the state at a version, by default the newest; EMPTY if there is no table.

        Raises:
            NotFound: If the version does not exist yet.
            HistoryTruncated: If its log entries were deleted.
        """
        for _ in range(_READS):
            try:
                return self._load(version)
            except _VanishedCommit:
                # It was deleted after a newer checkpoint, which the next attempt finds.
                continue
        raise _truncated(self._table, version)

    def _load(self, version: int | None) -> Snapshot:
        checkpoint = self._last_checkpoint()
        if checkpoint is not None and (version is None or checkpoint.version <= version):
            base = self._checkpoint(checkpoint.version)
            if base is not None:
                return self._after(base, version)
        return self._from_listing(version)

    def _after(self, base: Snapshot, version: int | None) -> Snapshot:
        """Return the state at a version after a checkpoint, without reading what is before it."""
        if version == base.version:
            return base
        commits = sorted(self._list(after=base.version).commits)
        if version is not None:
            commits = [number for number in commits if number <= version]
        snapshot = self._replay(base, commits)
        if version is not None and snapshot.version != version:
            raise NotFound(f"Delta log {self._table!r} has no version {version}")
        return snapshot

    def update(self, snapshot: Snapshot) -> Snapshot:
        """Return the newest state, reading only commits after those of a state."""
        commits: list[DeltaCommit] = []
        version = snapshot.version
        while (commit := self._find_commit(version + 1)) is not None:
            commits.append(commit)
            version += 1
        checkpoint = self._last_checkpoint()
        if checkpoint is not None and checkpoint.version > version:
            # The next commit exists, or it was deleted after that checkpoint.
            return self.snapshot()
        return replay(snapshot, commits) if commits else snapshot

    def read_commit(self, version: int) -> DeltaCommit:
        """Return a commit.

        Raises:
            NotFound: If there is none yet.
            HistoryTruncated: If it was deleted.
        """
        commit = self._find_commit(version)
        if commit is not None:
            return commit
        checkpoint = self._last_checkpoint()
        if checkpoint is not None and version < checkpoint.version:
            raise _truncated(self._table, version)
        raise NotFound(f"Delta log {self._table!r} has no commit {version}")

    def _from_listing(self, version: int | None) -> Snapshot:
        entries = self._list()
        newest = max((*entries.commits, *entries.checkpoints), default=EMPTY.version)
        if version is not None and not EMPTY.version <= version <= newest:
            raise NotFound(f"Delta log {self._table!r} has no version {version}, newest {newest}")
        last = newest if version is None else version
        base = self._base(entries, last)
        versions = [number for number in sorted(entries.commits) if base.version < number <= last]
        if versions != list(range(base.version + 1, last + 1)):
            raise _truncated(self._table, version)
        snapshot = self._replay(base, versions)
        if version is not None and snapshot.version != version:
            raise NotFound(f"Delta log {self._table!r} has no version {version}")
        return snapshot

    def _base(self, entries: _Entries, last: int) -> Snapshot:
        """Return the newest readable checkpoint at or before a version, or EMPTY."""
        for number in sorted(entries.checkpoints, reverse=True):
            if number <= last and (snapshot := self._checkpoint(number)) is not None:
                return snapshot
        return EMPTY

    def _replay(self, base: Snapshot, versions: Sequence[int]) -> Snapshot:
        if not versions:
            return base
        with ThreadPoolExecutor(min(DELTA_READ_CONCURRENCY, len(versions))) as pool:
            commits = list(pool.map(self._listed_commit, versions))
        if commits[-1] is None:
            # Its writer has not completed it.
            commits.pop()
        read: list[DeltaCommit] = []
        for version, commit in zip(versions, commits, strict=False):
            if commit is None:
                raise CorruptData(f"Delta log {self._table!r}: commit {version} is truncated")
            read.append(commit)
        return replay(base, read)

    def _listed_commit(self, version: int) -> DeltaCommit | None:
        """Return a commit, or None if it is truncated."""
        read = self._find(self._commit_key(version))
        if read is None:
            raise _VanishedCommit
        return decode_commit(version, read.data)

    def _find_commit(self, version: int) -> DeltaCommit | None:
        """Return a commit, or None if it does not exist or is truncated."""
        read = self._find(self._commit_key(version))
        return None if read is None else decode_commit(version, read.data)

    def _checkpoint(self, version: int) -> Snapshot | None:
        """Return the state in a checkpoint, or None if it is missing or damaged."""
        read = self._find(self._checkpoint_key(version))
        if read is None:
            return None
        try:
            return decode_checkpoint(version, read.data)
        except CorruptData:
            # The commits before it have the same state, unless they were deleted.
            return None

    def _last_checkpoint(self) -> _LastCheckpoint | None:
        read = self._find(self._last_key)
        try:
            return None if read is None else _LAST.decode(read.data)
        except msgspec.DecodeError:
            # It is a hint: a listing finds the checkpoint too.
            return max(
                (_LastCheckpoint(version) for version in self._list().checkpoints),
                key=lambda checkpoint: checkpoint.version,
                default=None,
            )

    def checkpoint_version(self) -> int:
        """Return the version of the newest checkpoint; -1 if there is none."""
        last = self._last_checkpoint()
        return EMPTY.version if last is None else last.version

    def _find(self, key: str) -> Object | None:
        try:
            return self._retries.run(lambda: self._objects.get(key))
        except NotFound:
            return None

    def _list(self, after: int | None = None) -> _Entries:
        """List the commits and checkpoints, optionally only those after a version."""
        start = None if after is None or after < 0 else self._commit_key(after)
        folder = self._table + _FOLDER
        entries = _Entries({}, {})
        for info in self._retries.run(lambda: list(self._objects.list(folder, start_after=start))):
            if match := _ENTRY.fullmatch(info.key[len(folder) :]):
                kind = entries.commits if match[2] == "json" else entries.checkpoints
                kind[int(match[1])] = info
        return entries

    # Writing

    def commit(
        self, actions: Sequence[Action], version: int, info: Mapping[str, Any] | None = None
    ) -> DeltaCommit:
        """Commit actions as a version, with one conditional PUT.

        Args:
            actions: What to commit; the first commit starts with `table_actions`.
            version: The version after the state that the actions are for.
            info: Keys of `commitInfo`.

        Raises:
            CommitConflict: If the version has another commit.
        """
        data = encode_commit(actions, info, token=uuid.uuid4().hex)
        key = self._commit_key(version)
        if failpoints.armed:
            failpoints.hit("archive.delta.commit.before")
        try:
            self._retries.run(lambda: self._objects.put(key, data, if_absent=True))
        except AlreadyExists:
            self._settle(version, data)
        if failpoints.armed:
            failpoints.hit("archive.delta.commit.after")
        commit = decode_commit(version, data)
        assert commit is not None
        return commit

    def _settle(self, version: int, data: bytes) -> None:
        """Return if the commit of a version is `data`; raise CommitConflict otherwise."""
        key = self._commit_key(version)
        for _ in range(limits.ARCHIVE_RETRIES_MAX + 1):
            existing = self._retries.run(lambda: self._objects.get(key))
            if existing.data == data:
                return
            commit = decode_commit(version, existing.data)
            if commit is not None:
                raise CommitConflict(
                    f"Delta log {self._table!r}: version {version} has another commit",
                    commit,
                    details={"version": version},
                )
            try:
                self._replace(key, data, existing.info.version)
            except PreconditionFailed:
                continue
            return
        raise CommitConflict(f"Delta log {self._table!r}: other writers replace commit {version}")

    def _replace(self, key: str, data: bytes, version: str) -> None:
        self._retries.run(lambda: self._objects.put(key, data, if_version=version))

    def checkpoint(
        self, snapshot: Snapshot, *, forget_removed_before_ms: int | None = None
    ) -> Snapshot:
        """Write a checkpoint of a state, without files that were removed before a time.

        Returns the state as the checkpoint has it.
        """
        if forget_removed_before_ms is not None:
            removed = {
                path: file
                for path, file in snapshot.removed.items()
                if (file.deletion_timestamp or 0) >= forget_removed_before_ms
            }
            snapshot = replace(snapshot, removed=MappingProxyType(removed))
        data = encode_checkpoint(snapshot)
        if failpoints.armed:
            failpoints.hit("archive.delta.checkpoint.before")
        self._put(self._checkpoint_key(snapshot.version), data)
        if failpoints.armed:
            failpoints.hit("archive.delta.checkpoint.after")
        self._hint(snapshot, len(data))
        return snapshot

    def _hint(self, snapshot: Snapshot, size_bytes: int) -> None:
        last = _LastCheckpoint(
            snapshot.version, count_actions(snapshot), size_bytes, len(snapshot.files)
        )
        self._put(self._last_key, msgspec.json.encode(last))

    def truncate(self, before: int, *, grace_s: float, now: datetime | None = None) -> int:
        """Delete log entries below the newest checkpoint at or before a version.

        Entries that are younger than the grace period stay. Returns the oldest version that can
        still be read.
        """
        entries = self._list()
        kept = self._base(entries, before)
        limit = (now or datetime.now(UTC)) - timedelta(seconds=grace_s)
        old = [
            (version, info)
            for kind in (entries.commits, entries.checkpoints)
            for version, info in kind.items()
            if version < kept.version
        ]
        young = min((version for version, info in old if info.modified > limit), default=None)
        doomed = [info.key for version, info in old if young is None or version < young]
        if not doomed:
            return self._oldest(entries)
        last = self._last_checkpoint()
        if last is None or last.version < kept.version:
            # A reader of an older state recognizes by this that commits were deleted.
            self._hint(kept, entries.checkpoints[kept.version].size)
        if failpoints.armed:
            failpoints.hit("archive.delta.truncate.before")
        self._retries.run(lambda: self._objects.delete_many(doomed))
        if failpoints.armed:
            failpoints.hit("archive.delta.truncate.after")
        return kept.version

    def _oldest(self, entries: _Entries) -> int:
        if 0 in entries.commits:
            return 0
        return min(entries.checkpoints, default=EMPTY.version)

    def _put(self, key: str, data: bytes) -> None:
        self._retries.run(lambda: self._objects.put(key, data))

    # Keys

    @property
    def _last_key(self) -> str:
        return f"{self._table}{_FOLDER}_last_checkpoint"

    def _commit_key(self, version: int) -> str:
        return f"{self._table}{_FOLDER}{version:020}.json"

    def _checkpoint_key(self, version: int) -> str:
        return f"{self._table}{_FOLDER}{version:020}.checkpoint.parquet"


_LAST = msgspec.json.Decoder(_LastCheckpoint)


def _truncated(table: str, version: int | None) -> HistoryTruncated:
    what = "a commit" if version is None else f"version {version}"
    return HistoryTruncated(
        f"Delta log {table!r}: {what} was removed",
        hint="Read a newer version.",
    )
