"""A space as lines of JSON: everything that is needed to build the same space somewhere else.

    {"kind": "space", ...}     first: the format, the DID, how far the export goes
    {"kind": "index", ...}     each declared index
    {"kind": "blob", ...}      each blob of the space
    {"kind": "commit", ...}    each commit in the order of its seq: who, when, what was asked
    {"kind": "end", ...}       last: how many commits, and a digest of every branch and entity

An import replays the commits through the same checks that they passed when they were made, and gets
the same seqs, branches, sessions, times and states; the digest in the last line proves it. Without
that line a file was cut off, and the import says so. An import that was stopped can be run again:
commits that are there already are compared and passed over. A space that has other commits is
refused.

Carrying a space over into a new space with the other history, and proving that nothing was lost.

    carrying.carry_over(space, store.space("did:key:z6Mk...", history="facts"))

Everything keeps its place: seqs, branches, sessions, requests, times, blobs. Both logs are then
read side by side: the same operations with the same texts, under the same seqs, on branches that
fork where they forked, give the same state of every entity at every seq of every branch. What each
history adds of its own (digests, facts, hashes, snapshots) is checked by verifying the new space.

A carry-over that was stopped can be run again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.blobs import TableBlobs
from fourfold.content import content_id
from fourfold.errors import CorruptData, InvalidInput, NotFound, Refused
from fourfold.kernel import Transaction
from fourfold.models.documents import reader, writer
from fourfold.models.documents.ancestry import branch_named, chain
from fourfold.models.documents.encoding import decode, trusted
from fourfold.models.documents.gc.commit_digests import same_request
from fourfold.models.documents.gc.horizon import check_after, check_point
from fourfold.models.documents.history import AppendedRows, HistoryReader
from fourfold.models.documents.indexes.declaration import HistoryScope, IndexInfo
from fourfold.models.documents.request import make_request
from fourfold.models.documents.space import Space

EXPORT_PAGE_COMMITS: Final = 200
"""Commits that an export reads, and an import writes, in one transaction."""

FORMAT_VERSION = 1
INDEXED_VERSION = 2
"""Version of an export with indexes, which earlier versions of Fourfold do not read."""

_HINT_BROKEN = (
    "What came before it may be imported already. Export again, and import the whole file."
)
_NOTHING = {"op": "delete", "id": "-"}
"""Placeholder for the operations of a request without any, so that the rest is checked."""

Progress = Callable[[str, int, int], None]
"""Called with a label, how many commits are done, and how many there are."""

_Time = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(\d{3})?Z$")]


class SpaceLine(msgspec.Struct, tag_field="kind", tag="space", kw_only=True):
    """The first line. Commits beyond `after`, up to and including `seq`, follow."""

    version: int
    did: str
    history: str
    after: int
    seq: int


class IndexLine(msgspec.Struct, tag_field="kind", tag="index", kw_only=True):
    """A declared index. Its entries are not exported: an import builds them."""

    name: str
    type: str
    """Kind of index."""
    paths: tuple[str, ...]
    unique: bool
    history: HistoryScope


class BlobLine(msgspec.Struct, tag_field="kind", tag="blob", kw_only=True):
    """Line of a bundle with the bytes of a blob."""

    hash: str
    content_type: str | None
    data: str
    """The bytes in base64."""


class CommitLine(msgspec.Struct, tag_field="kind", tag="commit", kw_only=True, omit_defaults=True):
    """One commit. `operations` is given only where the request itself does not hold them."""

    seq: int
    branch: str
    session: str
    local_seq: int
    created_at: _Time
    original: msgspec.Raw
    resolution: msgspec.Raw
    operations: list[dict[str, Any]] | None = None


class EndLine(msgspec.Struct, tag_field="kind", tag="end", kw_only=True):
    """Last line of a bundle, with the counts to check."""

    seq: int
    commits: int
    states: str


class ImportRequest(msgspec.Struct):
    """The parts of a stored request that a replay needs."""

    operations: list[dict[str, Any]] | None = None
    reads: dict[str, Any] | None = None
    preconditions: list[dict[str, Any]] = []
    merge: dict[str, Any] | None = None
    cmd: str | None = None
    name: str = ""
    parent: str = ""
    at: int = 0


class _StoredRequest(msgspec.Struct):
    operations: msgspec.Raw = msgspec.Raw()


class ExportResult(NamedTuple):
    """Counts of an export or an import."""

    seq: int
    commits: int
    blobs: int


_Line = SpaceLine | IndexLine | BlobLine | CommitLine | EndLine
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)
_asked = msgspec.json.Decoder(ImportRequest)
_kept = msgspec.json.Decoder(_StoredRequest)


# Out


def export(space: Space, *, after: int = 0, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the lines of the space as it is now, each with its newline.

    The log only grows, so it is read page by page, and the space may be written meanwhile.
    """
    until = space.seq()
    if type(after) is not int or not 0 <= after <= until:
        raise InvalidInput(f"after must be a seq from 0 to {until}, got {after!r:.100}")
    with space.view() as view:
        check_after(view, after, "an export")
    indexes = space.indexes.list()
    yield _encoded(
        SpaceLine(
            version=INDEXED_VERSION if indexes else FORMAT_VERSION,
            did=space.did,
            history=space.history_kind.name,
            after=after,
            seq=until,
        )
    )
    yield from map(_encoded, map(_index_line, indexes))
    yield from map(_encoded, _blobs(space))
    commits = 0
    for line in _commits(space, after, until):
        commits += 1
        yield _encoded(line)
        if progress:
            progress("", line.seq - after, until - after)
    yield _encoded(EndLine(seq=until, commits=commits, states=states_digest(space, until)))


