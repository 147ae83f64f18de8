"""Children are killed at random moments in the middle of group commits, over and over, on the same
database: what was recovered once must be recoverable again.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from kernel_child import SCRIPT, Acknowledged, Job, check_backups, check_database

from fourfold.kernel import holder
from support.crash import Moment, random_kill_time, run
from support.properties import repeats

MODES = ("thread", "threads", "coroutines", "mixture", "reopening")
KILLS_IN_A_CHAIN = 12
CHAINS = repeats(24)


def kill_once(job, random, acknowledged, moment):
    """One life and death of a child on the database of `job`; whether it had begun to work."""
    crash = run(SCRIPT, job.argument(), kill=moment)
    assert crash.killed, crash
    acknowledged.hear(crash.lines)
    # A reader cannot finish the creation of a database; with an acknowledgement it is finished.
    reader_first = bool(acknowledged.entries) and random.random() < 0.3
    check_database(job, acknowledged, reader_first=reader_first)
    check_backups(Path(job.backup), acknowledged)
    return crash.ready


def some_job(folder, mode, random):
    return Job(
        mode,
        str(folder / "log.db"),
        seed=random.getrandbits(32),
        synchronous=random.choice(("FULL", "NORMAL")),
        checkpoint_pages=random.choice((10, 60, 1000)),
        placement=random.choice(("auto", "inline", "thread")),
        backup=str(folder / "backups"),
    )


def chain(folder, seed, kills):
    """Kill `kills` children one after the other; how many of them had begun to work."""
    random = Random(seed)
    acknowledged = Acknowledged()
    modes = [MODES[(seed + i) % len(MODES)] for i in range(kills)]
    return sum(
        kill_once(some_job(folder, mode, random), random, acknowledged, random_kill_time(random))
        for mode in modes
    )


@pytest.mark.parametrize("mode", MODES)
def test_kill_during_commits_loses_nothing_acknowledged(tmp_path, mode):
    random = Random(mode)
    acknowledged = Acknowledged()
    for _ in range(2):
        moment = Moment(acknowledgements=random.randint(20, 120))
        assert kill_once(some_job(tmp_path, mode, random), random, acknowledged, moment)
    assert len(acknowledged.entries) > 20


def test_kill_during_open_leaves_database_unchanged(tmp_path):
    random = Random(5)
    acknowledged = Acknowledged()
    job = some_job(tmp_path, "threads", random)
    kill_once(job, random, acknowledged, Moment(acknowledgements=50))
    for _ in range(3):
        moment = Moment(seconds=random.uniform(0.08, 0.2), await_ready=False)
        kill_once(job, random, acknowledged, moment)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_kills_in_chains_lose_nothing_acknowledged(tmp_path):
    kills = 0
    for seed in range(CHAINS):
        folder = tmp_path / f"chain-{seed}"
        kills += chain(folder, seed, KILLS_IN_A_CHAIN)
        assert holder(folder / "log.db") is None
    assert kills >= 8 * CHAINS


@pytest.mark.slow
def test_kill_at_each_stage_of_open_leaves_database_unchanged(tmp_path):
    random = Random(11)
    acknowledged = Acknowledged()
    for _ in range(repeats(60)):
        job = some_job(tmp_path, random.choice(MODES), random)
        moment = Moment(seconds=random.uniform(0.08, 0.25), await_ready=False)
        kill_once(job, random, acknowledged, moment)
