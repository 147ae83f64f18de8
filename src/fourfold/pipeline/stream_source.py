"""How far a stream may read: the files of its stores, looked at again and again.

A file that did not change since the last look is not opened. What a stream is given is durable:
before an offset is handed out, the logs of the files that it names are brought to the disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from fourfold import limits
from fourfold.errors import NotFound, SequenceRegression
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import plan
from fourfold.pipeline.cut import FileBound, StoreFile, UnreadableFile, files, stores
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import ScanTask
from fourfold.pipeline.tables import Column

Offset = dict[str, int]
"""For each file the seq up to which it was read. One that is not named was not read yet.

A file is named by its space and its id, `did:web:a#<id>`: a space that was deleted and made again
is another file, and is read from its first commit. Offsets of earlier versions lack the id.
"""
_ID_MARK = "#"


class FileFollower:
    """The files of a stream. `end_here` fixes how far it reads in all."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._looked: dict[str, tuple[tuple[int, ...], FileBound]] = {}
        self._final: dict[str, FileBound] | None = None

    def beginning(self) -> Offset:
        """Nothing was read yet; with `since`, what lies before it counts as read."""
        if self._options.since is None:
            return {}
        marks = cuts.take(self._options).marks
        return dict(sorted((self._key(mark), mark.since) for mark in marks))

    def admitted(self, start: Offset, rows: int | None) -> Offset:
        """How far a batch reads that begins at `start` and has about so many rows."""
        newest = self._newest() if self._final is None else self._final
        start = _with_ids(start, newest)
        _refuse_steps_back(start, newest)
        fresh = {key: mark for key, mark in newest.items() if mark.seq > start.get(key, 0)}
        if rows is None:
            ends = {key: mark.seq for key, mark in fresh.items()}
        else:
            ends = self._shares(start, fresh, rows)
        for key in ends:
            make_durable(fresh[key].path)
        return dict(sorted((start | ends).items()))

    def newest_offset(self) -> Offset:
        return {key: mark.seq for key, mark in sorted(self._newest().items())}

    def end_here(self) -> None:
        self._final = self._newest()

    def works(self, start: Offset, end: Offset, columns: tuple[Column, ...]) -> list[ScanTask]:
        """The tasks that read what lies between two offsets: every row of it, or an error."""
        wanted = [key for key, seq in end.items() if seq > _read_until(start, key)]
        known = self._marks(wanted)
        marks = [replace(known[key], since=_read_until(start, key), seq=end[key]) for key in wanted]
        return plan.plan(marks, self._options, columns, whole=True)

    def _found(self) -> list[StoreFile]:
        options = self._options
        return files(stores(options.root, options.roots), options.tables, options.space)

    def _place(self, file: StoreFile | FileBound) -> str:
        """Return where a file is: its space, since one store may be moved and its query goes on."""
        return file.space if self._options.root is not None else f"{file.root} {file.space}"

    def _key(self, mark: FileBound) -> str:
        """Return the name of a file in an offset."""
        return f"{self._place(mark)}{_ID_MARK}{mark.file_id}"

    def _newest(self) -> dict[str, FileBound]:
        """Every file as it is now. One that did not change since the last look is not opened."""
        marks: dict[str, FileBound] = {}
        for file in self._found():
            signature = _signature(file.path)
            looked = self._looked.get(file.path)
            if looked is not None and looked[0] == signature:
                marks[self._key(looked[1])] = looked[1]
                continue
            mark = self._look(file)
            if mark is not None:
                marks[self._key(mark)] = mark
                if _is_settled(signature):
                    self._looked[file.path] = (signature, mark)
        return marks

    def _look(self, file: StoreFile) -> FileBound | None:
        cut = cuts.take_of([file], self._options.tables, skip_bad=self._options.skip_bad)
        return cut.marks[0] if cut.marks else None

    def _marks(self, wanted: Sequence[str]) -> dict[str, FileBound]:
        """The files that an offset names. Those of a batch that is run again were not looked at."""
        found = {self._place(file): file for file in self._found()} if wanted else {}
        marks: dict[str, FileBound] = {}
        for key in wanted:
            place, _, file_id = key.partition(_ID_MARK)
            if place not in found:
                raise NotFound(
                    f"{self._options.location}: the space {place} has gone while a stream reads it",
                    hint="Put its file back, or begin a new query with another checkpoint.",
                )
            seen = cuts.look_at(found[place], self._options.tables)
            if isinstance(seen, UnreadableFile):
                raise cuts.refusal([seen])
            if file_id and seen.file_id != file_id:
                raise NotFound(
                    f"{self._options.location}: the space {place} was made again while a batch of "
                    "its commits was being read",
                    hint="Put its file back, or begin a new query with another checkpoint.",
                )
            marks[key] = seen
        return marks

    def _shares(self, start: Offset, fresh: Mapping[str, FileBound], rows: int) -> Offset:
        """How far each file is read in a batch of about `rows` rows: whole commits, and a share for
        each file. The first commit always fits, or the stream would stand still.
        """
        ends: Offset = {}
        left, files_left = rows, len(fresh)
        for key, mark in sorted(
            fresh.items(), key=lambda each: each[1].seq - start.get(each[0], 0)
        ):
            share = max(left // files_left, 1) if left else 0
            files_left -= 1
            most = max(share, 1)
            commits = self._commits(mark, start.get(key, 0), most)
            taken = 0
            for seq, count in commits:
                if taken + count > share and (taken or ends):
                    break
                taken += count
                ends[key] = seq
            else:
                if len(commits) < most:
                    # The newest seqs may have no commit: a restore skips some.
                    ends[key] = mark.seq
            left = max(left - taken, 0)
        return ends

    def _commits(self, mark: FileBound, after: int, most: int) -> Sequence[tuple[int, int]]:
        """The first commits beyond a seq, at most so many, with the rows that each has."""
        kind = self._options.tables.kinds[mark.kind]
        if kind.counted is not None:
            return kind.counted(mark, self._options, after, most)
        query = getattr(kind.queries, self._options.table.counted)
        return [(row[0], row[1]) for row in cuts.rows(mark, query, (after, mark.seq, most))]


def _read_until(start: Offset, key: str) -> int:
    """Return the seq up to which a file was read, also by an offset without ids."""
    return start.get(key, start.get(key.partition(_ID_MARK)[0], 0))


def _with_ids(start: Offset, newest: Mapping[str, FileBound]) -> Offset:
    """Return an offset whose files all have ids, without those that another file replaced."""
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


def _refuse_steps_back(start: Offset, newest: Mapping[str, FileBound]) -> None:
    for key, mark in newest.items():
        if mark.seq < start.get(key, 0):
            raise SequenceRegression(
                f"{mark.path}: goes to seq {mark.seq}, but the stream has read to {start[key]}",
                hint="The file was replaced by an older one: begin a new query.",
            )


def make_durable(path: str) -> None:
    """Bring the log of a file to the disk, whoever wrote it: what leaves the machine must last."""
    with suppress(FileNotFoundError):
        descriptor = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _signature(path: str) -> tuple[int, ...]:
    """What changes when a file or its log does."""
    found: list[int] = []
    for name in (path, f"{path}-wal"):
        try:
            facts = os.stat(name)  # noqa: PTH116 - it runs for every file
            found += [facts.st_size, facts.st_mtime_ns, facts.st_ino]
        except FileNotFoundError:
            found += [-1, 0, 0]
    return tuple(found)


def _is_settled(signature: tuple[int, ...]) -> bool:
    """Whether a later change would show: the clock of a file system has coarse ticks."""
    newest = max(signature[1], signature[4])
    return time.time_ns() - newest > limits.STREAM_SETTLED_S * 1_000_000_000
