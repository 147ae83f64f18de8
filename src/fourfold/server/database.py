"""The database of the server, `server.sqlite`: its keys and its jobs.

A process opens the file for writing only while it changes something, so that `fourfold key` works
while a server runs; servers read it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fourfold.errors import WriterLocked
from fourfold.kernel import Database, Profile, load_migrations, load_queries
from fourfold.retry import Retries

SERVER_DATABASE_WAIT_S: Final = 10.0
SERVER_DATABASE_RETRY_S: Final = 0.01
"""Wait for another process or thread that changes something, and the pause between attempts."""
FILE_NAME: Final = "server.sqlite"
SQL: Final = load_queries("fourfold.server")
_PROFILE: Final = Profile("server")
_MIGRATIONS: Final = load_migrations("fourfold.server")


def open_database(path: Path, mode: str) -> Database:
    """Open the database of the server."""
    return Database.open(path, profile=_PROFILE, migrations=_MIGRATIONS, mode=mode)


def open_for_writing(path: Path) -> Database:
    """Open the database for writing, after others have closed it. Close it soon."""
    retries = Retries.every(
        SERVER_DATABASE_RETRY_S, on=WriterLocked, within_s=SERVER_DATABASE_WAIT_S
    )
    return retries.run(lambda: open_database(path, "rw"))
