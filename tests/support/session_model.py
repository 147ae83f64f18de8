"""A naive model of a session store: lists of dicts, and a view recomputed from all of them.

It shares no code with the store, and does everything in the most obvious way. State machines
compare the two.
"""

from __future__ import annotations

import copy
from typing import Any

STARTED = {"turn/started": "turn", "step/started": "step"}
PUT = {"turn/put": "turn", "step/put": "step"}


class Refusal(Exception):
    """The model requires that a call is refused."""


class SessionModel:
    """All sessions, each a list of events."""

    def __init__(self) -> None:
        self.logs: dict[str, list[dict[str, Any]]] = {}
        self.order: list[tuple[str, int]] = []
        self.deleted: set[str] = set()

    def create(self, sid: str) -> None:
        """Create a session; idempotent."""
        if sid in self.deleted:
            raise Refusal
        self.logs.setdefault(sid, [])

    def delete(self, sid: str) -> None:
        """Delete a session."""
        self._log(sid)
        self.deleted.add(sid)

    def append(
        self, sid: str, events: list[dict[str, Any]], *, last: int | None = None
    ) -> list[dict[str, Any]]:
        """Append events, all or none."""
        log = self._log(sid)
        if last is not None and last != len(log):
            raise Refusal
        # On a copy, so that a batch that fails leaves nothing.
        longer = list(log)
        for event in events:
            longer.append(self._numbered(longer, event))
        new = longer[len(log) :]
        self.logs[sid] = longer
        self.order += [(sid, event["id"]) for event in new]
        return new

    def publish(self, sid: str, to: int | None, expected: Any, fields: dict[str, Any]) -> None:
        """Publish a head with its fields and its range."""
        log = self._log(sid)
        heads = self.view(sid)["heads"]
        if expected not in {"any", heads[-1]["name"] if heads else None}:
            raise Refusal
        first = heads[-1]["range"][1] + 1 if heads else 1
        last = len(log) if to is None else to
        if not first <= last <= len(log):
            raise Refusal
        head = {"name": f"{sid}#{len(heads)}", "range": [first, last], **fields}
        self.append(sid, [{"type": "head/published", "head": head}])

    def view(self, sid: str, at: int | None = None) -> dict[str, Any]:
        """Compute the view of the events up to `at`."""
        log = self._log(sid)[:at]
        view: dict[str, Any] = {
            "session": None,
            "messages": [],
            "turns": [],
            "steps": [],
            "evals": [],
            "heads": [],
            "edges": [],
            "vars_ref": None,
            "compact_from_event_id": None,
            "error": None,
        }
        for event in copy.deepcopy(log):
            self._apply(view, event)
        view["events"] = len(log)
        boundary = view["compact_from_event_id"] or 0
        view["kept"] = [
            event["message"] for event in log if "message" in event and event["id"] >= boundary
        ]
        return view

    def _apply(self, view: dict[str, Any], event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "session/started":
            view["session"] = event["session"]
        elif kind in STARTED:
            view[f"{STARTED[kind]}s"].append(event[STARTED[kind]])
        elif kind in PUT:
            items = view[f"{PUT[kind]}s"]
            for index, item in enumerate(items):
                if item["id"] == event[PUT[kind]]["id"]:
                    items[index] = event[PUT[kind]]
        elif kind == "message/appended":
            view["messages"].append(event["message"])
        elif kind == "eval/added":
            view["evals"].append(event["eval"])
        elif kind == "session/vars-snapshotted":
            view["vars_ref"] = event["vars_ref"]
        elif kind == "session/compacted":
            view["vars_ref"] = event["vars_ref"]
            view["compact_from_event_id"] = event.get("compact_from_event_id", event["id"])
            view["messages"].append(event["message"])
        elif kind == "head/published":
            view["heads"].append(event["head"])
        elif kind == "lineage/edge-added":
            view["edges"].append(event["edge"])
        elif kind in {"session/stop-requested", "session/stopped", "session/error"}:
            view["session"] = {**(view["session"] or {}), "status": kind.partition("/")[2]}
            view["error"] = event.get("error", view["error"])

    def _numbered(self, log: list[dict[str, Any]], event: dict[str, Any]) -> dict[str, Any]:
        """Return the event with its id and its entity's; raise Refusal for an unknown entity."""
        new = {**copy.deepcopy(event), "id": len(log) + 1}
        for entity, starts, puts in (
            ("turn", ("turn/started",), ("turn/put",)),
            ("step", ("step/started",), ("step/put",)),
            ("message", ("message/appended", "session/compacted"), ()),
            ("eval", ("eval/added",), ()),
        ):
            count = sum(entry["type"] in starts for entry in log)
            if new["type"] in starts:
                new[entity]["id"] = count + 1
            elif new["type"] in puts and not 1 <= new[entity]["id"] <= count:
                raise Refusal
        if new.get("compact_from_event_id", 0) > new["id"]:
            raise Refusal
        return new

    def _log(self, sid: str) -> list[dict[str, Any]]:
        if sid not in self.logs or sid in self.deleted:
            raise Refusal
        return self.logs[sid]
