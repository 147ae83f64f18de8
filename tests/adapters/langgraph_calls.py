"""Short forms of the calls of a checkpointer, for tests of any of them."""

from __future__ import annotations


def config(thread="t", checkpoint=None, ns=""):
    named = {"thread_id": thread, "checkpoint_ns": ns}
    if checkpoint is not None:
        named["checkpoint_id"] = checkpoint
    return {"configurable": named}


def checkpoint(name, **values):
    return {
        "v": 4,
        "id": name,
        "ts": "2026-01-02T03:04:05+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1),
        "versions_seen": {"node": {"a": 1}},
        "updated_channels": None,
    }


def put(saver, name, thread="t", parent=None, metadata=None, **values):
    found = checkpoint(name, **values)
    told = {"source": "loop", "step": 1, **(metadata or {})}
    return saver.put(config(thread, parent), found, told, found["channel_versions"])


def values(saver, thread="t", name=None):
    found = saver.get_tuple(config(thread, name))
    return None if found is None else found.checkpoint["channel_values"]
