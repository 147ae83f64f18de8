"""The calls of `Sessions` about search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fourfold.models.sessions.hits import (
    IndexProgress,
    SessionHitKind,
    SessionHitOrder,
    SessionHitPage,
)
from fourfold.models.sessions.log import Log
from fourfold.models.sessions.request import At


class SearchCalls:
    """Search, for `Sessions`."""

    log: Log
    files: Any

    def search(
        self: Any,
        query: str,
        *,
        sid: str | None = None,
        prefix: str = "",
        at: At = None,
        kinds: Sequence[SessionHitKind] | None = None,
        order: SessionHitOrder = "score",
        limit: int = 20,
        after: str | None = None,
    ) -> SessionHitPage:
        """Search the words of messages, calls, summaries, errors and ends of turns.

            for hit in sessions.search('refund "order 4711" pay* -test', prefix="support/"):
                print(hit.session, hit.event, hit.text)

        Events that are not in the index yet are added to it first, which takes a while for a store
        that was never searched. Sessions of LangGraph store serialized values and have no hits.

        Args:
            query: Words that must all occur, `"phrases"`, prefixes (`pre*`) and `-words` that must
                not occur. Case and diacritics do not matter.
            sid: Search this session only.
            prefix: Only sessions whose ids begin with it.
            at: Only what had been appended at this time; for one session also an event id or a
                head. Sessions that were deleted since have no hits.
            kinds: Only `message`, `call`, `turn`, `summary` or `error`; by default all.
            order: By `score` (BM25), or `newest` first.
            limit: Maximum number of hits.
            after: Continue after this page: its `next`.

        Raises:
            NotFound: There is no session `sid`, or it has no such point.
            InvalidInput: The query has no word that must occur, or an argument is malformed.
        """
        from fourfold.models.sessions import search  # noqa: PLC0415 - readers of transcripts

        request = search.check_search(
            query, sid=sid, prefix=prefix, at=at, kinds=kinds, order=order
        )
        # Bad input is refused before anything is written to the index.
        cursor = search.check_page(self, request, limit, after)
        self.index_texts()
        return search.search(self, request, limit, cursor)

    def index_texts(self: Any, limit: int | None = None) -> IndexProgress:
        """Add events to the index of words, oldest first, at most about `limit` of them.

        A search does so itself. A server calls it in the background.
        """
        # Inside a transaction its own events cannot be read back in pages; the next call has them.
        if not self.log.writable or not self.log.indexes_texts or self.log.in_transaction():
            return IndexProgress(0, 0)
        from fourfold.models.sessions.text_index import index_events  # noqa: PLC0415 - as above

        return index_events(self.log, self.files, limit)
