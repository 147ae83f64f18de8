"""Checks of a store: settings, permissions, locks, logs, leftovers, databases, object store."""

from __future__ import annotations

import os
import shlex
import socket
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fourfold import kernel
from fourfold.cli.doctor.findings import Finding
from fourfold.cli.output import counted, size
from fourfold.errors import ForeignFile, FourfoldError
from fourfold.kernel import inspection
from fourfold.objects import check_conditional_writes
from fourfold.settings import FILE_NAME, FORMAT, load
from fourfold.store.store import objects_of, objects_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fourfold.cli.doctor.findings import DoctorTarget

DOCTOR_ENTRIES_MAX: Final = 100_000
"""Files and folders of a store that `fourfold doctor` inspects."""

_LEFTOVER_AGE_S: Final = 3_600.0
"""A younger temporary file may belong to a process that is still writing it."""


@dataclass(frozen=True, slots=True)
class FolderItem:
    """A file or folder of a store, with its status."""

    path: Path
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        """True for a folder."""
        return stat.S_ISDIR(self.status.st_mode)


def store(target: DoctorTarget) -> Iterator[Finding]:
    """Check that there is a store; without one the other checks of this module are skipped."""
    root = target.root
    if root is None:
        yield Finding("store", "skip", "no ROOT given: only the machine is checked")
    elif not root.exists():
        yield Finding(
            "store",
            "fail",
            f"{root} does not exist",
            f'python -c "import fourfold; fourfold.open({str(root)!r}).close()"',
        )
    elif not root.is_dir():
        yield Finding("store", "fail", f"{root} is a file, not a folder", f"ls -l {quoted(root)}")
    elif not (root / FILE_NAME).exists():
        yield Finding(
            "store",
            "warn",
            f"{root} has no {FILE_NAME}, so it may not be a store",
            f"fourfold config {quoted(root)} --init",
        )
    else:
        yield Finding("store", "ok", f"{root.absolute()}, format {FORMAT}")


def settings(target: DoctorTarget) -> Iterator[Finding]:
    """Check the settings; an error becomes the finding, with its hint."""
    loaded = load(target.root, environ=target.environ, flags=target.flags)
    changed = {name: str(source) for name, source in loaded.sources.items()}
    message = f"{len(changed)} are set, the rest are defaults" if changed else "all are defaults"
    yield Finding("settings", "ok", message, "", {"set": changed})


def permissions(target: DoctorTarget) -> Iterator[Finding]:
    """Check the owners and modes of the files."""
    if (root := present(target)) is None:
        return
    foreign, open_to_others, looked_at = [], [], 0
    for entry in walk(root):
        looked_at += 1
        if entry.status.st_uid != os.geteuid():
            foreign.append(entry.path)
        elif not stat.S_ISLNK(entry.status.st_mode) and entry.status.st_mode & 0o077:
            open_to_others.append(entry.path)
    facts = {"looked_at": looked_at, "foreign": len(foreign), "open": len(open_to_others)}
    if foreign:
        yield Finding(
            "permissions",
            "fail",
            f"{examples(root, foreign)} belong to another user",
            f"sudo chown -R {os.geteuid()} {quoted(root)}",
            facts,
        )
    if open_to_others:
        yield Finding(
            "permissions",
            "warn",
            f"{examples(root, open_to_others)} can be read or written by other users",
            f"chmod -R u=rwX,go= {quoted(root)}",
            facts,
        )
    if not foreign and not open_to_others:
        limited = looked_at == DOCTOR_ENTRIES_MAX
        which = f"the first {looked_at}" if limited else f"all {looked_at}"
        yield Finding("permissions", "ok", f"{which} entries are private to this user", "", facts)


def locks(target: DoctorTarget) -> Iterator[Finding]:
    """Check which databases other processes have locked."""
    if (root := present(target)) is None:
        return
    free = 0
    for entry in walk(root):
        if entry.is_folder or not entry.path.name.endswith(".lock"):
            continue
        database = entry.path.with_name(entry.path.name.removesuffix(".lock"))
        owner = kernel.holder(database)
        if owner is None:
            free += 1
            continue
        name = database.relative_to(root)
        facts = {"database": str(name), **owner}
        here = owner.get("host") in {None, socket.gethostname()}
        who = f"process {owner.get('pid', 'unknown')} on {owner.get('host', 'this host')}"
        message = f"{name} is open for writing by {who} since {owner.get('since', 'some time')}"
        yield Finding(
            "locks",
            "ok" if here else "warn",
            message if here else f"{message}: a store belongs on a disk of one machine",
            "" if here else f"ssh {owner['host']} ps -p {owner.get('pid')}",
            facts,
        )
    unheld = f"; {counted(free, 'lock file')} without a holder, harmless as it is" if free else ""
    yield Finding("locks", "ok", f"no lock is in the way{unheld}", "", {"free": free})


