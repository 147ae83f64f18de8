"""The declared indexes of a space: `space.indexes`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from fourfold.errors import (
    AlreadyExists,
    DeadlineExceeded,
    InvalidInput,
    LimitExceeded,
    NotFound,
    Refused,
)
from fourfold.kernel import Transaction
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.indexes import declaration
from fourfold.models.documents.indexes.builder import IndexBuilder
from fourfold.models.documents.indexes.declaration import (
    EACH_ITEM,
    INDEXES_MAX,
    SQL,
    HistoryScope,
    Index,
    IndexInfo,
    IndexKindName,
    IndexOptions,
)
from fourfold.models.documents.indexes.maintenance import KINDS
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

BUILD_AT_ONCE_S: Final = 0.2
"""Time for which a declaration builds before it leaves the rest to a thread."""
_WAIT_S: Final = 0.01


class Indexes:
    """The declared indexes of one space.

    space.indexes.create("by_status", "/status")
    space.indexes.create("by_sku", "/items/*/sku")
    space.indexes.create("by_owner", ["/owner", "/due"])
    space.indexes.create("words", ["/title", "/body"], kind="text")
    space.indexes.create("meaning", "/embedding", kind="vector")
    space.find({"status": "open"})                  # uses by_status
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.builder = IndexBuilder(space)

    def create(
        self,
        name: str,
        path: str | Sequence[str],
        *,
        unique: bool = False,
        history: HistoryScope = "all",
        kind: IndexKindName = "value",
    ) -> IndexInfo:
        """Declare an index over a path of the documents, or over several.

        Commits maintain it from now on. Documents that exist are indexed in the background, unless
        they are few; until then its `state` is "building".

        Args:
            name: The name of the index.
            path: A JSON Pointer, or several for a composite key. `*` stands for every item of an
                array. Documents without a scalar at the path have no entry.
            unique: Refuse commits that give an entity a value that another entity has.
            history: "all" to query every seq and branch, "now" for the newest state of the default
                branch only, which takes less space.
            kind: "value" for `find`, "text" for the words of the strings at the paths: `search` and
                `$text`; or "vector" for the array of numbers at the path: `search(vector=...)`.

        Raises:
            AlreadyExists: There is an index of that name.
        """
        pointers, options = check_index(name, path, unique=unique, history=history, kind=kind)
        return self._built(self._declare(name, kind, pointers, options))

    def list(self) -> Rows[IndexInfo]:
        """Return the declared indexes, sorted by name."""
        return Rows((index.info() for index in self._load()), IndexInfo)

    def get(self, name: str) -> IndexInfo:
        """Return a declared index.

        Raises:
            NotFound: There is no index of that name.
        """
        return _named(self._load(), name).info()

    def drop(self, name: str) -> None:
        """Drop an index. Its entries are deleted in the background.

        Raises:
            NotFound: There is no index of that name.
        """

        def work(txn: Transaction) -> None:
            index = _named(declaration.load(txn), name)
            txn.execute(SQL.undeclare, (index.ix,))
            txn.execute(SQL.set_build, (index.ix, "dropped", "", "", None))

        self._space.database.transact(work)
        self._continue()

    def rebuild(self, name: str) -> IndexInfo:
        """Delete the entries of an index and build them again.

        Raises:
            NotFound: There is no index of that name.
        """

        def work(txn: Transaction) -> Index:
            index = _named(declaration.load(txn), name)
            ix = txn.value(SQL.next_ix)
            txn.execute(SQL.renumber, (index.ix, ix))
            txn.execute(SQL.set_build, (index.ix, "dropped", "", "", None))
            txn.execute(SQL.set_build, (ix, "building", "", "", None))
            KINDS[index.kind].create(txn, ix)
            return _named(declaration.load(txn), name)

        return self._built(self._space.database.transact(work))

    def wait(self, name: str, timeout_s: float = 60.0) -> IndexInfo:
        """Wait until an index is built; return it.

        Raises:
            NotFound: There is no index of that name.
            DeadlineExceeded: It is still being built after `timeout_s` seconds.
            Refused: It is not built, and the caller is inside a transaction.
        """
        until = time.monotonic() + timeout_s
        while (info := self.get(name)).state == "building":
            if self._space.database.in_transaction():
                raise Refused(f"index {name!r}: cannot wait for its build inside a transaction")
            if time.monotonic() >= until:
                raise DeadlineExceeded(f"index {name!r} is still being built")
            self.builder.start()
            time.sleep(_WAIT_S)
        return info

    def declare(self, infos: Sequence[IndexInfo]) -> None:
        """Declare the indexes of another space here, and build them. Equal ones may exist.

        Raises:
            AlreadyExists: An index of the same name is another one.
        """
        for info in infos:
            pointers, options = check_index(
                *(info.name, info.paths),
                unique=info.unique,
                history=info.history,
                kind=info.kind,
            )
            try:
                mine = self.get(info.name)
            except NotFound:
                self._declare(info.name, info.kind, pointers, options)
                continue
            fields = ("kind", "paths", "unique", "history")
            if any(getattr(mine, field) != getattr(info, field) for field in fields):
                raise AlreadyExists(f"index {info.name!r} already exists with other paths")
        self._continue(None)

    def _load(self) -> tuple[Index, ...]:
        with self._space.view() as view:
            indexes = declaration.load(view.snapshot)
        if not all(index.is_complete for index in indexes) and not self.builder.is_running:
            # A build that a stop interrupted continues.
            self.builder.start()
        return indexes

    def _continue(self, timeout_s: float | None = BUILD_AT_ONCE_S) -> None:
        if not self.builder.run(timeout_s):
            self.builder.start()

    def _built(self, index: Index) -> IndexInfo:
        """Build a new index, and return it. Inside a transaction it is built afterwards."""
        if not index.is_complete:
            self._continue()
        return next((one.info() for one in self._load() if one.ix == index.ix), index.info())

    def _declare(
        self, name: str, kind: str, pointers: tuple[str, ...], options: IndexOptions
    ) -> Index:
        def work(txn: Transaction) -> Index:
            indexes = declaration.load(txn)
            if any(index.name == name for index in indexes):
                raise AlreadyExists(
                    f"index {name!r} already exists", hint="Drop it, or use another name."
                )
            if len(indexes) >= INDEXES_MAX:
                raise LimitExceeded(f"a space has at most {INDEXES_MAX} indexes", hint="Drop one.")
            ix = txn.value(SQL.next_ix)
            txn.execute(SQL.declare, (ix, name, kind, trusted(pointers), trusted(options)))
            # Without entities there is nothing to build.
            state = "building" if txn.value(SQL.has_entities) else "ready"
            txn.execute(SQL.set_build, (ix, state, "", "", None))
            KINDS[kind].create(txn, ix)
            return _named(declaration.load(txn), name)

        return self._space.database.transact(work)

    def __iter__(self) -> Iterator[IndexInfo]:
        """Yield the declared indexes, sorted by name."""
        return iter(self.list())

    def __getitem__(self, name: str) -> IndexInfo:
        """Return a declared index, like `get`."""
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        return any(info.name == name for info in self)

    def __len__(self) -> int:
        return len(self.list())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Indexes of {self._space.did}>"


