"""MCP server: a store as read-only tools for agents and assistants.

    from fourfold.adapters.mcp import make_server

    make_server(fourfold.open("ROOT", mode="r")).run("stdio")

`fourfold mcp ROOT` does this on the command line. It needs fourfold[mcp].
"""

from __future__ import annotations

from fourfold.adapters.mcp.server import make_server

__all__ = ["make_server"]
