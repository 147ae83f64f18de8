"""Requests about sessions of a running server."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from urllib.parse import quote

from served_spaces import Answer

_numbers = itertools.count()


class ServedSessions:
    """Requests to one server, with the headers of a client."""

    def __init__(self, port, **headers):
        self.port = port
        self._headers = _named(headers)

    def ask(self, method, path, body=None, query="", **headers):
        """Send one request on a new connection."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            target = quote(path, safe="/:") + (f"?{query}" if query else "")
            connection.request(method, target, body, self._headers | _named(headers))
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def create(self, sid=None, **fields):
        """Return a new session."""
        sid = sid or f"team/s-{next(_numbers)}"
        answer = self.ask("PUT", f"/v1/session/{sid}", fields)
        assert answer.status in {200, 201}, answer.text
        return ServedSession(self, sid)


class ServedSession:
    """Requests about one session."""

    def __init__(self, sessions, sid):
        self.sessions, self.sid = sessions, sid

    def get(self, verb, query="", **headers):
        return self.sessions.ask("GET", f"/v1/sessions/{verb}/{self.sid}", None, query, **headers)

    def post(self, verb, body, query="", **headers):
        return self.sessions.ask("POST", f"/v1/sessions/{verb}/{self.sid}", body, query, **headers)

    def append(self, *events, **headers):
        return self.post("events", {"events": list(events)}, **headers)

    def publish(self, head=None, events=(), **headers):
        return self.post("heads", {"head": head or {}, "events": list(events)}, **headers)

    def follow(self, query="", **headers):
        return Reader(self.sessions.port, f"/v1/sessions/live/{self.sid}", query, headers)


class Reader:
    """A reader of server-sent events; each is (name, id or None, data)."""

    def __init__(self, port, path, query, headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        target = path + (f"?{query}" if query else "")
        self.connection.request("GET", target, None, _named(headers))
        self.response = self.connection.getresponse()
        self.last_id = None
        self.comments = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.connection.close()

    def next(self):
        """Return the next event that has data, or None at the end."""
        name = own_id = data = None
        while line := self.response.readline():
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "id":
                self.last_id = own_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data = json.loads(value)
            elif line.startswith(b":"):
                self.comments += 1
            elif not field and data is not None:
                return name, own_id, data
            elif not field:
                own_id = None
        return None

    def take(self, count):
        return [self.next() for _ in range(count)]


def together(*calls):
    """Call functions in threads that start together; return their results."""
    barrier, results = threading.Barrier(len(calls)), [None] * len(calls)

    def run(number, call):
        barrier.wait()
        results[number] = call()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def message(text):
    return {"type": "message/appended", "message": {"role": "user", "content": text}}


def turn(status="running"):
    return {"type": "turn/started", "turn": {"status": status}}


def _named(headers):
    return {name.replace("_", "-"): value for name, value in headers.items()}
