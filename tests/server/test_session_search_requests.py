"""Searches of sessions in a server."""

from __future__ import annotations

import pytest
from served_sessions import message

import fourfold
from fourfold.errors import InvalidInput
from fourfold.server import session_search
from fourfold.wire.sessions import SessionsSearchQuery


@pytest.mark.parametrize(
    "bad", [{"q": "-only"}, {"q": "word", "limit": 0}, {"q": "w", "cursor": "x"}]
)
def test_bad_search_is_refused_before_events_are_indexed(tmp_path, bad):
    with fourfold.open(tmp_path / "store") as store:
        store.sessions.create_session({"id": "s"})
        store.sessions.append_events("s", [message("a word")])
        with pytest.raises(InvalidInput):
            session_search._search(store.sessions, None, SessionsSearchQuery(**bad), None)
        indexed = store.sessions.index_texts()
        assert indexed.events > 0
        page = session_search._search(store.sessions, None, SessionsSearchQuery(q="word"), None)
        assert [hit.session for hit in page.items] == ["s"]
