"""Progress of a streaming read over the files of its stores, polled for changes.

A file that has not changed since the last poll is not opened. A stream only returns durable rows:
before an offset is returned, the WALs of its files are synced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from fourfold.durability import sync_file
from fourfold.errors import NotFound, SequenceRegression
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import plan
from fourfold.pipeline.cut import FileBound, UnreadableFile
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import ScanTask
from fourfold.pipeline.store_files import StoreFile, find_files, find_stores
from fourfold.query.tables import Column

STREAM_SETTLED_S: Final = 2
"""A file modified more recently is inspected again: its times may not show a later change."""

Offset = dict[str, int]
"""For each file the seq up to which it was read; a missing file was not read yet.

A file is identified by its space and its id, `did:web:a#<id>`: a space that was deleted and created
again is another file, and is read from its first commit. Offsets of earlier versions lack the id.
"""
_ID_MARK = "#"


class FileFollower:
    """The files of a streaming read. `freeze_end` fixes where the read ends."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._inspected: dict[str, tuple[tuple[int, ...], FileBound]] = {}
        self._final: dict[str, FileBound] | None = None

    def start_offset(self) -> Offset:
        """Return the initial offset: empty, or the position of the option `since`."""
        if self._options.since is None:
            return {}
        bounds = cuts.read_cut(self._options).bounds
        return dict(sorted((self._key(bound), bound.since) for bound in bounds))

    def end_offset(self, start: Offset, rows: int | None) -> Offset:
        """Return the end of a batch that begins at `start` and has about `rows` rows."""
        newest = self._newest() if self._final is None else self._final
        start = _with_ids(start, newest)
        _check_regression(start, newest)
        fresh = {key: bound for key, bound in newest.items() if bound.seq > start.get(key, 0)}
        if rows is None:
            ends = {key: bound.seq for key, bound in fresh.items()}
        else:
            ends = self._shares(start, fresh, rows)
        for key in ends:
            make_durable(fresh[key].path)
        return dict(sorted((start | ends).items()))

    def newest_offset(self) -> Offset:
        """Return the current end of all files."""
        return {key: bound.seq for key, bound in sorted(self._newest().items())}

    def freeze_end(self) -> None:
        """End the read at the current end of all files."""
        self._final = self._newest()

    def plan_tasks(self, start: Offset, end: Offset, columns: tuple[Column, ...]) -> list[ScanTask]:
        """Return the tasks that read all rows between two offsets; missing rows are an error."""
        keys = [key for key, seq in end.items() if seq > _read_until(start, key)]
        bounds_by_key = self._bounds(keys)
        bounds = [
            replace(bounds_by_key[key], since=_read_until(start, key), seq=end[key]) for key in keys
        ]
        return plan.plan(bounds, self._options, columns, whole=True)

    def _files(self) -> list[StoreFile]:
        options = self._options
        return find_files(find_stores(options.root, options.roots), options.tables, options.space)

    def _place(self, file: StoreFile | FileBound) -> str:
        """Return the location of a file: its space, so that one store may be moved."""
        return file.space if self._options.root is not None else f"{file.root} {file.space}"

    def _key(self, bound: FileBound) -> str:
        """Return the key of a file in an offset."""
        return f"{self._place(bound)}{_ID_MARK}{bound.file_id}"

    def _newest(self) -> dict[str, FileBound]:
        """Return the current bound of every file, opening only those that changed."""
        bounds: dict[str, FileBound] = {}
        for file in self._files():
            signature = _signature(file.path)
            cached = self._inspected.get(file.path)
            if cached is not None and cached[0] == signature:
                bounds[self._key(cached[1])] = cached[1]
                continue
            bound = self._inspect(file)
            if bound is not None:
                bounds[self._key(bound)] = bound
                if _is_settled(signature):
                    self._inspected[file.path] = (signature, bound)
        return bounds

    def _inspect(self, file: StoreFile) -> FileBound | None:
        cut = cuts.read_files_cut([file], self._options.tables, skip_bad=self._options.skip_bad)
        return cut.bounds[0] if cut.bounds else None

    def _bounds(self, keys: Sequence[str]) -> dict[str, FileBound]:
        """Return the bounds of the files in an offset; those of a repeated batch are unknown."""
        files_by_place = {self._place(file): file for file in self._files()} if keys else {}
        bounds: dict[str, FileBound] = {}
        for key in keys:
            place, _, file_id = key.partition(_ID_MARK)
            if place not in files_by_place:
                raise NotFound(
                    f"{self._options.location}: space {place} was removed while a stream reads it",
                    hint="Restore its file, or start a new query with another checkpoint.",
                )
            bound_ = cuts.inspect_file(files_by_place[place], self._options.tables)
            if isinstance(bound_, UnreadableFile):
                raise cuts.unreadable_error([bound_])
            if file_id and bound_.file_id != file_id:
                raise NotFound(
                    f"{self._options.location}: space {place} was created again while a batch "
                    "was being read",
                    hint="Restore its file, or start a new query with another checkpoint.",
                )
            bounds[key] = bound_
        return bounds

    def _shares(self, start: Offset, fresh: Mapping[str, FileBound], rows: int) -> Offset:
        """Return where each file ends in a batch of about `rows` rows: whole commits, an equal
        share for each file. The first commit always fits, or the stream would not advance.
        """
        ends: Offset = {}
        left, files_left = rows, len(fresh)
        for key, bound in sorted(
            fresh.items(), key=lambda item: item[1].seq - start.get(item[0], 0)
        ):
            share = max(left // files_left, 1) if left else 0
            files_left -= 1
            limit = max(share, 1)
            commits = self._commits(bound, start.get(key, 0), limit)
            row_count = 0
            for seq, count in commits:
                if row_count + count > share and (row_count or ends):
                    break
                row_count += count
                ends[key] = seq
            else:
                if len(commits) < limit:
                    # The newest seqs may have no commit: a restore skips some.
                    ends[key] = bound.seq
            left = max(left - row_count, 0)
        return ends

    def _commits(self, bound: FileBound, after: int, limit: int) -> Sequence[tuple[int, int]]:
        """Return the first `limit` commits after a seq, each with its number of rows."""
        kind = self._options.tables.kinds[bound.kind]
        if kind.count_rows is not None:
            return kind.count_rows(bound, self._options, after, limit)
        query = getattr(kind.queries, self._options.table.count_query)
        return [
            (row[0], row[1]) for row in cuts.fetch_rows(bound, query, (after, bound.seq, limit))
        ]


def _read_until(start: Offset, key: str) -> int:
    """Return the seq up to which a file was read, also for an offset without ids."""
    return start.get(key, start.get(key.partition(_ID_MARK)[0], 0))


def _with_ids(start: Offset, newest: Mapping[str, FileBound]) -> Offset:
    """Return an offset whose files all have ids, without files that were replaced."""
    here = {key.partition(_ID_MARK)[0]: key for key in newest}
    offset: Offset = {}
    for key, seq in start.items():
        place, _, file_id = key.partition(_ID_MARK)
        current = here.get(place)
        if current is None or key == current:
            offset[key] = seq
        elif not file_id:
            offset[current] = seq
    return offset


def _check_regression(start: Offset, newest: Mapping[str, FileBound]) -> None:
    """Raise SequenceRegression if a file is older than the offset."""
    for key, bound in newest.items():
        if bound.seq < start.get(key, 0):
            raise SequenceRegression(
                f"{bound.path}: expected seq {start[key]} or later, found {bound.seq}",
                hint="The file was replaced by an older one: start a new query.",
            )


def make_durable(path: str) -> None:
    """Sync the WAL to disk, including commits of other processes: read rows must be durable."""
    with suppress(FileNotFoundError):
        descriptor = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)


def _signature(path: str) -> tuple[int, ...]:
    """Return a value that changes with the file or its WAL."""
    values: list[int] = []
    for name in (path, f"{path}-wal"):
        try:
            status = os.stat(name)  # noqa: PTH116 - it runs for every file
            values += [status.st_size, status.st_mtime_ns, status.st_ino]
        except FileNotFoundError:
            values += [-1, 0, 0]
    return tuple(values)


def _is_settled(signature: tuple[int, ...]) -> bool:
    """Return True if any later change would alter the signature, despite coarse file clocks."""
    newest = max(signature[1], signature[4])
    return time.time_ns() - newest > STREAM_SETTLED_S * 1_000_000_000
