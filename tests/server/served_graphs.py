"""Requests about graphs of a running server, and its server-sent events."""

from __future__ import annotations

import http.client
import json
from urllib.parse import quote

from served_spaces import Spaces


class ServedApp:
    """Requests about one app."""

    def __init__(self, server, app):
        self.server, self.app = server, app

    def ask(self, method, path="", body=None, query="", **headers):
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        path = f"/v1/apps/{quote(self.app, safe='')}{path}"
        return self.server.ask(method, path, body, query, **headers)

    def register_type(self, kind, key):
        answer = self.ask("POST", "/types", {"kind": kind, "type_key": key})
        assert answer.status in {200, 201}, answer.text
        return answer.value["id"]

    def apply(self, operations, owner=1, headers=None, **body):
        body = {"owner": owner, "operations": operations, **body}
        return self.ask("POST", "/envelopes", body, **(headers or {}))

    def pages(self, path, query=""):
        """Return the items of all pages."""
        items, cursor = [], ""
        while True:
            parts = [part for part in (query, f"cursor={cursor}" if cursor else "") if part]
            answer = self.ask("GET", path, None, "&".join(parts))
            assert answer.status == 200, answer.text
            items += answer.value["items"]
            cursor = answer.value["next_cursor"]
            if cursor is None:
                return items


def server_of(front, **headers):
    return Spaces(front.port, **headers)


class Events:
    """An open feed; iterates over (id, event, data), with None for each of them that is missing."""

    def __init__(self, port, target, **headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request("GET", target, None, named)
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["content-type"] == "text/event-stream"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The response has a reference to the socket of its own.
        self.response.close()
        self.connection.close()

    def __iter__(self):
        fields = {}
        for line in self.response:
            text = line.decode().removesuffix("\n")
            if text:
                name, _, value = text.partition(": ")
                fields[name] = value
                continue
            data = fields.get("data")
            yield fields.get("id"), fields.get("event"), data and json.loads(data)
            fields = {}
