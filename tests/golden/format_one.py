"""Archives of format 1, which are only read: what the golden ones hold, and how a test reads it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from golden_store import read_documents, read_graphs

from fourfold.store import Store

FOLDER = Path(__file__).with_name("format_1")
NODES = ("publisher", "older", "fenced")
"""Stores with a publish status of format 1: the publisher of the archive, one that was restored to
an older point than the newest, and one that was fenced by a take-over."""


def unpack(target: Path, *names: str) -> None:
    """Unpack the archive, in `objects`, and some nodes, below a folder."""
    with tarfile.open(FOLDER / "stores.tar.xz") as tar:
        wanted = {"objects", *names}
        members = [entry for entry in tar if entry.name.split("/")[0] in wanted]
        tar.extractall(target, members=members, filter="data")


def expected() -> dict[str, Any]:
    """Return what was read when the archive was made: of each point, and of each node."""
    return json.loads((FOLDER / "states.json").read_text(encoding="utf-8"))


def read_state(store: Store) -> dict[str, str]:
    """Return a digest of everything that a store reads, for each model."""
    found = {
        "documents": read_documents(store),
        "blobs": {did: _blobs(store, did) for did in store.spaces()},
        "graphs": read_graphs(store),
        "sessions": _sessions(store),
        "streams": {
            info.name: [
                record.payload.decode() for record in store.streams.read(info.name)[1].records
            ]
            for info in store.streams.list()
        },
    }
    return {model: _digest(state) for model, state in found.items()}


def _blobs(store: Store, did: str) -> dict[str, Any]:
    blobs = store.space(did).blobs
    return {blob: hashlib.sha256(blobs.get(blob)).hexdigest() for blob in blobs.ids()}


def _sessions(store: Store) -> dict[str, Any]:
    sessions, found = store.sessions, {}
    for session in sessions.list_sessions():
        messages = sessions.current_view(session.id).messages
        found[session.id] = {
            "events": [[event.id, event.type] for event in sessions.events_since(session.id)],
            "messages": [sessions.read_payload(message["content"]) for message in messages],
        }
    return found


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
