# Generated from ../coroutines/remote_typed_documents.py by `make generate`: change that file.
"""Documents of one type in a space of a server, for threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from fourfold import limits
from fourfold.client.containers import TypedDocumentsContainer
from fourfold.errors import PreconditionFailed
from fourfold.models.documents import patch as patches_of
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.document_type import (
    DocumentType,
    TypedPage,
    TypedState,
    point_before,
)
from fourfold.models.documents.records import Commit, Document, no_entity
from fourfold.models.documents.request import patch_operation
from fourfold.models.documents.validation import check_several
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.client.threads.remote_spaces import RemoteSpace

T = TypeVar("T")
PATCH_ATTEMPTS: Final = 8
"""Times that a patch is checked again because another writer changed its entity meanwhile."""


class RemoteTypedDocuments(TypedDocumentsContainer[T], Generic[T]):
    """The documents of one type in a space of a server, with the methods of `Space.typed`."""

    def __init__(self, space: RemoteSpace, document_type: DocumentType[T]) -> None:
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

        The document is read and checked here, and patched only if it has not changed since.

        Raises:
            InvalidInput: The patched document is not valid; nothing was written.
            PreconditionFailed: Other writers changed the entity at each of several attempts.
        """
        operation = patch_operation(self._type.check_id(entity), patches)
        for attempt in range(1, PATCH_ATTEMPTS + 1):
            state = self._space.read(entity, branch)
            document = {} if state is None or state.document is None else state.document
            self._type.check(entity, patches_of.apply(document, operation["patches"]))
            seq = 0 if state is None else state.seq
            condition = {"kind": "seq", "id": entity, "seq": seq}
            try:
                return self._space.transact([operation], branch=branch, preconditions=[condition])
            except PreconditionFailed:
                if attempt == PATCH_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def delete(self, entity: str, *, branch: str = "") -> Commit:
        """Delete an entity; its history stays readable."""
        return self._space.delete(self._type.check_id(entity), branch=branch)

    def encode(self, document: T) -> Document:
        """Return an instance as a plain document, for an operation of `transact` of the space.

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

        `at` is a seq or a datetime, as in `read` of the space.
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
        """Return the ids of the existing entities of this type, sorted."""
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
        """Return a page of the documents of this type that match a filter, as `find` of the space.

        Documents whose ids lack the prefix are left out, so a page may be shorter than `limit`, or
        empty, and still have a next one.
        """
        page = self._space.find(
            where, order_by=order_by, limit=limit, after=after, at=at, branch=branch, scan=scan
        )
        return self._type.to_page(page)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the existing entities of this type, sorted."""
        for entity in self.ids():
            yield entity

    def __repr__(self) -> str:
        return f"<{self._type.name} documents of {self._space.did}>"