def _index_line(info: IndexInfo) -> IndexLine:
    return IndexLine(
        name=info.name,
        type=info.kind,
        paths=info.paths,
        unique=info.unique,
        history=info.history,
    )


def _encoded(line: _Line) -> bytes:
    return _encoder.encode(line) + b"\n"


def _blobs(space: Space) -> Iterator[BlobLine]:
    blobs = TableBlobs(space.database)
    for name in blobs.ids():
        yield BlobLine(
            hash=name,
            content_type=blobs.content_type(name),
            data=base64.b64encode(blobs.get(name)).decode("ascii"),
        )


def _commits(space: Space, after: int, until: int) -> Iterator[CommitLine]:
    while after < until:
        with space.view() as view:
            check_after(view, after, "the rest of an export")
            rows = view.all(view.sql.commits, (after, until, EXPORT_PAGE_COMMITS))
            page = [_commit_line(view, row) for row in rows]
        if not page:
            return
        yield from page
        after = page[-1].seq


def _commit_line(view: HistoryReader, row: tuple[Any, ...]) -> CommitLine:
    seq, branch, session, local_seq, created_at, original, resolution = row
    done = [
        _operation(entity, op, data)
        for _, entity, _, _, op, data in view.rows(view.sql.revisions_of_commit, (seq,))
    ]
    return CommitLine(
        seq=seq,
        branch=branch,
        session=session,
        local_seq=local_seq,
        created_at=created_at,
        original=msgspec.Raw(original.encode()),
        resolution=msgspec.Raw(resolution.encode()),
        operations=done if done and not _says(original, done) else None,
    )


def _operation(entity: str, op: str, data: str | None) -> dict[str, Any]:
    operation: dict[str, Any] = {"op": op, "id": entity}
    if data is not None:
        operation["value" if op == "set" else "patches"] = msgspec.Raw(data.encode())
    return operation


def _says(original: str, operations: list[dict[str, Any]]) -> bool:
    """Return True if the request contains exactly these operations, as nearly all do."""
    return bytes(_kept.decode(original).operations) == trusted(operations).encode()


