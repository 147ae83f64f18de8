"""Bundles of sessions over HTTP: export a session with those that derive from it, and import it.

A bundle is lines of JSON that verify themselves (`models.sessions.bundle`). An export is sent while
it is read; an import is checked as a whole before anything is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fourfold import limits
from fourfold.errors import AlreadyExists, Forbidden, InvalidInput, NotFound, PayloadMissing
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.records import BundleReport
from fourfold.models.sessions.request import check_session_id
from fourfold.server.open_sessions import OpenSessions
from fourfold.server.replies import NDJSON
from fourfold.server.request import Reply, Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.sessions import SESSIONS, session_route, verb
from fourfold.server.workers import Workers
from fourfold.wire.sessions import BundleCounts

BUNDLE_BYTES_MAX: Final = 8 * limits.MIB
"""Bytes of a bundle to import: it is one transaction, during which no session is written."""
_PIECE_BYTES: Final = 256 * limits.KIB


class SessionBundles:
    """Handlers of bundles of sessions."""

    def __init__(self, workers: Workers, opened: OpenSessions) -> None:
        self._workers = workers
        self._opened = opened

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def export_bundle(self, request: Request, sid: str) -> Response:
        """Return the bundle of a session, with those of its descendants that the key is for."""
        from fourfold.models.sessions import bundle  # noqa: PLC0415 - rare

        sessions = await self._opened.get()
        lines = bundle.lines(sessions, check_session_id(sid), request.covers)
        # Fails before the response starts if there is no such session.
        first = await self._workers.run(_next_piece, lines)
        headers = {"content-type": NDJSON, "cache-control": "no-store"}
        return Response(200, headers, pieces=self._pieces(first, lines))

    async def _pieces(self, piece: bytes, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
        while piece:
            yield piece
            piece = await self._workers.run(_next_piece, lines)

    async def import_bundle(self, request: Request) -> Reply:
        """Import the sessions of a bundle; repeated, it changes nothing."""
        sessions = await self._opened.get()
        report = await self._workers.write(_import, sessions, request.body, request.covers)
        return Reply(
            BundleCounts(sessions=report.sessions, events=report.events, payloads=report.payloads),
            headers={"cache-control": "no-store"},
        )


def _next_piece(lines: Iterator[bytes]) -> bytes:
    """Return the next lines, about as many bytes as a piece has; none at the end."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= _PIECE_BYTES:
            break
    return bytes(piece)


def _import(sessions: Sessions, data: bytes, covers: Callable[[str], bool]) -> BundleReport:
    from fourfold.models.sessions import bundle  # noqa: PLC0415 - rare

    with TemporaryDirectory() as folder:
        path = Path(folder) / "bundle"
        path.write_bytes(data)
        try:
            for sid in sorted(bundle.session_ids(path)):
                if not covers(sid):
                    raise Forbidden(f"the key is not allowed to write {sid!r:.200}")
            return sessions.import_bundle(path)
        except InvalidInput as error:
            message = error.message.replace(f" of {path}", "").replace(str(path), "the bundle")
            raise InvalidInput(message, hint=error.hint) from None


_ROUTES: Final = (
    session_route(
        *("GET", verb("bundles"), SessionBundles.export_bundle),
        operation="export_bundle",
        no_past="a bundle has the whole log, from which every past state follows",
        summary="Export a session and those that derive from it as a bundle that verifies itself.",
        scope="read",
        ok={200: Ok("The lines of the bundle.", "any", content_type=NDJSON)},
        errors=(NotFound, PayloadMissing),
    ),
    session_route(
        *("POST", f"{SESSIONS}/bundles", SessionBundles.import_bundle),
        operation="import_bundle",
        summary="Import the sessions of a bundle under their ids; repeated, it changes nothing.",
        scope="write",
        resource="any",
        body=bytes,
        body_max=BUNDLE_BYTES_MAX,
        ok={200: Ok("All of it is in the store.", BundleCounts)},
        errors=(AlreadyExists, NotFound, PayloadMissing),
    ),
)
