"""Verification of the published objects of a database. Each problem names its object."""

from __future__ import annotations

from collections.abc import Iterator

from fourfold.archive import capture, database_manifest
from fourfold.archive.database_manifest import Publication
from fourfold.archive.publisher import Subject
from fourfold.archive.restore import read_history
from fourfold.archive.row_files import read_rows
from fourfold.archive.sealer import OBJECT
from fourfold.archive.uploads import digest_of, get_checked
from fourfold.errors import FourfoldError, NotFound
from fourfold.objects import ObjectStore
from fourfold.retry import Retries


def object_problems(
    subject: Subject, objects: ObjectStore, checked: set[str], retries: Retries | None = None
) -> Iterator[str]:
    """Yield the problems of everything that is published of a database.

    `checked` are the digests of values that were already checked; several rows may refer to one.
    """
    again = retries or Retries()
    with subject.database.read() as snapshot:
        record = capture.record_of(snapshot)
    if record is None or record.manifest is None:
        return
    key = database_manifest.manifest_key(subject.name)
    try:
        history = read_history(again.run(lambda: objects.get(key)), objects, again)
    except NotFound:
        yield f"object {key!r} is missing: the manifest of {subject.name!r}"
        return
    except FourfoldError as error:
        yield error.message
        return
    if record.generation not in history.found:
        yield f"manifest of {subject.name!r}: publication {record.generation} is not in it"
    packs: set[str] = set()
    for publication in sorted(history.found.values(), key=lambda each: each.generation):
        yield from _files(subject.name, publication, objects, (checked, packs), again)


def _files(
    name: str,
    publication: Publication,
    objects: ObjectStore,
    seen: tuple[set[str], set[str]],
    retries: Retries,
) -> Iterator[str]:
    checked, packs = seen
    for file in publication.files:
        key = database_manifest.file_key(name, publication.generation, file)
        if not file.sha256 or key in packs:
            continue
        packs.add(key)
        try:
            data = get_checked(objects, key, file.sha256, retries)
            for columns, rows in read_rows(data, key):
                if OBJECT in columns:
                    at = columns.index(OBJECT)
                    wanted = {row[at] for row in rows} - checked - {None}
                    for digest in sorted(wanted):
                        checked.add(digest)
                        yield from _value(objects, digest, retries)
        except FourfoldError as error:
            yield error.message


def _value(objects: ObjectStore, digest: str, retries: Retries) -> Iterator[str]:
    key = database_manifest.blob_key(digest)
    try:
        found = retries.run(lambda: digest_of(objects, key))
    except NotFound:
        yield f"object {key!r} is missing"
        return
    if found != digest:
        yield f"object {key!r} does not match its digest"
