"""Delete objects of a database that its manifest does not refer to.

Compacted and removed objects are listed as retired, and deleted after their grace period. Objects
left by a crash have no reference; they are deleted once they are too old to be referred to by a
writer in progress. Only the node that wrote the manifest deletes objects, and none that the
manifest refers to now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from fourfold import limits
from fourfold.archive import database_manifest, retired_objects
from fourfold.archive.database_manifest import DatabaseManifest
from fourfold.archive.publisher import DatabasePublisher, Subject, read_page
from fourfold.archive.retired_objects import RetiredObject, Retirement, delete, over
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

NeededRows = Callable[[], frozenset[str]]
"""Returns the keys of all large values that anything in the object store refers to."""


def sweep(
    subject: Subject,
    objects: ObjectStore,
    now_ms: int,
    grace_s: float,
    needed: NeededRows,
    *,
    dry_run: bool = False,
    retries: Retries | None = None,
) -> list[RetiredObject]:
    """Delete unreferenced objects; return them, also with `dry_run`."""
    again = retries or Retries()
    publisher = DatabasePublisher(subject, objects, again)
    manifest = publisher.owned()
    if manifest is None:
        return []
    due = over(manifest.retired, now_ms, grace_s)
    found = list(_deletable(manifest, due, objects, now_ms, needed, again))
    if dry_run or not (found or due):
        return found
    delete(objects, found)

    def without(manifest: DatabaseManifest) -> DatabaseManifest:
        kept = tuple(info for info in manifest.retired if info not in due)
        return msgspec.structs.replace(manifest, retired=kept)

    if due:
        publisher.rewrite(without)
        # The lists go last: while the manifest refers to one, it can be read.
        objects.delete_many([entry.key for entry in due])
    return found


def _deletable(  # noqa: PLR0917 - what is known, and when it is
    manifest: DatabaseManifest,
    due: list[Retirement],
    objects: ObjectStore,
    now_ms: int,
    needed: NeededRows,
    retries: Retries,
) -> Iterator[RetiredObject]:
    name = manifest.name
    live = {entry.key for entry in manifest.retired}
    live |= {database_manifest.page_key(name, page) for page in manifest.pages}
    steps = list(manifest.publications)
    for page in manifest.pages:
        steps += read_page(objects, name, page, retries)
    live |= {entry.key for entry in database_manifest.objects_of(name, steps)}
    reported: set[str] = set()
    oldest = now_ms - int(1000 * limits.PUBLISH_ORPHAN_S)

    def is_needed(key: str) -> bool:
        """Return True if a value must stay; a writer about to refer to it has renewed it."""
        found = retries.run(lambda: objects.head(key))
        return found is None or found.modified.timestamp() * 1000 >= oldest or key in needed()

    for entry in manifest.retired:
        for leaving in retired_objects.listed(objects, entry, retries):
            key = leaving.key
            if key in live or key in reported:
                continue
            reported.add(key)
            if entry in due and not (key.startswith(database_manifest.BLOBS) and is_needed(key)):
                yield RetiredObject(key, name, leaving.size_bytes, entry.at_ms)
    for info in retries.run(lambda: list(objects.list(database_manifest.folder(name)))):
        if info.key not in live | reported and info.modified.timestamp() * 1000 < oldest:
            yield RetiredObject(info.key, name, info.size, None)
