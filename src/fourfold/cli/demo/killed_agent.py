"""A program that runs the scripted agent, and hangs at its third question until it is killed.

It prints each question before it sends it.
"""

from __future__ import annotations

import sys

import fourfold
from fourfold.cli.demo.scripted_agent import SID, TASK, agent


def report(question: str) -> None:
    """Print a question at once, so that the parent process sees it."""
    sys.stdout.write(f"{question}\n")
    sys.stdout.flush()


def run(root: str) -> None:
    """Run a turn that stops at its third part, where the process is killed."""
    with fourfold.open(root) as store:
        agent(store.sessions, report, stuck_at=3).run_turn(SID, TASK, key=TASK)


if __name__ == "__main__":
    run(sys.argv[1])
