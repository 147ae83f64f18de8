"""Whether this machine's uvicorn is one that the two fronts fit.

They build on names of uvicorn that are not promised to stay. They are looked for when the server
starts; where one is missing the server runs on uvicorn as it is, which gives the same answers, and
says so.
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
    """What keeps the fast front from being used here; None when nothing does."""
    try:
        import httptools  # noqa: PLC0415 - an extra
        from uvicorn.protocols.http import httptools_impl  # noqa: PLC0415 - an extra
    except ImportError as error:
        return f"{error.name or error} is not installed"
    try:
        return _missing(httptools_impl, httptools)
    except Exception as error:  # noqa: BLE001  (a uvicorn that is so different is not used)
        return f"uvicorn is not as expected: {error!r:.200}"


def _missing(module: Any, httptools: Any) -> str | None:
    from uvicorn import Config  # noqa: PLC0415 - an extra
    from uvicorn.protocols.http.flow_control import FlowControl  # noqa: PLC0415 - an extra
    from uvicorn.server import ServerState  # noqa: PLC0415 - an extra

    kind = module.HttpToolsProtocol
    for name, wanted in _METHODS.items():
        found = tuple(inspect.signature(getattr(kind, name)).parameters)[1:]
        if found != wanted:
            return f"uvicorn's {name} takes {found}, not {wanted}"
    if 204 not in module.STATUS_LINE:
        return "uvicorn has no status line for 204"
    made = kind(Config(_nothing, log_config=None), ServerState(), {}, _loop=object())
    for what, names in (
        (made, _ATTRIBUTES),
        (made.server_state, _SERVER_STATE),
        (FlowControl(None), _FLOW),  # type: ignore[arg-type]
        (httptools.HttpRequestParser, _PARSER),
        (_made_cycle(module), _CYCLE),
    ):
        for name in names:
            if not hasattr(what, name):
                return f"uvicorn has no {name} where it was"
    made.on_message_begin()
    if made.scope["headers"] is not made.headers:
        return "uvicorn keeps the headers of a request elsewhere"
    return None


def _made_cycle(module: Any) -> Any:
    kind = module.RequestResponseCycle
    return kind(**dict.fromkeys(tuple(inspect.signature(kind).parameters)))


async def _nothing(_scope: Any, _receive: Any, _send: Any) -> None:
    """An application for the look at uvicorn; it is never called."""
