"""Documents of one Python type: conversion, validation, and the ids that have the type.

A type is a class of msgspec (`Struct`), a dataclass, a `TypedDict` or a model of Pydantic. Pydantic
is recognized by its methods and never imported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, get_origin

import msgspec
from msgspec import inspect

from fourfold import html
from fourfold.content.json_pointer import format_pointer
from fourfold.errors import ContentError, InvalidInput
from fourfold.models.documents import fold
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.indexes.finder import FindPage, FindPlan
from fourfold.models.documents.records import Document, Op, Revision, State
from fourfold.models.documents.validation import check_entity
from fourfold.tabular import Rows

T = TypeVar("T")
ERRORS_MAX: Final = 10
"""Problems of one document that an error lists."""
_WITH_PATH = re.compile(r"(?P<reason>.*) - at (?:`key` in )?`\$(?P<path>.*)`", re.DOTALL)
_STEPS = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


class TypedState(msgspec.Struct, Generic[T], frozen=True):
    """The state of an entity with its document as an instance of a type.

    A deleted entity has `op == "delete"` and no document.
    """

    document: T | None
    op: Op
    seq: int

    @property
    def deleted(self) -> bool:
        """True if the entity is deleted."""
        return self.op == "delete"

    def _repr_html_(self) -> str:
        return html.fragment(html.block(repr(self.document)), caption=f"{self.op} at {self.seq}")


class TypedMatch(msgspec.Struct, Generic[T], frozen=True):
    """A document that matches a filter: its id, the instance, and the seq of its last change."""

    id: str
    document: T
    seq: int


class TypedPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of matches. Pass `next` as `after` for the next one; None if there is none."""

    items: Rows[TypedMatch[T]]
    next: str | None
    plan: FindPlan
    seq: int
    """The seq at which the documents were read."""

    def __iter__(self) -> Iterator[TypedMatch[T]]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class _Mismatch(Exception):
    """A document is not valid; `problems` are pairs of a JSON Pointer and a reason."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__(problems)
        self.problems = problems


class _Codec(Protocol[T]):
    def dump(self, value: T) -> Any:
        """Return the value as JSON."""

    def load(self, document: Document) -> T:
        """Return an instance; raise _Mismatch for a document that is not valid."""


class _MsgspecCodec(Generic[T]):
    def __init__(self, model: type[T]) -> None:
        self._model = model

    def dump(self, value: T) -> Any:
        return msgspec.to_builtins(value, str_keys=True)

    def load(self, document: Document) -> T:
        try:
            return msgspec.convert(document, self._model, str_keys=True)
        except msgspec.ValidationError as error:
            match = _WITH_PATH.fullmatch(str(error))
            reason, path = (match["reason"], match["path"]) if match else (str(error), "")
            steps = (name or index.replace("...", "*") for name, index in _STEPS.findall(path))
            raise _Mismatch([(_pointer(steps), reason)]) from error


class _PydanticCodec(Generic[T]):
    def __init__(self, model: Any) -> None:
        self._model = model

    def dump(self, value: Any) -> Any:
        return value.model_dump(mode="json", by_alias=True, warnings=False)

    def load(self, document: Document) -> T:
        try:
            # As JSON, in which a time is a text also for a strict model.
            value: T = self._model.model_validate_json(trusted(document))
        except ValueError as error:
            raise _Mismatch(list(_pydantic_problems(error))) from error
        return value


def _pydantic_problems(error: Any) -> Iterator[tuple[str, str]]:
    for problem in error.errors(include_url=False, include_input=False)[:ERRORS_MAX]:
        yield _pointer(problem["loc"]), problem["msg"]


def _pointer(steps: Iterable[object]) -> str:
    return format_pointer(map(str, steps))


class DocumentType(Generic[T]):
    """A Python type of documents, and the prefix of the ids that have it.

    Raises:
        InvalidInput: Instances of the type are not JSON objects.
    """

    def __init__(self, model: type[T], prefix: str = "") -> None:
        self.name = getattr(model, "__name__", str(model))
        if not isinstance(prefix, str):
            raise InvalidInput(f"prefix must be a string, got {prefix!r:.100}")
        self.prefix = prefix
        self._class, self._codec = _make_codec(model)

    def check_id(self, entity: str) -> str:
        """Return the id of an entity of this type; raise InvalidInput for another one."""
        if not check_entity(entity).startswith(self.prefix):
            raise InvalidInput(
                f"the id of a {self.name} must begin with {self.prefix!r}, got {entity!r:.100}"
            )
        return entity

    def encode(self, value: T, entity: str | None = None) -> Document:
        """Return an instance as a document; raise ContentError if it is not valid."""
        subject = self.name if entity is None else f"{self.name} {entity!r}"
        if self._class is not None and not isinstance(value, self._class):
            raise InvalidInput(
                f"{subject}: the document must be of type {self.name}, got {type(value).__name__}"
            )
        try:
            document = self._codec.dump(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise ContentError(f"{subject}: cannot be encoded as JSON: {error}") from error
        self._load(document, subject, entity)
        return dict(document)

    def decode(self, document: Document, entity: str) -> T:
        """Return a stored document as an instance; raise ContentError if it is not valid."""
        return self._load(document, f"{self.name} {entity!r}", entity)

    def check(self, entity: str, document: Document | None) -> None:
        """Raise ContentError for a document that is not valid; None is a deleted one."""
        if document is not None:
            self.decode(document, entity)

    def to_state(self, entity: str, state: State | None) -> TypedState[T] | None:
        """Return a state with its document as an instance."""
        if state is None:
            return None
        document = None if state.document is None else self.decode(state.document, entity)
        return TypedState(document, state.op, state.seq)

    def to_page(self, page: FindPage) -> TypedPage[T]:
        """Return a page with its documents as instances, without ids of other types."""
        matches = (
            TypedMatch(match.id, self.decode(match.document, match.id), match.seq)
            for match in page
            if match.id.startswith(self.prefix)
        )
        return TypedPage(Rows(matches, TypedMatch), page.next, page.plan, page.seq)

    def to_states(
        self, entity: str, base: State | None, revisions: Iterable[Revision]
    ) -> Iterator[TypedState[T]]:
        """Yield the state after each commit of the revisions that follow `base`."""
        rows = ((row.seq, row.op, row.data) for row in revisions)
        previous: State | None = None
        for state in fold.states(base, rows):
            if previous is not None and previous.seq != state.seq:
                yield self._typed(entity, previous)
            previous = state
        if previous is not None:
            yield self._typed(entity, previous)

    def _typed(self, entity: str, state: State) -> TypedState[T]:
        # The fold's states share their parts; the instance must not.
        document = None if state.document is None else msgspec.json.decode(trusted(state.document))
        typed = self.to_state(entity, State(document, state.op, state.seq))
        assert typed is not None
        return typed

    def _load(self, document: Any, subject: str, entity: str | None) -> T:
        try:
            if not isinstance(document, Mapping):
                raise _Mismatch([("", "a document must be a JSON object")])  # noqa: TRY301
            value: T = self._codec.load(dict(document))
        except _Mismatch as error:
            path, reason = error.problems[0]
            problems = [{"path": path, "reason": text} for path, text in error.problems]
            details: dict[str, object] = {"path": path, "problems": problems}
            if entity is not None:
                details["entity"] = entity
            where = f"{path}: " if path else ""
            raise ContentError(
                f"{subject}: {where}{reason}",
                hint=f"Compare the document with the fields of {self.name}.",
                details=details,
            ) from error
        return value


def point_before(revisions: Sequence[Revision], after: int) -> tuple[str, int] | None:
    """Return the branch and seq of the state that a page of revisions changes; None if unused."""
    if not after or not revisions or revisions[0].op != "patch":
        return None
    return revisions[0].branch, revisions[0].seq - 1


def _make_codec(model: Any) -> tuple[type[Any] | None, _Codec[Any]]:
    """Return the class of the instances, if they have one, and their codec."""
    if all(callable(getattr(model, name, None)) for name in ("model_validate_json", "model_dump")):
        return model, _PydanticCodec(model)
    try:
        info: inspect.Type | None = inspect.type_info(model)
    except TypeError:
        info = None
    if isinstance(info, inspect.StructType) and not info.array_like:
        return get_origin(model) or model, _MsgspecCodec(model)
    if isinstance(info, inspect.DataclassType):
        return get_origin(model) or model, _MsgspecCodec(model)
    if isinstance(info, inspect.TypedDictType):
        return None, _MsgspecCodec(model)
    raise InvalidInput(
        f"a type of documents must be a class with fields, got {model!r:.100}",
        hint="Use a msgspec.Struct, a dataclass, a TypedDict or a pydantic.BaseModel.",
    )
