"""Random lives of a space over HTTP against the dumb model: the same states as in process."""

from __future__ import annotations

import asyncio

import pytest
from http_space import HttpSpace, serve
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from space_machine import SpaceMachine
from test_space_machine import QUICK, THOROUGH

from fourfold.models.documents import HISTORIES
from support.properties import examples


class HttpSpaceMachine(SpaceMachine):
    """A life of a space whose reads and writes are requests."""

    def __init__(self):
        self.runner = asyncio.Runner()
        super().__init__()

    def calls_inside_a_transaction(self):
        """Not a rule here: requests have transactions of their own."""

    def recreate_under_the_same_name(self):
        """Not a rule here: there is no import over HTTP."""

    def carry_over(self):
        """Carry over in process, and go on with the other space over HTTP."""
        self._space = self._space.real
        try:
            return super().carry_over()
        finally:
            self.space = self._space

    @property
    def space(self):
        return self._space

    @space.setter
    def space(self, space):
        if not isinstance(space, HttpSpace):
            space = HttpSpace(self.protocol, self.runner, space)
        self._space = space

    def open(self):
        self.protocol = None
        super().open()
        self.protocol = serve(self.store)
        self.space = self.store.space(self.did)

    def teardown(self):
        try:
            super().teardown()
        finally:
            self.runner.close()


def machine(kind):
    return type(f"{kind.title()}HttpSpaceMachine", (HttpSpaceMachine,), {"history": kind})


@pytest.mark.parametrize("kind", sorted(HISTORIES))
def test_random_life_over_http_is_that_of_the_model(kind):
    run_state_machine_as_test(
        machine(kind), settings=settings(QUICK, max_examples=examples(9), stateful_step_count=20)
    )


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", sorted(HISTORIES))
def test_thousands_of_random_lives_over_http_are_those_of_model(kind):
    run_state_machine_as_test(machine(kind), settings=settings(THOROUGH, max_examples=500))
