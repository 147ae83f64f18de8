"""Going on from an earlier publication than the newest.

Those between are left behind: they stay in the manifest, and every point that they belong to can
still be restored to. One publication without rows says from where the history goes on.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

import msgspec

from fourfold.archive import publications
from fourfold.archive.publications import Publication
from fourfold.archive.publishing import Moment
from fourfold.archive.restoring import History
from fourfold.archive.retrying import Retries
from fourfold.archive.uploads import put_once, upload_of
from fourfold.errors import PreconditionFailed, PublisherFenced
from fourfold.objects import ObjectStore


class Branched(NamedTuple):
    """The manifest that goes on from an earlier publication."""

    publication: Publication
    version: str
    manifest: bytes


def branch_off(
    history: History,
    publication: Publication | None,
    moment: Moment,
    objects: ObjectStore,
    retries: Retries,
) -> Branched:
    """Let a database go on from a publication, or from nothing."""
    name = history.manifest.name
    step = Publication(
        history.newest + 1,
        0 if publication is None else publication.generation,
        moment.point,
        moment.at,
        0 if publication is None else publication.position,
        absent=publication is None,
    )
    manifest = msgspec.structs.replace(history.manifest, token=uuid.uuid4().hex)
    manifest, pages = publications.add(manifest, step)
    for key, page in pages.items():
        put_once(objects, upload_of(key, page), retries)
    data = publications.encode(manifest)
    key = publications.manifest_key(name)

    def put() -> str:
        try:
            return objects.put(key, data, if_version=history.version).version
        except PreconditionFailed as error:
            found = objects.get(key)
            if found.data == data:
                return found.info.version
            raise PublisherFenced(
                f"another node published {name!r} meanwhile", hint="Run it again."
            ) from error

    return Branched(step, retries.run(put), data)


def held_back(history: History, publication: Publication) -> bytes:
    """A manifest that ends with a publication: a node that has it is refused when it publishes."""
    kept = tuple(
        each for each in history.manifest.publications if each.generation < publication.generation
    )
    manifest = msgspec.structs.replace(
        history.manifest, publications=(*kept, publication), newest=publication.generation
    )
    return publications.encode(manifest)