def states_digest(space: Space, at: int) -> str:
    """Return a fingerprint of every branch and of its own entities."""
    hasher = hashlib.sha256()
    with space.view() as view:
        branches = [row for row in view.all(view.sql.branches) if row[3] <= at]
    for name, parent, fork_seq, created_seq, *_ in branches:
        hasher.update(trusted([name, parent, fork_seq, created_seq]).encode())
        with space.view() as view:
            check_after(view, at, "a digest of all states")
            own = [entity for entity, _ in view.rows(view.sql.last_words, (name, at, ""))]
        for start in range(0, len(own), EXPORT_PAGE_COMMITS):
            with space.view() as view:
                check_after(view, at, "a digest of all states")
                links = chain(view, name, at)
                for entity in own[start : start + EXPORT_PAGE_COMMITS]:
                    entry = reader.entry(view, links, entity)
                    assert entry is not None
                    state = [entity, entry.seq, entry.op, entry.document]
                    hasher.update(trusted(state).encode())
    return f"sha256:{hasher.hexdigest()}"


# In


def opening(lines: Iterable[bytes]) -> SpaceLine:
    """Parse the first line. The caller needs it before it creates a space for the others."""
    _, first = next(_lines(lines), (0, None))
    if not isinstance(first, SpaceLine):
        raise InvalidInput(
            "not the export of a space: the first line is not its header",
            hint="Make one with `fourfold space export ROOT DID --output FILE`.",
        )
    if first.version not in (FORMAT_VERSION, INDEXED_VERSION):
        raise InvalidInput(
            f"the export has format {first.version}; this Fourfold reads {INDEXED_VERSION}",
            hint="Upgrade: `pip install --upgrade fourfold`.",
        )
    return first


def replay(space: Space, lines: Iterable[bytes], progress: Progress | None = None) -> ExportResult:
    """Build the exported space here, and prove that it is the same."""
    try:
        remaining = iter(lines)
    except TypeError as error:
        hint = "A file in binary mode does."
        raise InvalidInput("an export must be an iterable of lines", hint=hint) from error
    first = opening(islice(remaining, 1))
    newest = _check_start(space, first)
    importing = _Import(space, first, newest)
    numbered = _lines(remaining, start=2)
    for number, line in numbered:
        if isinstance(line, CommitLine):
            importing.take(number, line)
            if progress:
                progress("", line.seq - first.after, first.seq - first.after)
        elif isinstance(line, BlobLine):
            importing.take_blob(number, line)
        elif isinstance(line, IndexLine):
            importing.indexes.append(
                IndexInfo(line.name, line.type, line.paths, line.unique, line.history, "building")
            )
        elif isinstance(line, EndLine):
            importing.finish(line)
            if next(numbered, None) is not None:
                raise InvalidInput(f"line {number + 1}: something follows the last line")
            return ExportResult(line.seq, importing.commits, importing.blobs)
        else:
            raise InvalidInput(f"line {number}: a second export begins here")
    importing.flush()
    raise InvalidInput(
        "the export was cut off: its last line is missing",
        hint=_HINT_BROKEN,
    )


def _lines(lines: Iterable[bytes], start: int = 1) -> Iterator[tuple[int, _Line]]:
    for number, text in enumerate(lines, start=start):
        if not isinstance(text, bytes):
            raise InvalidInput(f"line {number} of the export is {type(text).__name__}, not bytes")
        if not text.strip():
            continue
        try:
            yield number, _decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(
                f"line {number} of the export is not readable: {error}", hint=_HINT_BROKEN
            ) from error


def _check_start(space: Space, first: SpaceLine) -> int:
    newest = space.seq()
    if newest < first.after:
        raise Refused(
            f"the export begins after seq {first.after}, and the space is at seq {newest}",
            hint="Import the previous export first.",
        )
    return newest


