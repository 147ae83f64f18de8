"""Pragma profiles: how a database of each model is opened, applied in the right order and read
back.

`page_size` comes first, because SQLite ignores it once the file is in WAL mode. Nothing here runs
inside a transaction, because `foreign_keys` is silently ignored there. Every pragma is then asked
for again, and one that did not take effect stops the start-up: a database
that runs with weaker durability than promised is worse than one that does not open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from fourfold import limits
from fourfold.errors import InvalidInput, StorageError
from fourfold.kernel.driver import Connection

Synchronous = Literal["FULL", "NORMAL", "OFF"]
_SYNCHRONOUS_CODES = {"OFF": 0, "NORMAL": 1, "FULL": 2}


@dataclass(frozen=True, slots=True)
class Profile:
    """The pragmas of one kind of database. `page_size` shapes new files only; old ones keep
    theirs.
    """

    name: str
    synchronous: Synchronous = "FULL"
    page_size: int = 4096
    cache_kib: int = limits.CACHE_KIB
    mmap_bytes: int = 0
    foreign_keys: bool = True
    busy_timeout_ms: int = limits.BUSY_TIMEOUT_MS
    rules: tuple[tuple[str, int], ...] = ()
    """Numbers of the rules by which stored data is read and that no schema shows, by name. A new
    file keeps them; one that was written under a later number is refused.
    """

    def __post_init__(self) -> None:
        size = self.page_size
        if size < 512 or size > 65536 or size & (size - 1):
            raise InvalidInput(
                f"page size {size} of profile {self.name!r} is not a power of two from 512 to 65536"
            )
        if self.synchronous not in _SYNCHRONOUS_CODES:
            raise InvalidInput(f"synchronous={self.synchronous!r} is not FULL, NORMAL or OFF")

    def with_(self, **changes: object) -> Profile:
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


def shape_new_file(connection: Connection, profile: Profile) -> None:
    """Fix what cannot be changed later. A file left over from a creation that was cut short keeps
    its pages.
    """
    if not connection.pragma("page_count"):
        connection.pragma("page_size", profile.page_size)
        _expect(connection, "page_size", profile.page_size)


def apply_to_writer(connection: Connection, profile: Profile) -> None:
    """Bring a writing connection to the profile, and prove it."""
    connection.set_busy_timeout(profile.busy_timeout_ms)
    connection.pragma("journal_mode", "WAL")
    _expect(connection, "journal_mode", "wal")
    connection.pragma("synchronous", profile.synchronous)
    _expect(connection, "synchronous", _SYNCHRONOUS_CODES[profile.synchronous])
    # The checkpointer decides when the log is folded back, off the commit path.
    connection.wal_autocheckpoint(0)
    _apply_to_any(connection, profile)


def apply_to_reader(connection: Connection, profile: Profile) -> None:
    """Bring a reading connection to the profile; `query_only` is the second lock on the door."""
    connection.set_busy_timeout(profile.busy_timeout_ms)
    connection.pragma("query_only", 1)
    _expect(connection, "query_only", 1)
    _apply_to_any(connection, profile)


def _apply_to_any(connection: Connection, profile: Profile) -> None:
    connection.pragma("foreign_keys", int(profile.foreign_keys))
    _expect(connection, "foreign_keys", int(profile.foreign_keys))
    # Without it a page whose cell pointers are damaged can be read as if it were whole.
    connection.pragma("cell_size_check", 1)
    _expect(connection, "cell_size_check", 1)
    connection.pragma("temp_store", "MEMORY")
    _expect(connection, "temp_store", 2)
    connection.pragma("cache_size", -profile.cache_kib)
    _expect(connection, "cache_size", -profile.cache_kib)
    connection.pragma("mmap_size", profile.mmap_bytes)
    _expect(connection, "mmap_size", profile.mmap_bytes)
    _expect(connection, "busy_timeout", profile.busy_timeout_ms)


def _expect(connection: Connection, pragma: str, wanted: int | str) -> None:
    found = connection.pragma(pragma)
    if isinstance(found, str):
        found = found.lower()
    if found != wanted:
        raise StorageError(
            f"{connection.filename}: PRAGMA {pragma} is {found!r}, not {wanted!r} as it should be",
            hint="The file system may not support it: try a local disk, and run `fourfold doctor`.",
        )