def check_index(
    name: str, path: str | Sequence[str], *, unique: bool, history: HistoryScope, kind: str
) -> tuple[tuple[str, ...], IndexOptions]:
    """Return the paths and options of a declaration; raise InvalidInput for a bad one."""
    declaration.check_name(name)
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput(
            f"index {name!r}: kind must be {' or '.join(map(repr, KINDS))}, got {kind!r:.100}"
        )
    pointers = declaration.check_paths(path, is_text=kind == "text")
    options = check_options(unique, history)
    if unique and kind != "value":
        raise InvalidInput(f"index {name!r}: an index of kind {kind!r} cannot be unique")
    if kind == "vector" and (len(pointers) > 1 or EACH_ITEM in declaration.parse_path(pointers[0])):
        raise InvalidInput(f"index {name!r}: an index of kind 'vector' has one path without '*'")
    return pointers, options


def _named(indexes: Sequence[Index], name: str) -> Index:
    for index in indexes:
        if index.name == name:
            return index
    raise NotFound(f"unknown index {name!r:.100}", hint="List them with `space.indexes.list()`.")


def check_options(unique: object, history: object) -> IndexOptions:
    """Return the options of an index; raise InvalidInput for others."""
    if type(unique) is not bool:
        raise InvalidInput(f"unique must be True or False, got {unique!r:.100}")
    try:
        options = msgspec.convert({"unique": unique, "history": history}, IndexOptions)
    except msgspec.MsgspecError:
        raise InvalidInput(f"history must be 'all' or 'now', got {history!r:.100}") from None
    if unique and history != "all":
        raise InvalidInput("a unique index needs history='all': branches inherit its values")
    return options
