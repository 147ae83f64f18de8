"""Random lives of a space against the dumb model: every past state is read back equal."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from merge_machine import MergeMachine
from space_machine import SpaceMachine

from fourfold.models.documents import HISTORIES
from support.properties import examples

QUICK = settings(
    max_examples=examples(15),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
THOROUGH = settings(QUICK, max_examples=2_000, stateful_step_count=40)


def machine(kind, base=SpaceMachine):
    """The machine of one kind of history."""
    return type(f"{kind.title()}{base.__name__}", (base,), {"history": kind})


@pytest.mark.parametrize("kind", sorted(HISTORIES))
def test_every_past_state_of_random_life_is_read_back_equal(kind):
    run_state_machine_as_test(machine(kind), settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", sorted(HISTORIES))
def test_every_past_state_of_random_histories_is_read_back(kind):
    run_state_machine_as_test(machine(kind), settings=THOROUGH)


@pytest.mark.parametrize("kind", sorted(HISTORIES))
def test_merges_of_random_branches_are_those_of_a_commit_graph(kind):
    run_state_machine_as_test(
        machine(kind, MergeMachine), settings=settings(QUICK, max_examples=examples(30))
    )


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", sorted(HISTORIES))
def test_merges_of_random_branches_match_a_commit_graph(kind):
    run_state_machine_as_test(machine(kind, MergeMachine), settings=THOROUGH)
