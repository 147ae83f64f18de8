"""Deleting objects of a database that its manifest does not speak of any more.

What was merged or given up is listed as retired, and goes after its time of grace. What a crash
left behind was never spoken of; it goes once it is so old that nobody can be about to name it. Only
the node that wrote the manifest deletes anything, and nothing that the manifest names now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from fourfold import limits
from fourfold.archive import database_manifest, retired_objects
from fourfold.archive.database_manifest import DatabaseManifest
from fourfold.archive.publisher import DatabasePublisher, Subject, read_page
from fourfold.archive.retired_objects import RetiredObject, Retirement, delete, over
from fourfold.archive.retry import Retries
from fourfold.objects import ObjectStore

Needed = Callable[[], frozenset[str]]
"""The keys of all large values that anything in the object store names."""


def sweep(
    subject: Subject,
    objects: ObjectStore,
    now_ms: int,
    grace_s: float,
    needed: Needed,
    *,
    dry_run: bool = False,
    retries: Retries | None = None,
) -> list[RetiredObject]:
    """Delete what may go; what it was, or would be."""
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
        kept = tuple(each for each in manifest.retired if each not in due)
        return msgspec.structs.replace(manifest, retired=kept)

    if due:
        publisher.rewrite(without)
        # The lists go last: while the manifest names one, it can be read.
        objects.delete_many([each.key for each in due])
    return found


def _deletable(  # noqa: PLR0917 - what is known, and when it is
    manifest: DatabaseManifest,
    due: list[Retirement],
    objects: ObjectStore,
    now_ms: int,
    needed: Needed,
    retries: Retries,
) -> Iterator[RetiredObject]:
    name = manifest.name
    live = {each.key for each in manifest.retired}
    live |= {database_manifest.page_key(name, page) for page in manifest.pages}
    steps = list(manifest.publications)
    for page in manifest.pages:
        steps += read_page(objects, name, page, retries)
    live |= {each.key for each in database_manifest.objects_of(name, steps)}
    told: set[str] = set()
    oldest = now_ms - int(1000 * limits.PUBLISH_ORPHAN_S)

    def is_needed(key: str) -> bool:
        """Whoever is about to name a value has made sure that it is not old."""
        found = retries.run(lambda: objects.head(key))
        return found is None or found.modified.timestamp() * 1000 >= oldest or key in needed()

    for each in manifest.retired:
        for leaving in retired_objects.listed(objects, each, retries):
            key = leaving.key
            if key in live or key in told:
                continue
            told.add(key)
            if each in due and not (key.startswith(database_manifest.BLOBS) and is_needed(key)):
                yield RetiredObject(key, name, leaving.size_bytes, each.at_ms)
    for info in retries.run(lambda: list(objects.list(database_manifest.folder(name)))):
        if info.key not in live | told and info.modified.timestamp() * 1000 < oldest:
            yield RetiredObject(info.key, name, info.size, None)
