"""Structs of the HTTP API: bodies, queries and headers, shared by the server and the client.

They state what is sent; the OpenAPI document is generated from them. A body of a request with
unknown fields is refused; unknown fields in a response of a newer server are ignored.
"""

from __future__ import annotations
