"""Recorded rounds of kills and faults, added up."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench import machine, tables
from bench.machine import Machine
from bench.reliability import faults
from bench.reliability.models import MODELS
from bench.reliability.rounds import RoundResult, run_round

OUTCOMES = ("acknowledged", "refused", "unknown")


class Result(msgspec.Struct, frozen=True):
    """Rounds that were run, added up."""

    finished_at: str
    machine: Machine
    first_seed: int
    rounds: int
    kills: int
    seconds: float
    faults: dict[str, int]
    failed_calls: int
    operations: dict[str, dict[str, int]]
    reads: int
    violations: list[str]
    """Broken promises, with the seed of their round."""
    problems: list[str]


def run(
    folder: Path,
    seed: int,
    kills: int,
    kills_per_round: int,
    keep: Path | None,
    previous: Result | None = None,
) -> Iterator[Result]:
    """Run rounds until there were `kills`, with those of `previous`; yield the sum after each.

    The folder of a round with a violation is kept in `keep`.
    """
    facts = machine.describe(folder)
    library = faults.build(folder)
    sum_, rounds = RoundResult(), 0
    operations: dict[str, Counter[str]] = {model.name: Counter() for model in MODELS}
    violations: list[str] = []
    if previous is not None:
        seed, rounds, violations = previous.first_seed, previous.rounds, previous.violations
        sum_.kills, sum_.seconds, sum_.reads = previous.kills, previous.seconds, previous.reads
        sum_.failed_calls, sum_.problems = previous.failed_calls, previous.problems
        sum_.faults = Counter(previous.faults)
        for name, outcomes in previous.operations.items():
            operations[name] = Counter(outcomes)
    while sum_.kills < kills:
        with TemporaryDirectory(dir=folder, prefix="round-") as place:
            number = seed + rounds
            count = min(kills_per_round, kills - sum_.kills)
            result = run_round(Path(place), library, number, count)
            if keep is not None and (result.violations or result.problems):
                shutil.copytree(place, keep / f"round-{number}", dirs_exist_ok=True)
        rounds += 1
        sum_.kills += result.kills
        sum_.faults += result.faults
        sum_.failed_calls += result.failed_calls
        sum_.reads += result.reads
        sum_.seconds = round(sum_.seconds + result.seconds, 1)
        for name, outcomes in result.operations.items():
            operations[name] += outcomes
        for name, broken in result.violations.items():
            violations += [
                f"seed {number}, {name}: {violation.kind} {violation.value} {violation.detail}"
                for violation in broken[:20]
            ]
        sum_.problems += [f"seed {number}: {problem}" for problem in result.problems]
        yield Result(
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=facts,
            first_seed=seed,
            rounds=rounds,
            kills=sum_.kills,
            seconds=sum_.seconds,
            faults=dict(sorted(sum_.faults.items())),
            failed_calls=sum_.failed_calls,
            operations={name: dict(outcomes) for name, outcomes in operations.items()},
            reads=sum_.reads,
            violations=violations,
            problems=sum_.problems,
        )


def table(result: Result, path: Path) -> str:
    """Return the figures of a result as Markdown."""
    rows = [
        (name, *(f"{outcomes.get(outcome, 0):,}" for outcome in OUTCOMES))
        for name, outcomes in result.operations.items()
    ]
    caused = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in result.faults.items())
    facts = [
        (
            f"{result.kills:,} kills by SIGKILL in {result.rounds} rounds of new stores, "
            f"{result.seconds / 60:.0f} minutes"
        ),
        f"Other faults: {caused}; {result.failed_calls:,} calls to disk and object store failed",
        f"{result.reads:,} reads of logs while this went on",
        (
            f"Broken promises: {len(result.violations)}; "
            f"problems of stores and copies: {len(result.problems)}"
        ),
    ]
    return "\n\n".join(
        [
            tables.markdown(("operations", *OUTCOMES), rows),
            "\n".join(f"- {fact}" for fact in facts),
            (
                f"From `bench/results/{path.name}`; the seed of the first round is "
                f"{result.first_seed}."
            ),
        ]
    )