def logs(target: DoctorTarget) -> Iterator[Finding]:
    """Check the size of write-ahead logs: a large one means an endless reader or no checkpoint."""
    if (root := present(target)) is None or target.settings is None:
        return
    degraded = target.settings.health.wal_degraded_bytes
    failed = target.settings.health.wal_failed_bytes
    largest = 0
    for entry in walk(root):
        if entry.is_folder or not entry.path.name.endswith("-wal"):
            continue
        count = entry.status.st_size
        largest = max(largest, count)
        if count >= degraded:
            name = entry.path.relative_to(root)
            yield Finding(
                "write-ahead log",
                "fail" if count >= failed else "warn",
                f"{name} has {size(count)}; stop long readers, then open and close the store",
                f'python -c "import fourfold; fourfold.open({str(root)!r}).close()"',
                {"file": str(name), "bytes": count},
            )
    if largest < degraded:
        message = f"the largest has {size(largest)}" if largest else "all folded back"
        yield Finding("write-ahead log", "ok", message, "", {"largest_bytes": largest})


def leftovers(target: DoctorTarget) -> Iterator[Finding]:
    """Check for temporary files of interrupted work."""
    if (root := present(target)) is None:
        return
    young = time.time() - _LEFTOVER_AGE_S
    found = [
        entry
        for entry in walk(root)
        if not entry.is_folder and is_temporary(entry.path) and entry.status.st_mtime < young
    ]
    replaced = [
        entry for entry in walk(root) if not entry.is_folder and ".replaced-" in entry.path.name
    ]
    for entries, what in (
        (found, "left by processes that were stopped; they contain nothing that was acknowledged"),
        (replaced, "kept by a restore; delete them once you trust the restored store"),
    ):
        if entries:
            total = sum(entry.status.st_size for entry in entries)
            paths = [entry.path for entry in entries]
            yield Finding(
                "leftovers",
                "warn",
                f"{examples(root, paths)} ({size(total)}) were {what}",
                "rm " + " ".join(quoted(path) for path in paths[:5]),
                {"files": [str(path.relative_to(root)) for path in paths], "bytes": total},
            )
    if not found and not replaced:
        yield Finding("leftovers", "ok", "none")


def is_temporary(path: Path) -> bool:
    """Return True if only a writer in progress makes files of that name."""
    name = path.name
    return (
        name.endswith((".partial", ".restoring", ".tmp"))
        or name.startswith(".fourfold-")
        or path.parent.parts[-2:] == (".fourfold", "tmp")
    )


def present(target: DoctorTarget) -> Path | None:
    """Return the root if it is a folder."""
    return target.root if target.root is not None and target.root.is_dir() else None


def walk(root: Path) -> Iterator[FolderItem]:
    """Return the root and the entries below it, up to a limit; links are not followed."""
    yield FolderItem(root, root.lstat())
    seen, folders = 1, [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for item in sorted(entries, key=lambda entry: entry.name):
                if seen == DOCTOR_ENTRIES_MAX:
                    return
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    # A store in use creates and removes files all the time.
                    continue
                seen += 1
                path = Path(item.path)
                yield FolderItem(path, status)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)


def examples(root: Path, paths: Iterable[Path]) -> str:
    """Return up to three paths as text, and how many more there are."""
    names = [str(path.relative_to(root)) for path in paths]
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def quoted(path: Path) -> str:
    """Return a path as the shell reads it."""
    return shlex.quote(str(path))


def databases(target: DoctorTarget) -> Iterator[Finding]:
    """Open each database for reading; `fourfold verify` checks all pages."""
    if (root := present(target)) is None:
        return
    sound = 0
    for entry in walk(root):
        name = entry.path.relative_to(root)
        if entry.is_folder or entry.path.suffix not in {".sqlite", ".db"}:
            continue
        finding = _database(entry.path, str(name))
        sound += finding.status == "ok"
        yield finding
    if not sound:
        yield Finding("databases", "ok", "the store has no database yet")


def _database(path: Path, name: str) -> Finding:
    try:
        found = inspection.inspect(path)
    except ForeignFile as error:
        return Finding("databases", "warn", error.message, f"file {quoted(path)}", {"file": name})
    except FourfoldError as error:
        return Finding("databases", "fail", error.message, error.hint, {"kind": error.kind})
    facts = {
        "file": name,
        "model": found.model,
        "database_id": found.database_id,
        "schema_version": found.schema_version,
        "page_size": found.page_size,
        "sequences": found.sequences,
        "bytes": found.size_bytes,
    }
    message = f"{name} opens: {found.model}, schema version {found.schema_version}"
    return Finding("databases", "ok", message, "", facts)


def objects(target: DoctorTarget) -> Iterator[Finding]:
    """Write and delete one small object, to check conditional writes."""
    if (root := present(target)) is None or target.settings is None:
        return
    url = objects_url(root, target.settings)
    if url == str(root / "objects") and not (root / "objects").exists():
        yield Finding("objects", "ok", "the folder for objects is created on first use")
        return
    with objects_of(root, target.settings) as store:
        found = check_conditional_writes(store)
    if not found.honoured:
        yield Finding(
            "objects",
            "fail",
            f"{url} would let two writers overwrite each other: {'; '.join(found.faults)}",
            f"fourfold config {quoted(root)}",
            {"url": url},
        )
    else:
        message = f"{url} answers and honours conditional writes"
        yield Finding("objects", "ok", message, "", {"url": url})
