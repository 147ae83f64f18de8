"""Rounds of faults: clients write to one store while its server is killed, paused and misled.

Each step of a round may bring one more fault, and ends with SIGKILL and a new start. Rounds with an
even seed publish to S3 through a proxy with faults, the others to a folder that fails. At the end
of the round the server runs without faults; the logs are read, verified, published, restored
elsewhere, and checked against the histories of the clients.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench.reliability.clients import Clients, History
from bench.reliability.faults import Fault, Faults
from bench.reliability.history import Entry, Violation, check
from bench.reliability.object_server import ENVIRONMENT, OBJECT_FAULTS, ObjectServer
from bench.reliability.server import Connection, Server

_FAULTS = ("pause", "clock", "disk_full", "sync_error")
_FOLDER_FAULTS = ("objects",)
FAULTS = (*_FAULTS, *_FOLDER_FAULTS, *OBJECT_FAULTS)
_CLOCK_STEPS_S = (-3600.0, -5.0, 5.0, 3600.0)
_SETTINGS = {
    "FOURFOLD_ARCHIVE_PUBLISH_S": "1",
    "FOURFOLD_ARCHIVE_SEAL_AGE_S": "0.5",
    "FOURFOLD_OBJECTS_RETRIES_MAX": "0",
}


@dataclass(slots=True)
class RoundResult:
    """Faults of a round, operations by model and outcome, and broken promises."""

    kills: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failed_calls: int = 0
    """Calls of the server to its disk and object store that failed."""
    operations: dict[str, Counter[str]] = field(default_factory=dict)
    reads: int = 0
    violations: dict[str, list[Violation]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Problems that the store found in itself."""
    seconds: float = 0.0


def run_round(folder: Path, library: Path, seed: int, kills: int) -> RoundResult:
    """Run clients against a server that is killed `kills` times; check their histories."""
    started, random, result = time.monotonic(), Random(seed), RoundResult()
    store, objects_folder = folder / "store", folder / "objects"
    faults = Faults(library, store, objects_folder)
    objects = ObjectServer(seed) if seed % 2 == 0 else None
    url = str(objects_folder) if objects is None else objects.url
    server = Server(
        store,
        options=("--objects", url),
        environment={**_SETTINGS, **ENVIRONMENT, **faults.environment},
    )
    clients = Clients(server.port, seed)
    try:
        clients.start()
        try:
            for _ in range(kills):
                _step(server, faults, objects, random, result)
        finally:
            faults.step_clock(0)
            clients.stop()
        result.failed_calls = faults.hits + (0 if objects is None else objects.hits)
        _check(server, clients.histories, result)
        _check_copy(server, url, folder / "copy", clients.histories, result)
        server.stop()
        result.problems += _fourfold("verify", str(store))
    finally:
        server.kill()
        faults.close()
        if objects is not None:
            objects.close()
    result.seconds = round(time.monotonic() - started, 1)
    return result


def _step(
    server: Server,
    faults: Faults,
    objects: ObjectServer | None,
    random: Random,
    result: RoundResult,
) -> None:
    """Let the clients work, bring a fault in two of three steps, and kill the server."""
    time.sleep(random.uniform(0.05, 0.4))
    others = _FOLDER_FAULTS if objects is None else OBJECT_FAULTS
    fault = random.choice((*_FAULTS, *others, "", "", ""))
    if fault:
        result.faults[fault] += 1
    if fault == "pause":
        server.signal(signal.SIGSTOP)
        time.sleep(random.uniform(0.1, 0.8))
        # Half of the time it is killed while it is paused.
        if random.random() < 0.5:
            server.signal(signal.SIGCONT)
            time.sleep(random.uniform(0.05, 0.3))
    elif fault == "clock":
        # It stays off over the next starts, until the next step of the clock.
        faults.step_clock(random.choice(_CLOCK_STEPS_S))
        time.sleep(random.uniform(0.05, 0.3))
    elif objects is not None and fault in OBJECT_FAULTS:
        objects.start(fault)
        time.sleep(random.uniform(0.3, 1.5))
        if random.random() < 0.5:
            objects.stop()
            time.sleep(random.uniform(0.05, 0.3))
    elif fault:
        calls: dict[str, Fault] = {
            "disk_full": "store_full",
            "sync_error": "store_failing",
            "objects": "objects_failing",
        }
        faults.start(calls[fault])
        time.sleep(random.uniform(0.1, 0.5))
        if random.random() < 0.5:
            faults.stop(calls[fault])
            time.sleep(random.uniform(0.05, 0.3))
    server.kill()
    result.kills += 1
    for name in ("store_full", "store_failing", "objects_failing"):
        faults.stop(name)
    if objects is not None:
        objects.stop()
    server.start()


def _check(server: Server, histories: list[History], result: RoundResult) -> None:
    connection = Connection(server.port)
    for history in histories:
        name = history.model.name
        log = history.model.tail(connection, None)
        result.operations[name] = Counter(op.outcome for op in history.operations)
        result.reads += sum(len(reader.polls) for reader in history.readers)
        found = check(history.operations, log, history.readers, times_grow=history.model.times_grow)
        if found:
            result.violations[name] = found
    connection.close()


def _check_copy(
    server: Server,
    objects: str,
    folder: Path,
    histories: list[History],
    result: RoundResult,
) -> None:
    """Publish, restore into another folder, and compare the logs."""
    connection = Connection(server.port)
    job = connection.request("POST", "/v1/jobs", {"kind": "publish"}).json()
    while job["status"] not in {"succeeded", "failed", "cancelled"}:
        time.sleep(0.1)
        job = connection.request("GET", f"/v1/jobs/{job['id']}").json()
    logs = {history.model.name: history.model.tail(connection, None) for history in histories}
    connection.close()
    if job["status"] != "succeeded":
        result.problems.append(f"publish: {job}")
        return
    if failed := _fourfold("bootstrap", str(folder), "--objects", objects):
        result.problems += failed
        return
    copy = Server(folder, environment=ENVIRONMENT)
    try:
        connection = Connection(copy.port)
        for history in histories:
            name = history.model.name
            restored: list[Entry] = history.model.tail(connection, None)
            if restored != logs[name]:
                result.problems.append(
                    f"{name}: restored {len(restored)} of {len(logs[name])} entries"
                )
        connection.close()
    finally:
        copy.kill()


def _fourfold(*arguments: str) -> list[str]:
    """Run a command; return its output if it failed."""
    done = subprocess.run(
        [sys.executable, "-m", "fourfold", *arguments],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    return [] if done.returncode == 0 else [done.stdout + done.stderr]
