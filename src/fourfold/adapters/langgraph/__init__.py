"""LangGraph checkpointer that stores threads as sessions."""

from __future__ import annotations

from fourfold.adapters.langgraph.saver import FourfoldSaver

__all__ = ["FourfoldSaver"]
