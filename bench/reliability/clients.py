"""Concurrent clients of a server: writers and readers that record every response."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from bench.reliability.history import Entry, Operation, Outcome, Poll, Reader
from bench.reliability.models import MODELS, Model, Refused, Uncertain
from bench.reliability.server import Connection, NoResponse, NotSent

_ABSENT_S = 0.01
"""Pause after a server was not reachable."""
_POLL_S = 0.1


@dataclass(slots=True)
class History:
    """What the clients of one log sent and received."""

    model: Model
    operations: list[Operation] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)


class Clients:
    """Writers and a reader for each model, in threads, until they are stopped.

    Half of the writers send a request again until it has a response; the server may do it once
    only. The others leave it and send the next one.
    """

    def __init__(self, port: int, seed: int, *, writers: int = 2, pause_s: float = 0.01) -> None:
        self.histories = [History(model()) for model in MODELS]
        self._port = port
        self._pause_s = pause_s
        self._ended = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = []
        for history in self.histories:
            reader = Reader()
            history.readers.append(reader)
            self._threads.append(
                threading.Thread(target=self._guard, args=(self._read, history, reader))
            )
            for number in range(writers):
                random = Random(f"{seed}-{history.model.name}-{number}")
                arguments = (self._write, history, f"w{number}", random, number % 2 == 1)
                self._threads.append(threading.Thread(target=self._guard, args=arguments))

    def start(self) -> None:
        """Create the logs and start the threads."""
        connection = Connection(self._port)
        for history in self.histories:
            history.model.create(connection)
        connection.close()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads; raise what one of them raised."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _guard(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again by `stop`
            self._errors.append(error)

    def _write(self, history: History, name: str, random: Random, repeats: bool) -> None:
        connection, number = Connection(self._port), 0
        while not self._ended.is_set():
            values = tuple(f"{name}-{number}-{part}" for part in range(random.choice((1, 1, 1, 3))))
            # Short enough for a paused server to miss it.
            timeout_s = random.choice((0.3, 1.0, 10.0))
            repeat = (name, number) if repeats else None
            invoked, position = time.monotonic_ns(), None
            outcome: Outcome | None = None
            # A request that is never sent counts as one without a response.
            while outcome is None and not self._ended.is_set():
                try:
                    position = history.model.append(connection, values, timeout_s, repeat)
                    outcome = "acknowledged"
                except NotSent:
                    self._ended.wait(_ABSENT_S)
                except Refused:
                    outcome = None if repeats else "refused"
                except (NoResponse, Uncertain):
                    outcome = None if repeats else "unknown"
                if outcome is None:
                    self._ended.wait(self._pause_s)
            history.operations.append(
                Operation(values, invoked, time.monotonic_ns(), outcome or "unknown", position)
            )
            number += 1
            self._ended.wait(random.uniform(0, 2 * self._pause_s))
        connection.close()

    def _read(self, history: History, reader: Reader) -> None:
        connection = Connection(self._port)
        last: Entry | None = None
        while not self._ended.wait(_POLL_S):
            invoked = time.monotonic_ns()
            try:
                entries = history.model.tail(connection, last.position if last else None)
            except (NotSent, NoResponse, Refused, Uncertain):
                continue
            reader.entries += entries
            reader.polls.append(Poll(invoked, len(reader.entries)))
            last = reader.entries[-1] if reader.entries else None
        connection.close()