class _Import:
    """A running import. Commits are buffered and written several per transaction."""

    def __init__(self, space: Space, first: SpaceLine, newest: int) -> None:
        self.commits = 0
        self.blobs = 0
        self.indexes: list[IndexInfo] = []
        self._space = space
        self._newest = newest
        self._last = first.after
        self._same_history = first.history == space.history_kind.name
        self._waiting: list[tuple[int, CommitLine]] = []
        self._waiting_bytes = 0

    def take(self, number: int, line: CommitLine) -> None:
        if line.seq <= self._last:
            raise InvalidInput(f"line {number}: seq {line.seq} follows seq {self._last}")
        self._last = line.seq
        if line.seq <= self._newest:
            self._compare(number, line)
            return
        self.commits += 1
        self._waiting.append((number, line))
        self._waiting_bytes += len(bytes(line.original))
        full = len(self._waiting) >= EXPORT_PAGE_COMMITS
        if full or self._waiting_bytes >= limits.GROUP_BYTES_MAX:
            self.flush()

    def take_blob(self, number: int, line: BlobLine) -> None:
        try:
            data = base64.b64decode(line.data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput(f"line {number}: the blob is not base64: {error}") from error
        name = content_id(data)
        if name != line.hash:
            raise CorruptData(f"line {number}: the blob {line.hash} has the bytes of {name}")
        TableBlobs(self._space.database).put(data, content_type=line.content_type)
        self.blobs += 1

    def flush(self) -> None:
        """Write what is waiting: all of it or nothing."""
        if not self._waiting:
            return
        with self._space.database.write() as txn:
            for number, line in self._waiting:
                self._write(txn, number, line)
            txn.after_commit(self._space.waiters.notify_all)
        self._waiting.clear()
        self._waiting_bytes = 0

    def finish(self, line: EndLine) -> None:
        self.flush()
        digest = states_digest(self._space, line.seq)
        if self._last != line.seq or digest != line.states:
            raise CorruptData(
                "the states after the import are not those of the space that was exported",
                hint="Do not use this space; export again and import into a new one.",
            )
        self._space.indexes.declare(self.indexes)

    def _write(self, txn: Transaction, number: int, line: CommitLine) -> None:
        history = self._space.history_kind
        # Seqs that were skipped, after a restore, stay skipped.
        txn.execute(history.seq.advance, (line.seq - 1,))
        request = _request_of(number, line)
        if request.cmd in ("branch/create", "branch/delete"):
            self._lifecycle(txn, line, request)
        else:
            self._transaction(txn, line, request)
        view = history.view(txn)
        row = view.one(view.sql.commit_by_seq, (line.seq,))
        if row is None or (self._same_history and row[6].encode() != bytes(line.resolution)):
            raise CorruptData(
                f"line {number}: commit {line.seq} does not become what it was",
                hint="The export was changed after it was made. Export again.",
            )

    def _transaction(self, txn: Transaction, line: CommitLine, original: ImportRequest) -> None:
        # A merge of branches that had made the same changes has no operations of its own.
        bare = original.merge is not None and not original.operations
        request = make_request(
            [_NOTHING] if bare else original.operations or [],
            branch=line.branch,
            session=line.session,
            local_seq=line.local_seq,
            replayable=True,
            reads=original.reads,
            preconditions=original.preconditions,
        )
        request = msgspec.structs.replace(
            request,
            steps=() if bare else request.steps,
            original=bytes(line.original).decode(),
            created_at=line.created_at,
        )
        # The space's own cache must hear of it, or it would go on showing what was before.
        cache = self._space._cache  # noqa: SLF001
        writer.commit(txn, self._space.history_kind, request, cache)

    def _lifecycle(self, txn: Transaction, line: CommitLine, request: ImportRequest) -> None:
        history = self._space.history_kind
        view = history.view(txn)
        seq = txn.claim(history.seq)
        # Written as here: another program may have spaced the line in its own way.
        original = trusted(decode(line.original))
        name = (line.branch, line.session, line.local_seq)
        history.append(txn, AppendedRows(seq, *name, original, (), created_at=line.created_at))
        if request.cmd == "branch/delete":
            branch_named(view, request.name)
            txn.execute(view.sql.end_branch, (request.name,))
            return
        branch_named(view, request.parent)
        if not 0 <= request.at < seq:
            raise NotFound(
                f"the branch {request.name!r} forks at seq {request.at}, which is not there"
            )
        check_point(view, request.parent, request.at)
        txn.execute(view.sql.insert_branch, (request.name, request.parent, request.at, seq))

    def _compare(self, number: int, line: CommitLine) -> None:
        """Raise unless a commit that exists already equals this one."""
        with self._space.view() as view:
            row = view.one(view.sql.commit_by_seq, (line.seq,))
        mine = (line.branch, line.session, line.local_seq)
        request = bytes(line.original).decode()
        if (
            row is None
            or (row[1], row[2], row[3]) != mine
            or not same_request(row[5], line.branch, line.local_seq, request)
        ):
            raise Refused(
                f"line {number}: the space has another commit at seq {line.seq}",
                hint="Import into a new space, or into one that was made from the same export.",
            )


def _request_of(number: int, line: CommitLine) -> ImportRequest:
    try:
        request = _asked.decode(line.original)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"line {number}: commit {line.seq} is not readable: {error}") from error
    if line.operations is not None:
        request.operations = line.operations
    return request


