"""Requests about spaces of a running server."""

from __future__ import annotations

import http.client
import itertools
import json
from urllib.parse import quote

DID = "did:key:z6MkServed0"
_numbers = itertools.count()


class Answer:
    """A response; `value` is its body as JSON."""

    def __init__(self, response):
        self.status, self.headers, self.text = response.status, response.headers, response.read()

    @property
    def value(self):
        return json.loads(self.text)


class Spaces:
    """Requests to one server, with the headers of a client."""

    def __init__(self, port, **headers):
        self.port = port
        self._headers = _named(headers)

    def ask(self, method, path, body=None, query="", **headers):
        """Send one request on a new connection; the path is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            target = f"{path}?{query}" if query else path
            connection.request(method, target, body, self._headers | _named(headers))
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def create(self, did=None):
        """Return a new space."""
        if did is None:
            number = next(_numbers)
            did = f"{DID[:-1]}{number}" if number else DID
        answer = self.ask("PUT", f"/v1/spaces/{did}")
        assert answer.status in {200, 201}, answer.text
        return ServedSpace(self, did)


class ServedSpace:
    """Requests about one space."""

    def __init__(self, spaces, did):
        self.spaces, self.did = spaces, did

    def ask(self, method, path, body=None, query="", **headers):
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return self.spaces.ask(method, f"/v1/spaces/{self.did}{path}", body, query, **headers)

    def get(self, entity, query="", **headers):
        return self.ask("GET", _document(entity), None, query, **headers)

    def put(self, entity, document, query="", **headers):
        return self.ask("PUT", _document(entity), document, query, **headers)

    def patch(self, entity, patches, query="", **headers):
        return self.ask("PATCH", _document(entity), patches, query, **headers)

    def delete(self, entity, query="", **headers):
        return self.ask("DELETE", _document(entity), None, query, **headers)

    def transact(self, operations, headers=None, **body):
        body = {"operations": operations, **body}
        return self.ask("POST", "/transact", body, **(headers or {}))


def _document(entity):
    return f"/documents/{quote(entity, safe='/')}"


def _named(headers):
    return {name.replace("_", "-"): value for name, value in headers.items()}
