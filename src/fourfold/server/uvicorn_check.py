"""Check that the installed uvicorn is compatible with the HTTP protocol classes.

They build on internal names of uvicorn. These are checked when the server starts; if one is missing
the server runs on uvicorn's own protocol, which gives the same responses, and `/health` reports it.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

_METHODS: Final = {
    "connection_made": ("transport",),
    "connection_lost": ("exc",),
    "data_received": ("data",),
    "eof_received": (),
    "pause_writing": (),
    "resume_writing": (),
    "shutdown": (),
    "on_message_begin": (),
    "on_header": ("name", "value"),
    "on_headers_complete": (),
    "on_body": ("body",),
    "on_message_complete": (),
    "on_response_complete": (),
    "send_400_response": ("msg",),
    "_unset_keepalive_if_required": (),
}
_ATTRIBUTES: Final = (
    "cycle",
    "expect_100_continue",
    "flow",
    "headers",
    "limit_concurrency",
    "loop",
    "logger",
    "parser",
    "pipeline",
    "root_path",
    "server_state",
    "transport",
)
_CYCLE: Final = (
    "disconnected",
    "message_event",
    "more_body",
    "response_complete",
    "response_started",
    "send",
    "send_500_response",
    "transport",
)
_SERVER_STATE: Final = ("default_headers", "total_requests", "connections")
_FLOW: Final = ("pause_reading", "resume_reading", "read_paused", "write_paused")
_PARSER: Final = ("get_method", "get_http_version", "should_keep_alive", "should_upgrade")


def unsupported_reason() -> str | None:
    """Return why the fast append path cannot be used here, or None if it can."""
    try:
        import httptools  # noqa: PLC0415 - an extra
        from uvicorn.protocols.http import httptools_impl  # noqa: PLC0415 - an extra
    except ImportError as error:
        return f"{error.name or error} is not installed"
    try:
        return _missing(httptools_impl, httptools)
    except Exception as error:  # noqa: BLE001  (too different to be used)
        return f"unexpected uvicorn: {error!r:.200}"


def _missing(module: Any, httptools: Any) -> str | None:
    """Return what is missing or different in uvicorn, or None."""
    from uvicorn import Config  # noqa: PLC0415 - an extra
    from uvicorn.protocols.http.flow_control import FlowControl  # noqa: PLC0415 - an extra
    from uvicorn.server import ServerState  # noqa: PLC0415 - an extra

    protocol_class = module.HttpToolsProtocol
    for name, expected in _METHODS.items():
        actual = tuple(inspect.signature(getattr(protocol_class, name)).parameters)[1:]
        if actual != expected:
            return f"uvicorn's {name}: expected {expected}, found {actual}"
    if 204 not in module.STATUS_LINE:
        return "uvicorn has no status line for 204"
    # Without "none" it would load a library for WebSockets.
    config = Config(_unused_app, log_config=None, ws="none")
    protocol = protocol_class(config, ServerState(), {}, _loop=object())
    for owner, names in (
        (protocol, _ATTRIBUTES),
        (protocol.server_state, _SERVER_STATE),
        (FlowControl(None), _FLOW),  # type: ignore[arg-type]
        (httptools.HttpRequestParser, _PARSER),
        (_make_cycle(module), _CYCLE),
    ):
        for name in names:
            if not hasattr(owner, name):
                return f"uvicorn has no attribute {name} in the expected class"
    protocol.on_message_begin()
    if protocol.scope["headers"] is not protocol.headers:
        return "uvicorn stores the headers of a request elsewhere"
    return None


def _make_cycle(module: Any) -> Any:
    kind = module.RequestResponseCycle
    return kind(**dict.fromkeys(tuple(inspect.signature(kind).parameters)))


async def _unused_app(_scope: Any, _receive: Any, _send: Any) -> None:
    """Do nothing; an ASGI application for the check, which never calls it."""
