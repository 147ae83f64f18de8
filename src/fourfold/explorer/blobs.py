"""Pages of the blobs of a space: the list, and one blob with a safe preview."""

from __future__ import annotations

from typing import Any, Final

from fourfold.errors import NotFound
from fourfold.explorer.documents import read_states
from fourfold.explorer.links import format_at
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Visit
from fourfold.wire.documents import BlobInfo, BlobPage, DocumentState, SpaceInfo

PAGE_ROWS: Final = 50
PREVIEW_BYTES: Final = 16 * 1024
"""Bytes of a text that are shown; the download has all of them."""
DUMP_BYTES: Final = 256
"""Bytes that are shown as digits, of a blob that is neither text nor a picture."""
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""Types that a browser draws without running anything."""
PICTURE_BYTES_MAX: Final = 8_000_000
_TEXTS: Final = frozenset({"application/json", "application/xml", "application/javascript"})


class BlobsQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the list of blobs."""

    did: str
    cursor: str = ""


class BlobQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a blob."""

    did: str
    hash: str


async def blobs_page(visit: Visit, query: BlobsQuery) -> dict[str, Any]:
    """List the blobs of a space, in the order of their hashes."""
    path = f"/v1/spaces/{query.did}"
    info = await visit.api.get(path, SpaceInfo)
    page = await visit.api.get(f"{path}/blobs", BlobPage, cursor=query.cursor, limit=PAGE_ROWS)
    names = await _metadata(visit, query.did, [blob.hash for blob in page.items])
    return {
        "space": info,
        "cursor": query.cursor,
        "blobs": [_row(visit, query.did, blob, names.get(blob.hash)) for blob in page.items],
        "next_cursor": page.next_cursor,
    }


async def blob_page(visit: Visit, query: BlobQuery) -> dict[str, Any]:
    """Show a blob: its size and type, its metadata, and a preview."""
    path = f"/v1/spaces/{query.did}/blobs/{query.hash}"
    info = await visit.api.get(f"/v1/spaces/{query.did}", SpaceInfo)
    head = await visit.api.call("HEAD", path)
    content_type = head.headers["content-type"]
    blob = BlobInfo(
        hash=query.hash,
        size_bytes=int(head.headers["content-length"]),
        content_type=content_type,
    )
    metadata = (await _metadata(visit, query.did, [query.hash])).get(query.hash)
    row = _row(visit, query.did, blob, metadata)
    return {
        "space": info,
        "blob": row,
        "metadata": None if metadata is None else metadata.document,
        "preview": await _preview(visit, path, row),
    }


async def _metadata(visit: Visit, did: str, hashes: list[str]) -> dict[str, DocumentState]:
    """Return the documents that describe blobs, at the time of the visit, by hash."""
    ids = {f"urn:blob-meta:{digest.removeprefix('sha256:')}": digest for digest in hashes}
    states = await read_states(visit, did, list(ids), at=format_at(visit.at))
    return {ids[name]: state for name, state in states.items() if state is not None}


def _row(visit: Visit, did: str, blob: BlobInfo, metadata: DocumentState | None) -> dict[str, Any]:
    document = None if metadata is None else metadata.document
    value = document.get("value", document) if isinstance(document, dict) else {}
    name = value.get("name") if isinstance(value, dict) else None
    plain = _plain(blob.content_type)
    return {
        "hash": blob.hash,
        "name": name if isinstance(name, str) else "",
        "size_bytes": blob.size_bytes,
        "content_type": blob.content_type,
        "kind": "picture" if plain in PICTURES else "text" if _is_text(plain) else "bytes",
        "url": visit.link.api(f"/v1/spaces/{did}/blobs/{blob.hash}"),
    }


def _plain(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def _is_text(plain: str) -> bool:
    return plain.startswith("text/") or plain in _TEXTS or plain.endswith(("+json", "+xml"))


async def _preview(visit: Visit, path: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a blob: a picture, the start of a text, or of the bytes."""
    if row["kind"] == "picture":
        return {"kind": "picture" if row["size_bytes"] <= PICTURE_BYTES_MAX else "none"}
    if not row["size_bytes"]:
        return {"kind": "empty"}
    limit = PREVIEW_BYTES if row["kind"] == "text" else DUMP_BYTES
    try:
        response = await visit.api.call("GET", path, None, {"range": f"bytes=0-{limit - 1}"})
    except NotFound:
        return {"kind": "none"}
    shown = len(response.body)
    if row["kind"] == "text":
        text = response.body.decode("utf-8", "replace")
        return {"kind": "text", "text": text, "bytes": shown}
    return {"kind": "bytes", "lines": _dump(response.body), "bytes": shown}


def _dump(data: bytes) -> list[str]:
    """Return bytes as lines of sixteen: the place, the digits and the letters."""
    lines = []
    for start in range(0, len(data), 16):
        part = data[start : start + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {letters}")
    return lines


PAGES: Final = (
    ExplorerPage("/blobs", "blobs.html", blobs_page, BlobsQuery, "List the blobs of a space."),
    ExplorerPage("/blob", "blob.html", blob_page, BlobQuery, "Show a blob."),
)
