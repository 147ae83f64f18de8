"""Profiles of streams: `generic`, `state-protocol` and `evlog`.

A profile defines which messages are valid, and how they are stored. The exported names are pure:
the time is an argument, and no database is used.
"""

from __future__ import annotations

from fourfold.models.streams.profiles.config import read
from fourfold.models.streams.profiles.evlog import EventLog
from fourfold.models.streams.profiles.profile import GENERIC, AdmittedMessages, GenericProfile
from fourfold.models.streams.profiles.state import StateProtocol

__all__ = ["GENERIC", "AdmittedMessages", "EventLog", "GenericProfile", "StateProtocol", "read"]
