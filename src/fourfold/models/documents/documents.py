"""The spaces of a store, as one collection."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from fourfold.arguments import check_arguments
from fourfold.errors import InvalidInput, NotFound
from fourfold.kernel import Database
from fourfold.models.documents.ancestry import At, seq_of
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.gc.records import GcReport
from fourfold.models.documents.histories import history_in
from fourfold.models.documents.model import MODEL
from fourfold.models.documents.space import Space
from fourfold.models.documents.timestamps import comparable, created_at, stored_time
from fourfold.models.documents.validation import check_did
from fourfold.models.problem import Problem
from fourfold.tabular import Rows

_LOCATION = MODEL.location


class SpaceInfo(msgspec.Struct, frozen=True):
    """A space as a list shows it."""

    did: str
    history: str
    """Kind of history: "revisions" or "facts"."""
    seq: int
    """Seq of the newest commit."""
    branches: int
    bytes: int | None
    """Size of the file, without its WAL; None in the past, for which it is not stored."""


@check_arguments()
class Documents:
    """The spaces of a store. Use `store.documents`.

        space = store.documents.create("did:web:notes.example")
        for info in store.documents.list(): ...

    It behaves like a mapping of spaces by DID: `documents[did]`, `did in documents`, `len`,
    iteration.
    """

    def __init__(self, root: Path, open_space: Callable[[str, str | None], Space]) -> None:
        self._root = root
        self._open_space = open_space

    def create(self, did: str, history: str | None = None) -> Space:
        """Return the space with this DID; create it if it does not exist.

        Args:
            did: The DID of the space.
            history: Kind of history of a new space: "revisions" (the default) or "facts".

        Raises:
            Refused: The space exists with another kind of history.
        """
        return self._open_space(did, history)

    def open(self, did: str) -> Space:
        """Return a handle of an existing space.

        Raises:
            NotFound: There is no space with this DID.
        """
        check_did(did)
        if did not in self:
            raise NotFound(
                f"unknown space {did!r}", hint="Create it with store.documents.create(did)."
            )
        return self._open_space(did, None)

    def list(self, at: datetime | None = None) -> Rows[SpaceInfo]:
        """Return the spaces, sorted by DID. Opens each file for reading, without its lock.

        With `at`, they are the spaces that existed at that time, as they were.
        """
        infos = (self._info(did, at) for did in self)
        return Rows((info for info in infos if info is not None), SpaceInfo)

    def changed_at(self, did: str, at: datetime) -> str | None:
        """Return the time of the last commit of a space by a time, or that of its creation.

        None if the space did not exist then. Opens its file for reading, without its lock.
        """
        with read_space(self._path(did), did) as space, space.view() as view:
            created = created_at(view)
            if created > stored_time(at):
                return None
            row = view.one(view.sql.commit_before, (seq_of(view, at),))
            return created if row is None else comparable(row[1])

    def verify(self) -> builtins.list[Problem]:
        """Check every space; return the problems found, each with its file."""
        from fourfold.models.documents.file_verify import verify_file  # noqa: PLC0415 - rare

        return [
            msgspec.structs.replace(problem, file=str(self._path(did).relative_to(self._root)))
            for did in self
            for problem in verify_file(self._path(did))
        ]

    def gc(self, policy: GcPolicy | None = None, *, dry_run: bool = False) -> dict[str, GcReport]:
        """Remove the history that `policy`, by default that of each space, does not retain.

        Returns a report for each space; those without a policy are left out.
        """
        reports = {}
        for did in self:
            space = self._open_space(did, None)
            if policy is not None or space.gc_policy() is not None:
                reports[did] = space.gc(policy, dry_run=dry_run)
        return reports

    def __getitem__(self, did: str) -> Space:
        """Return a handle of an existing space, like `open`."""
        return self.open(did)

    def __contains__(self, did: object) -> bool:
        try:
            return isinstance(did, str) and self._path(did).exists()
        except InvalidInput:
            return False

    def __len__(self) -> int:
        return len(_LOCATION.names(self._root))

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return map(_LOCATION.id_of, _LOCATION.names(self._root))

    def __repr__(self) -> str:
        return f"<Documents in {self._root}>"

    def _path(self, did: str) -> Path:
        return _LOCATION.path(self._root, _LOCATION.name(did))

    def _info(self, did: str, at: datetime | None) -> SpaceInfo | None:
        with read_space(self._path(did), did) as space:
            return describe_space(space, at)


def describe_space(space: Space, at: At = None) -> SpaceInfo | None:
    """Return a space as a list shows it, now or at a point; None if it did not exist then.

    Raises:
        InvalidInput: `at` is a seq after the newest.
    """
    if isinstance(at, datetime) and not space.existed_at(at):
        return None
    with space.view() as view:
        seq = seq_of(view, at)
    return SpaceInfo(
        space.did,
        space.history_kind.name,
        seq,
        len(space.branches.list(at=None if at is None else seq)),
        space.database.path.stat().st_size if at is None else None,
    )


@contextmanager
def read_space(path: Path, did: str) -> Iterator[Space]:
    """Open the space in a file for reading, without a store and without its lock."""
    history = history_in(path)
    with Database.open(
        path,
        profile=history.profile,
        migrations=history.migrations,
        sequences=(history.seq,),
        mode="r",
    ) as database:
        yield Space(did, database, history)
