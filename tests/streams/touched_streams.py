"""Helpers for streams with touch enabled: messages and queries."""

from __future__ import annotations

import json

from fourfold.models.streams.touch import Template

TOUCHED = {"kind": "state-protocol", "touch": {"enabled": True}}
BY_CITY = Template("user", {"city": "string"})
CONTROL = b'{"headers": {"control": "reset"}}'


def change(key="1", city="Ulm", operation="insert", **parts):
    value = {} if operation == "delete" else {"value": {"city": city}}
    message = {"type": "user", "key": key, "headers": {"operation": operation}, **value, **parts}
    return json.dumps(message).encode()


def in_table(streams, sql):
    with streams.database.read() as snapshot:
        return snapshot.all(sql)
