"""A program that runs the scripted agent until its third question, and thinks about that one until
it is killed. It prints each question before it asks.
"""

from __future__ import annotations

import sys

import fourfold
from fourfold.cli.demo.scripted_agent import SID, TASK, agent


def tell(question: str) -> None:
    sys.stdout.write(f"{question}\n")
    sys.stdout.flush()


def run(root: str) -> None:
    with fourfold.open(root) as store:
        agent(store.sessions, tell, stuck_at=3).run_turn(SID, TASK, key=TASK)


if __name__ == "__main__":
    run(sys.argv[1])
