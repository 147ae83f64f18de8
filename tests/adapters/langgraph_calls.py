"""Short forms of checkpointer calls for tests."""

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
    result = checkpoint(name, **values)
    response = {"source": "loop", "step": 1, **(metadata or {})}
    return saver.put(config(thread, parent), result, response, result["channel_versions"])


def values(saver, thread="t", name=None):
    result = saver.get_tuple(config(thread, name))
    return None if result is None else result.checkpoint["channel_values"]