Row = tuple[Any, ...]


def carry_over(source: Space, target: Space, progress: Progress | None = None) -> ExportResult:
    """Copy the whole history of `source` into `target`, which is new or partly copied."""
    if not isinstance(source, Space) or not isinstance(target, Space):
        raise InvalidInput("only a space is carried over, and only into a space")
    if source.database is target.database:
        raise InvalidInput(
            f"{source.did} cannot be carried over into itself", hint="Choose another DID."
        )
    carried = replay(target, export(source), progress)
    mismatch = difference(source, target, carried.seq)
    problems = [*map(str, target.verify())] if mismatch is None else [mismatch]
    if problems:
        raise CorruptData(
            f"{target.did} is not what {source.did} was: {problems[0]}",
            hint=f"Do not use {target.did}. Verify {source.did}, and carry it over again.",
        )
    return carried


def difference(one: Space, other: Space, until: int) -> str | None:
    """Return the first difference up to a seq between two spaces, or None."""
    pairs = (
        ("branch", _branches(one, until), _branches(other, until)),
        ("log", _log(one, until), _log(other, until)),
    )
    for what, mine, theirs in pairs:
        for row, counterpart in zip_longest(mine, theirs):
            if row != counterpart:
                return f"its {what} has {_shown(counterpart)} and not {_shown(row)}"
    return None


def _shown(row: Row | None) -> str:
    return "nothing" if row is None else f"{row!r:.120}"


def _branches(space: Space, until: int) -> list[Row]:
    with space.view() as view:
        rows = view.all(view.sql.branches)
    return [
        (name, parent, fork_seq, created_seq, created_at if parent is not None else None)
        for name, parent, fork_seq, created_seq, _, _, created_at in rows
        if created_seq <= until
    ]


def _log(space: Space, until: int) -> Iterator[Row]:
    """Yield every commit, each followed by its operations, page by page."""
    after = 0
    while after < until:
        with space.view() as view:
            check_after(view, after, "a comparison")
            commits = view.all(view.sql.commits, (after, until, EXPORT_PAGE_COMMITS))
            page = [
                # What was decided is each history's own affair, and not compared.
                (commit[:6], view.all(view.sql.revisions_of_commit, (commit[0],)))
                for commit in commits
            ]
        for commit, operations in page:
            yield commit
            yield from operations
        if not commits:
            return
        after = commits[-1][0]
