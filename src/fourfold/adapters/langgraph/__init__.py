"""LangGraph checkpointer that stores threads as sessions, and store over a memory."""

from __future__ import annotations

from fourfold.adapters.langgraph.saver import FourfoldSaver
from fourfold.adapters.langgraph.store import FourfoldStore

__all__ = ["FourfoldSaver", "FourfoldStore"]
