"""Sessions in the shapes that other libraries expect.

    fourfold.adapters.langgraph.saver        a checkpointer of LangGraph; needs fourfold[langgraph]
    fourfold.adapters.openai_agents    a session of the OpenAI Agents SDK

Everything that an adapter keeps is events and payloads of ordinary sessions: views of the past,
verification, bundles, collection and the pipeline work on it as on any other session.
"""

from __future__ import annotations
