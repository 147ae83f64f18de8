"""The acts of the demo. Each does something real and returns what it saw: lines for people, facts
for `--json`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fourfold
from fourfold import store as stores
from fourfold.cli.demo.documents_act import documents_branch_and_travel
from fourfold.cli.demo.graphs_act import graphs_agree_between_stores
from fourfold.cli.demo.journal import add, journal, numbers
from fourfold.cli.demo.sessions_act import an_agent_is_killed_and_resumes
from fourfold.cli.demo.streams_act import streams_are_written_once_and_followed
from fourfold.cli.output import size
from fourfold.errors import FourfoldError, SequenceRegression

Shown = tuple[list[str], dict[str, object]]

_CALLERS = 64
_WRITES_EACH = 50
_KILL_AFTER = 500


@dataclass(slots=True)
class Stage:
    """Where the demo plays: the store, and a folder for everything else."""

    root: Path
    scratch: Path

    @property
    def backup(self) -> Path:
        return self.scratch / "backup"


def a_store_is_a_folder(stage: Stage) -> Shown:
    """A store is a folder that you own."""
    with fourfold.open(stage.root) as store:
        first = journal(store).transact(lambda txn: add(txn, "hello"))
    files = sorted(str(p.relative_to(stage.root)) for p in stage.root.rglob("*") if p.is_file())
    lines = [f"fourfold.open({str(stage.root)!r}) made: {', '.join(files)}"]
    lines.append(f"the first entry of its journal got number {first}")
    return lines, {"files": files, "first": first}


def callers_share_commits(stage: Stage) -> Shown:
    """64 callers at once share commits, and each gets its own number."""
    with fourfold.open(stage.root) as store:
        log = journal(store)
        started = time.perf_counter()
        got = _write_from_threads(log)
        seconds = time.perf_counter() - started
        counters = log.metrics().counters
    commits = counters["transactions"]
    lines = [
        f"{len(got):,} entries, each acknowledged once it was on disk, in {commits:,} commits",
        f"{len(got) / seconds:,.0f} entries a second; numbers dense: {_dense(got)}",
    ]
    facts: dict[str, object] = {
        "entries": len(got),
        "commits": commits,
        "per_second": round(len(got) / seconds),
        "dense": _dense(got),
    }
    return lines, facts


def a_killed_writer_loses_nothing(stage: Stage) -> Shown:
    """A writer is killed in the middle of its work; nothing acknowledged is lost."""
    child = subprocess.Popen(
        [sys.executable, "-m", "fourfold.cli.demo.endless_writer", str(stage.root)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(_KILL_AFTER)]
    os.kill(child.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in child.stdout.read().split("\n")[:-1]]
    child.stdout.close()
    child.wait()
    with fourfold.open(stage.root) as store:
        found = numbers(journal(store))
    missing = set(acknowledged) - set(found)
    lines = [
        f"process {child.pid} acknowledged {len(acknowledged):,} entries, then got SIGKILL",
        f"reopened: {len(missing)} of them missing; {len(found):,} in all, dense: {_dense(found)}",
    ]
    return lines, {
        "acknowledged": len(acknowledged),
        "missing": len(missing),
        "dense": _dense(found),
    }


def a_second_writer_is_refused(stage: Stage) -> Shown:
    """A second writer is refused; readers are welcome."""
    with fourfold.open(stage.root) as store:
        journal(store)
        with fourfold.open(stage.root) as second:
            try:
                journal(second)
            except FourfoldError as error:
                refusal = error
        with fourfold.open(stage.root, mode="r") as reader:
            seen = len(numbers(journal(reader)))
    name = refusal.message.replace(str(stage.root), "ROOT")
    return [f"error[{refusal.kind}]: {name}", f"a reader sees {seen:,} entries meanwhile"], {
        "refused_with": refusal.kind,
        "reader_saw": seen,
    }


def a_backup_proves_itself(stage: Stage) -> Shown:
    """A backup is taken from a store in use, and a flipped bit in it is found."""
    with fourfold.open(stage.root) as store:
        report = store.backup(stage.backup)
    sound = stores.verify_backup(stage.backup).ok
    copy = next(stage.backup.rglob("*.sqlite"))
    _flip_a_bit(copy)
    damaged = stores.verify_backup(stage.backup)
    _flip_a_bit(copy)
    lines = [
        f"{report.databases} database, {report.files} file, {size(report.bytes)}; sound: {sound}",
        f"one bit flipped on purpose; sound: {damaged.ok} ({len(damaged.problems)} problem found)",
    ]
    return lines, {"bytes": report.bytes, "sound": sound, "damage_found": not damaged.ok}


def a_restore_never_goes_back(stage: Stage) -> Shown:
    """A restore never hands out a number twice."""
    with fourfold.open(stage.root) as store:
        last = journal(store).transact(lambda txn: add(txn, "after the backup"))
    try:
        fourfold.restore(stage.backup, stage.root)
    except SequenceRegression as error:
        refusal = error
    fourfold.restore(stage.backup, stage.root, advance=True)
    with fourfold.open(stage.root) as store:
        following = journal(store).transact(lambda txn: add(txn, "after the restore"))
    name = refusal.message.replace(str(stage.root), "ROOT")
    lines = [
        f"error[{refusal.kind}]: {name}",
        f"with advance=True it goes on above: {last} was used, the next entry is {following}",
    ]
    return lines, {"refused_with": refusal.kind, "last": last, "next": following}


ACTS: tuple[Callable[[Stage], Shown], ...] = (
    a_store_is_a_folder,
    callers_share_commits,
    a_killed_writer_loses_nothing,
    a_second_writer_is_refused,
    a_backup_proves_itself,
    a_restore_never_goes_back,
    documents_branch_and_travel,
    graphs_agree_between_stores,
    streams_are_written_once_and_followed,
    an_agent_is_killed_and_resumes,
)


def _write_from_threads(log: fourfold.Database) -> list[int]:
    got: list[int] = []

    def caller(name: int) -> None:
        got.extend(log.transact(_adding(f"{name}/{turn}")) for turn in range(_WRITES_EACH))

    threads = [threading.Thread(target=caller, args=(name,)) for name in range(_CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def _adding(text: str) -> Callable[[fourfold.Transaction], int]:
    return lambda txn: add(txn, text)


def _dense(found: list[int]) -> bool:
    return sorted(found) == list(range(min(found), max(found) + 1))


def _flip_a_bit(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
