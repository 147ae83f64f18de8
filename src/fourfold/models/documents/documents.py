"""The spaces of a store, as one collection."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fourfold.errors import NotFound
from fourfold.kernel import Database
from fourfold.models.documents.file_verify import history_in, verify_file
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.gc.records import GcReport
from fourfold.models.documents.model import MODEL
from fourfold.models.documents.space import Space
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
    bytes: int
    """Size of the file, without its WAL."""


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

    def list(self) -> Rows[SpaceInfo]:
        """Return the spaces, sorted by DID. Opens each file for reading, without its lock."""
        return Rows(map(self._info, self), SpaceInfo)

    def verify(self) -> builtins.list[Problem]:
        """Check every space; return the problems found, each with its file."""
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
        return did in builtins.list(self)

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

    def _info(self, did: str) -> SpaceInfo:
        path = self._path(did)
        with read_space(path, did) as space:
            branches = len(space.branches.list())
            kind = space.history_kind.name
            return SpaceInfo(did, kind, space.seq(), branches, path.stat().st_size)


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
