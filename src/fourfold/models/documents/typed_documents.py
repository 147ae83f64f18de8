"""Documents of one type in a space: instances of a class instead of dictionaries.

    notes = space.typed(Note, prefix="note-")
    notes.set("note-1", Note("Hello"))           # refused unless it is a valid Note
    notes.patch("note-1", [...])                 # refused unless the result is a valid Note
    notes.get("note-1").title, notes.read("note-1", at=1)

The space itself does not know the type: documents can still be written without it, and one that is
not valid raises ContentError when it is read as an instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from fourfold import limits
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.document_type import (
    DocumentType,
    TypedPage,
    TypedState,
    point_before,
)
from fourfold.models.documents.records import Commit, Document, no_entity
from fourfold.models.documents.request import make_request, patch_operation
from fourfold.models.documents.validation import check_several
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

T = TypeVar("T")


class TypedDocuments(Generic[T]):
    """The documents of one type in a space. Made by `Space.typed`."""

    def __init__(self, space: Space, document_type: DocumentType[T]) -> None:
        self._space = space
        self._type = document_type

    # Writing

    def set(self, entity: str, document: T, *, branch: str = "") -> Commit:
        """Replace the whole document of an entity.

        Raises:
            InvalidInput: The document is not valid; nothing was written.
        """
        value = self._type.encode(document, self._type.check_id(entity))
        return self._space.set(entity, value, branch=branch)

    def patch(
        self, entity: str, patches: Sequence[Mapping[str, Any]], *, branch: str = ""
    ) -> Commit:
        """Apply patches to an entity's document; a missing entity starts from `{}`.

        Raises:
            InvalidInput: The patched document is not valid; nothing was written.
        """
        operation = patch_operation(self._type.check_id(entity), patches)
        session, local_seq = self._space.next_local()
        request = make_request(
            [operation], branch=branch, session=session, local_seq=local_seq, replayable=False
        )
        return self._space.submit(msgspec.structs.replace(request, check=self._type.check))

    def delete(self, entity: str, *, branch: str = "") -> Commit:
        """Delete an entity; its history stays readable."""
        return self._space.delete(self._type.check_id(entity), branch=branch)

    def encode(self, document: T) -> Document:
        """Return an instance as a plain document, for an operation of `Space.transact`.

        Raises:
            InvalidInput: The document is not valid.
        """
        return self._type.encode(document)

    # Reading

    def get(self, entity: str, branch: str = "", at: At = None) -> T:
        """Return the document of an entity.

        Raises:
            NotFound: The entity was never written, or is deleted.
            ContentError: The stored document is not valid.
        """
        state = self.read(entity, branch, at)
        if state is None or state.document is None:
            raise no_entity(self._space.did, entity)
        return state.document

    def read(self, entity: str, branch: str = "", at: At = None) -> TypedState[T] | None:
        """Return the state of an entity, or None if it was never written.

        `at` is a seq or a datetime, as in `Space.read`.
        """
        state = self._space.read(self._type.check_id(entity), branch, at)
        return self._type.to_state(entity, state)

    def read_many(
        self, entities: Iterable[str], branch: str = "", at: At = None
    ) -> dict[str, TypedState[T] | None]:
        """Return the states of several entities at one point in history, by id."""
        ids = [self._type.check_id(entity) for entity in check_several(entities, "ids")]
        states = self._space.read_many(ids, branch, at)
        return {entity: self._type.to_state(entity, state) for entity, state in states.items()}

    def ids(
        self, branch: str = "", at: At = None, *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Return the ids of the existing entities of this type, sorted, as `Space.ids` does."""
        return self._space.ids(branch, at, prefix=self._type.prefix, after=after, limit=limit)

    def history(
        self,
        entity: str,
        branch: str = "",
        *,
        after: int = 0,
        at: At = None,
        limit: int = limits.HISTORY_PAGE_ROWS,
    ) -> Rows[TypedState[T]]:
        """Return the state after each commit on an entity after the seq `after`, oldest first.

        A page has the commits of up to `limit` revisions.
        """
        self._type.check_id(entity)
        revisions = self._space.history(entity, branch, after=after, at=at, limit=limit)
        before = point_before(revisions, after)
        base = None if before is None else self._space.read(entity, *before)
        return Rows(self._type.to_states(entity, base, revisions), TypedState)

    def find(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        order_by: str | None = None,
        limit: int = limits.PAGE_ITEMS,
        after: str | None = None,
        at: At = None,
        branch: str = "",
        scan: bool = True,
    ) -> TypedPage[T]:
        """Return a page of the documents of this type that match a filter, as `Space.find` does.

        Documents whose ids lack the prefix are left out, so a page may be shorter than `limit`, or
        empty, and still have a next one.
        """
        page = self._space.find(
            where, order_by=order_by, limit=limit, after=after, at=at, branch=branch, scan=scan
        )
        return self._type.to_page(page)

    def __getitem__(self, entity: str) -> T:
        """Return the document of an entity on the default branch, like `get`."""
        return self.get(entity)

    def __contains__(self, entity: object) -> bool:
        """Return True if the entity exists on the default branch and has this type's prefix."""
        is_id = isinstance(entity, str) and entity.startswith(self._type.prefix)
        return is_id and entity in self._space

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the existing entities of this type, sorted."""
        at, after = self._space.position(), ""
        while page := self.ids(at=at, after=after, limit=limits.HISTORY_PAGE_ROWS):
            yield from page
            after = page[-1]

    def __len__(self) -> int:
        """Return the number of existing entities of this type."""
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Always True, also without documents."""
        return True

    def __repr__(self) -> str:
        return f"<{self._type.name} documents of {self._space.did}>"
