"""Transcripts of sessions over HTTP: entries as NDJSON, Markdown, a page, or chat messages.

A transcript is sent while it is read, a few entries at a time, however long the session is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

import msgspec
from msgspec import UNSET

from fourfold import limits
from fourfold.errors import MissingDependency, NotFound
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.request import check_session_id
from fourfold.models.sessions.transcript import TranscriptEntry, TranscriptHeader, TranscriptReader
from fourfold.models.sessions.transcript_formats import CONTENT_TYPES, iter_format
from fourfold.server.open_sessions import OpenSessions
from fourfold.server.replies import NDJSON
from fourfold.server.request import Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.session_values import parse_point
from fourfold.server.sessions import session_route, verb
from fourfold.server.workers import Workers
from fourfold.wire.sessions import TranscriptEnd, TranscriptQuery

_PIECE_BYTES: Final = 64 * limits.KIB
_PAGE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_encode: Final = msgspec.json.Encoder().encode


class SessionTranscripts:
    """Handlers of transcripts."""

    def __init__(self, workers: Workers, opened: OpenSessions) -> None:
        self._workers = workers
        self._opened = opened

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def get_transcript(self, _request: Request, sid: str, query: TranscriptQuery) -> Response:
        """Return the transcript of a session in the requested format."""
        sessions = await self._opened.get()
        pieces = _pieces(sessions, check_session_id(sid), query)
        # Fails before the response starts if the session or the point does not exist.
        first = await self._workers.run(_next_piece, pieces)
        headers = {"content-type": NDJSON, "cache-control": "no-store"}
        if query.format != "entries":
            headers["content-type"] = CONTENT_TYPES[query.format]
        if query.format == "html":
            headers["content-security-policy"] = _PAGE_POLICY
        return Response(200, headers, pieces=self._rest(first, pieces))

    async def _rest(self, piece: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        while piece:
            yield piece
            piece = await self._workers.run(_next_piece, pieces)


def _pieces(sessions: Sessions, sid: str, query: TranscriptQuery) -> Iterator[bytes]:
    reader = TranscriptReader(
        sessions,
        sid,
        parse_point(query.at),
        whole=query.whole == "true",
        full=query.full == "true",
    )
    entries: Iterable[TranscriptEntry] = reader
    complete = True
    if query.limit is not UNSET:
        entries, complete = reader.newest(query.limit)
    if query.format == "entries":
        yield from _lines(reader.header, entries, complete)
        return
    for text in iter_format(query.format, reader.header, entries, complete):
        yield text.encode()


def _lines(
    header: TranscriptHeader, entries: Iterable[TranscriptEntry], complete: bool
) -> Iterator[bytes]:
    yield _encode(header) + b"\n"
    count = 0
    for entry in entries:
        count += 1
        yield _encode(entry) + b"\n"
    yield _encode(TranscriptEnd(entries=count, complete=complete)) + b"\n"


def _next_piece(pieces: Iterator[bytes]) -> bytes:
    """Return the next bytes, about as many as a piece has; none at the end."""
    piece = bytearray()
    for data in pieces:
        piece += data
        if len(piece) >= _PIECE_BYTES:
            break
    return bytes(piece)


_ROUTES: Final = (
    session_route(
        *("GET", verb("transcript"), SessionTranscripts.get_transcript),
        operation="get_transcript",
        summary="Get a session as people read it, now or at any event, with its payloads.",
        scope="read",
        query=TranscriptQuery,
        ok={200: Ok("The transcript.", "any", content_type=NDJSON)},
        errors=(NotFound, MissingDependency),
    ),
)
