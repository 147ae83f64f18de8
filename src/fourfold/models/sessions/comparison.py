"""Differences between two heads: variables, messages, and their common ancestor."""

from __future__ import annotations

from typing import Any

from fourfold.content import content_id, encode
from fourfold.models.sessions.records import Head, HeadComparison
from fourfold.models.sessions.runtime.variables import entries_of
from fourfold.models.sessions.sessions import Sessions


def compare_heads(sessions: Sessions, one: str, other: str) -> HeadComparison:
    """Compare two heads, of the same session or of two."""
    before, after = sessions.head(one), sessions.head(other)
    names = [_contents(sessions, head) for head in (before, after)]
    messages = [_messages(sessions, head) for head in (before, after)]
    return HeadComparison(
        before.id,
        after.id,
        _common(sessions, before, after),
        sorted(names[1].keys() - names[0].keys()),
        sorted(names[0].keys() - names[1].keys()),
        sorted(
            name for name in names[0].keys() & names[1].keys() if names[0][name] != names[1][name]
        ),
        [message for place, message in messages[1].items() if place not in messages[0]],
        [message for place, message in messages[0].items() if place not in messages[1]],
    )


def _contents(sessions: Sessions, head: Head) -> dict[str, str]:
    """Return the hash of each variable; that of a large one is its name and needs no read."""
    return {
        name: entry["ref"].id if "ref" in entry else content_id(encode(entry["value"]))
        for name, entry in entries_of(sessions, head.vars_ref).items()
    }


def _messages(sessions: Sessions, head: Head) -> dict[tuple[str, int], dict[str, Any]]:
    messages = sessions.view_at(head.session, head.id).kept_messages()
    return {(head.session, message["id"]): message for message in messages}


def _common(sessions: Sessions, before: Head, after: Head) -> str | None:
    """Return the nearest common ancestor of two heads; a head is its own ancestor."""
    ancestors = {before.id, *sessions.ancestors(before.id)}
    return next(
        (head_id for head_id in [after.id, *sessions.ancestors(after.id)] if head_id in ancestors),
        None,
    )
