"""Verification of an archive table: every file that its log names, and every large value."""

from __future__ import annotations

from collections.abc import Iterator

from fourfold.archive.catalog_rows import digest_tag
from fourfold.archive.delta_schema import FileStatistics
from fourfold.archive.row_files import read_rows
from fourfold.archive.table_layout import VALUE
from fourfold.archive.table_publisher import TableArchive
from fourfold.archive.uploads import blob_key, digest_of, get_checked
from fourfold.errors import FourfoldError, NotFound


def table_problems(archive: TableArchive, table: str) -> Iterator[str]:
    """Yield the problems of a table as the newest commit of the catalog names it."""
    log = archive.log(table)
    try:
        snapshot = archive.expected(table)
    except FourfoldError as error:
        yield error.message
        return
    checked: set[str] = set()
    for path, file in sorted(snapshot.files.items()):
        key = log.key(path)
        try:
            data = get_checked(archive.objects, key, digest_tag(file, key), archive.retries)
            count = 0
            for columns, rows in read_rows(data, key):
                count += len(rows)
                if VALUE in columns:
                    at = columns.index(VALUE)
                    for digest in sorted({row[at] for row in rows} - checked - {None}):
                        checked.add(digest)
                        yield from _value(archive, digest)
            stated = FileStatistics.decode(file.stats).num_records
            if stated != count:
                yield f"object {key!r} has {count} rows, expected {stated}"
        except FourfoldError as error:
            yield error.message


def _value(archive: TableArchive, digest: str) -> Iterator[str]:
    key = blob_key(digest)
    try:
        found = archive.retries.run(lambda: digest_of(archive.objects, key))
    except NotFound:
        yield f"object {key!r} is missing"
        return
    if found != digest:
        yield f"object {key!r} does not match its digest"
