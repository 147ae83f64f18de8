"""Declarations of indexes: what a space stores about each, and the entries of a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, Final, Literal, NamedTuple

import msgspec

from fourfold.content.json_pointer import ABSENT, array_index, parse_pointer
from fourfold.errors import CorruptData, InvalidInput
from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.documents.indexes import keys
from fourfold.models.documents.records import Document

SQL: Final = load_queries("fourfold.models.documents.indexes")
INDEXES_MAX: Final = 32
"""Indexes of one space: each makes every commit slower."""
PATHS_MAX: Final = 4
"""Paths of one index."""
PATH_CHARS_MAX: Final = 512
"""Length of a path of an index."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")

EACH_ITEM: Final = None
"""Segment of a path that stands for every item of an array, `*` in its text."""
IndexPath = tuple[str | None, ...]
"""Segments of a path; None stands for every item of an array."""

MISSING: Final = frozenset({keys.MISSING})

HistoryScope = Literal["all", "now"]
IndexKindName = Literal["value", "text", "vector"]
State = Literal["building", "ready", "failed"]


class IndexInfo(msgspec.Struct, frozen=True):
    """A declared index."""

    name: str
    kind: str
    """Kind of index: "value", "text" or "vector"."""
    paths: tuple[str, ...]
    """JSON Pointers; `*` stands for every item of an array."""
    unique: bool
    history: HistoryScope
    """"all" if the index answers for every seq and branch, "now" for the newest state only."""
    state: State
    """"building" until it covers all entities; "failed" if it is unique and values are not."""
    error: str | None = None
    """Reason of a failed build."""


class IndexOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options of a declaration, as they are stored."""

    unique: bool = False
    history: HistoryScope = "all"


class Index(NamedTuple):
    """A declared index, as commits and queries use it."""

    ix: int
    name: str
    kind: str
    pointers: tuple[str, ...]
    paths: tuple[IndexPath, ...]
    options: IndexOptions
    state: str
    error: str | None

    @property
    def is_multiple(self) -> bool:
        """True if a document can have several entries."""
        return any(EACH_ITEM in path for path in self.paths)

    @property
    def is_complete(self) -> bool:
        """True if every entity has its entries, also while they are still compared."""
        return self.state in ("ready", "checking", "failed")

    def info(self) -> IndexInfo:
        """The index as callers see it."""
        state: Any = "building" if self.state == "checking" else self.state
        options = self.options
        return IndexInfo(
            self.name,
            self.kind,
            self.pointers,
            options.unique,
            options.history,
            state,
            self.error,
        )

    def keys(self, document: Document | None, bytes_max: int = keys.STRING_BYTES_MAX) -> set[bytes]:
        """Return the keys of a document; none for a deleted entity."""
        if document is None:
            return set()
        if len(self.paths) == 1:
            return parts(document, self.paths[0], bytes_max)
        first, *rest = (parts(document, path, bytes_max) for path in self.paths)
        # Without entries for what lacks the other paths, the first alone could not be queried.
        return {b"".join(key) for key in product(first, *(others or MISSING for others in rest))}


def load(snapshot: ReadTransaction) -> tuple[Index, ...]:
    """Return the declared indexes of a space."""
    return tuple(map(_index, snapshot.all(SQL.declarations)))


def _index(row: tuple[Any, ...]) -> Index:
    ix, name, kind, paths, options, state, error = row
    try:
        pointers = tuple(msgspec.json.decode(paths, type=list[str]))
        decoded = msgspec.json.decode(options, type=IndexOptions)
    except msgspec.MsgspecError as failure:
        raise CorruptData(f"index {name!r}: its declaration cannot be read: {failure}") from failure
    parsed = tuple(map(parse_path, pointers))
    return Index(ix, name, kind, pointers, parsed, decoded, state, error)


def check_name(name: object) -> str:
    """Return the name of an index; raise InvalidInput for other values."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"index name must be a letter followed by letters, digits, '_', '.' or '-', "
            f"got {name!r:.100}"
        )
    return name


def check_paths(path: str | Sequence[str], *, is_text: bool = False) -> tuple[str, ...]:
    """Return the paths of an index; raise InvalidInput for those that cannot be indexed."""
    if not isinstance(path, str | list | tuple):
        raise InvalidInput(f"index path must be a string or a list, got {path!r:.100}")
    pointers = (path,) if isinstance(path, str) else tuple(path)
    if not 1 <= len(pointers) <= PATHS_MAX:
        raise InvalidInput(f"an index has 1 to {PATHS_MAX} paths, got {len(pointers)}")
    paths = [parse_path(pointer) for pointer in pointers]
    if len(set(paths)) < len(paths):
        raise InvalidInput(f"index paths must differ, got {list(pointers)!r:.200}")
    if sum(EACH_ITEM in parsed for parsed in paths) > 1 and not is_text:
        raise InvalidInput(
            f"at most one path of an index may contain '*', got {list(pointers)!r:.200}",
            hint="A document would have an entry for every combination of items.",
        )
    return pointers


def parse_path(pointer: object) -> IndexPath:
    """Parse the path of an index: a JSON Pointer in which `*` stands for every item."""
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        raise InvalidInput(
            f"index path must be a JSON Pointer, got {pointer!r:.100}", hint="For example /status."
        )
    if len(pointer) > PATH_CHARS_MAX:
        raise InvalidInput(f"index path has at most {PATH_CHARS_MAX} characters")
    segments = parse_pointer(pointer)
    return tuple(EACH_ITEM if segment == "*" else segment for segment in segments)


def parts(
    document: Document, path: IndexPath, bytes_max: int = keys.STRING_BYTES_MAX
) -> set[bytes]:
    """Return the parts of keys for the scalars at a path."""
    if len(path) == 1:
        # Most paths are fields, and every commit computes them.
        value = document.get(path[0], ABSENT)  # type: ignore[arg-type]
        part = None if value is ABSENT else keys.encode_part(value, bytes_max)
        return set() if part is None else {part}
    return {
        part
        for value in resolve(document, path)
        if (part := keys.encode_part(value, bytes_max)) is not None
    }


def resolve(value: Any, path: Iterable[str | None]) -> Iterator[Any]:
    """Yield the values at a path of an index; several if it has a `*`."""
    values = [value]
    for segment in path:
        following: list[Any] = []
        for item in values:
            if segment is EACH_ITEM:
                if type(item) is list:
                    following += item
            elif type(item) is dict:
                if segment in item:
                    following.append(item[segment])
            elif type(item) is list:
                at = array_index(segment)
                if at is not None and at < len(item):
                    following.append(item[at])
        values = following
        if not values:
            break
    return iter(values)
