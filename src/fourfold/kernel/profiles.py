"""Pragma profiles: how the databases of each model are opened, with every pragma verified.

`page_size` comes first, because SQLite ignores it once the file is in WAL mode. Nothing here runs
inside a transaction, where SQLite silently ignores `foreign_keys`. Every pragma is read back, and
one without effect is an error: weaker durability than promised is worse than a database that does
not open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from fourfold import limits
from fourfold.errors import InvalidInput, StorageError
from fourfold.kernel.driver import Connection

CACHE_KIB: Final = 16_000
"""Page cache of one connection; each reader and the writer have their own."""

Synchronous = Literal["FULL", "NORMAL", "OFF"]
_SYNCHRONOUS_CODES = {"OFF": 0, "NORMAL": 1, "FULL": 2}


@dataclass(frozen=True, slots=True)
class Profile:
    """The pragmas of one kind of database. `page_size` applies to new files only."""

    name: str
    synchronous: Synchronous = "FULL"
    page_size: int = 4096
    cache_kib: int = CACHE_KIB
    mmap_bytes: int = 0
    foreign_keys: bool = True
    busy_timeout_ms: int = limits.BUSY_TIMEOUT_MS
    rules: tuple[tuple[str, int], ...] = ()
    """Versions, by name, of rules for reading stored data that are not visible in the schema. They
    are stored in a new file; a file with a newer version is rejected.
    """

    def __post_init__(self) -> None:
        size = self.page_size
        if size < 512 or size > 65536 or size & (size - 1):
            raise InvalidInput(
                f"profile {self.name!r}: page size must be a power of two from 512 to 65536, "
                f"got {size}"
            )
        if self.synchronous not in _SYNCHRONOUS_CODES:
            raise InvalidInput(f"synchronous must be FULL, NORMAL or OFF, got {self.synchronous!r}")

    def with_(self, **changes: object) -> Profile:
        """Return a copy with other values."""
        return replace(self, **changes)  # type: ignore[arg-type]


DOCUMENTS = Profile(
    "documents",
    synchronous="NORMAL",
    page_size=32768,
    cache_kib=64_000,
    mmap_bytes=256 * limits.MIB,
)
STREAMS = Profile("streams", synchronous="FULL")
GRAPHS = Profile("graphs", synchronous="NORMAL")
SESSIONS = Profile("sessions", synchronous="FULL")
PLAIN = Profile("plain", synchronous="FULL")


def set_page_size(connection: Connection, profile: Profile) -> None:
    """Set the page size of a new file; after an interrupted creation it cannot change."""
    if not connection.pragma("page_count"):
        connection.pragma("page_size", profile.page_size)
        _expect(connection, "page_size", profile.page_size)


def apply_to_writer(connection: Connection, profile: Profile) -> None:
    """Set and verify the pragmas of a writable connection."""
    connection.set_busy_timeout(profile.busy_timeout_ms)
    connection.pragma("journal_mode", "WAL")
    _expect(connection, "journal_mode", "wal")
    connection.pragma("synchronous", profile.synchronous)
    _expect(connection, "synchronous", _SYNCHRONOUS_CODES[profile.synchronous])
    # On macOS a sync reaches the disk itself only with these; elsewhere they change nothing.
    for pragma in ("fullfsync", "checkpoint_fullfsync"):
        connection.pragma(pragma, 1)
        _expect(connection, pragma, 1)
    # The checkpointer runs checkpoints, off the commit path.
    connection.wal_autocheckpoint(0)
    _apply_to_any(connection, profile)


def apply_to_reader(connection: Connection, profile: Profile) -> None:
    """Set and verify the pragmas of a read-only connection, including `query_only`."""
    connection.set_busy_timeout(profile.busy_timeout_ms)
    connection.pragma("query_only", 1)
    _expect(connection, "query_only", 1)
    _apply_to_any(connection, profile)


def _apply_to_any(connection: Connection, profile: Profile) -> None:
    connection.pragma("foreign_keys", int(profile.foreign_keys))
    _expect(connection, "foreign_keys", int(profile.foreign_keys))
    # Otherwise a page with damaged cell pointers can be read without an error.
    connection.pragma("cell_size_check", 1)
    _expect(connection, "cell_size_check", 1)
    connection.pragma("temp_store", "MEMORY")
    _expect(connection, "temp_store", 2)
    connection.pragma("cache_size", -profile.cache_kib)
    _expect(connection, "cache_size", -profile.cache_kib)
    connection.pragma("mmap_size", profile.mmap_bytes)
    _expect(connection, "mmap_size", profile.mmap_bytes)
    _expect(connection, "busy_timeout", profile.busy_timeout_ms)


def unmap(connection: Connection, profile: Profile) -> None:
    """Read pages through the cache of the connection instead of a memory map of the file.

    SQLite keeps no parsed form of a mapped page: it parses the page and checks its cells each time
    it reads one of them, so work that visits most rows is four to seven times slower.
    """
    if profile.mmap_bytes:
        connection.pragma("mmap_size", 0)
        _expect(connection, "mmap_size", 0)


def map_again(connection: Connection, profile: Profile) -> None:
    """Undo `unmap`, and free the cache that replaced the memory map."""
    if profile.mmap_bytes:
        connection.pragma("mmap_size", profile.mmap_bytes)
        connection.pragma("shrink_memory")


def _expect(connection: Connection, pragma: str, expected: int | str) -> None:
    actual = connection.pragma(pragma)
    if isinstance(actual, str):
        actual = actual.lower()
    if actual != expected:
        raise StorageError(
            f"{connection.filename}: expected PRAGMA {pragma} = {expected!r}, found {actual!r}",
            hint="Use a local disk, and run `fourfold doctor`: the file system may not support it.",
        )
