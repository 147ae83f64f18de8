"""Random lives of both stores: whatever happens, they say what the dumb model says."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from session_machine import MemoryMachine, StoreMachine

from support.properties import examples

SETTINGS = settings(
    max_examples=examples(15),
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)

TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = SETTINGS
TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = SETTINGS
