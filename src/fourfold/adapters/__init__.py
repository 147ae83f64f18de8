"""Sessions and memories in the interfaces that other libraries expect.

    fourfold.adapters.langgraph        a checkpointer and a store of LangGraph; needs
                                       fourfold[langgraph]
    fourfold.adapters.openai_agents    a session of the OpenAI Agents SDK
    fourfold.adapters.pydantic_ai      a conversation store; needs fourfold[pydantic-ai]
    fourfold.adapters.mcp              a store as tools of an MCP server; needs fourfold[mcp]
    fourfold.adapters.otlp             traces of sessions for OpenTelemetry; needs fourfold[otlp]

Those for sessions store only events and payloads of ordinary sessions: views of the past,
verification, bundles, garbage collection and the pipeline work on them as on any other session.
"""

from __future__ import annotations
