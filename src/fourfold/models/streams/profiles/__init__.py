"""What a stream is used as, where that is more than a stream: `generic`, `state-protocol`, `evlog`.

A profile says what a message must look like, and what of it is written. What has a name here is
pure: the time is given, and no database is asked.
"""

from __future__ import annotations

from fourfold.models.streams.profiles.config import read
from fourfold.models.streams.profiles.evlog import EventLog
from fourfold.models.streams.profiles.profile import GENERIC, AdmittedMessages, Profile
from fourfold.models.streams.profiles.state import StateProtocol

__all__ = ["GENERIC", "AdmittedMessages", "EventLog", "Profile", "StateProtocol", "read"]
