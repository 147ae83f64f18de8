"""Checks of what a store holds: its databases, and the object store that its settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold.cli.doctor.findings import Finding
from fourfold.cli.doctor.folder import present, quoted, walk
from fourfold.errors import ForeignFile, FourfoldError
from fourfold.kernel import inspection
from fourfold.objects import check_conditional_writes
from fourfold.store.store import objects_of, objects_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fourfold.cli.doctor.findings import Patient


def databases(patient: Patient) -> Iterator[Finding]:
    """Opens each database for reading; whether all its pages are sound is for `fourfold verify`."""
    if (root := present(patient)) is None:
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
        yield Finding("databases", "ok", "the store has none that can be opened yet")


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


def objects(patient: Patient) -> Iterator[Finding]:
    """Writes and removes one small object, to see that conditional writes are honoured."""
    if (root := present(patient)) is None or patient.settings is None:
        return
    url = objects_url(root, patient.settings)
    if url == str(root / "objects") and not (root / "objects").exists():
        yield Finding("objects", "ok", "the folder for objects is made when it is first needed")
        return
    with objects_of(root, patient.settings) as store:
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
