"""A crowd of callers that share a list of requests: coroutines of one loop, or threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.graphs.dataset import CALLERS
from bench.loops import starter


def crowd(
    form: str,
    work: list[Any],
    call: Callable[[Any], object],
    call_async: Callable[[Any], Awaitable[object]],
) -> Callable[[], list[float]]:
    """`form` ends with how the callers run; each takes the next request when its last is done."""
    kind = form.rsplit(maxsplit=1)[-1]
    return _threads(work, call) if kind == "threads" else _coroutines(kind, work, call_async)


def _coroutines(
    loop: str, work: list[Any], call: Callable[[Any], Awaitable[object]]
) -> Callable[[], list[float]]:
    def run() -> list[float]:
        taken: list[float] = []
        waiting = iter(work)

        async def caller() -> None:
            for request in waiting:
                before = time.perf_counter()
                await call(request)
                taken.append(time.perf_counter() - before)

        async def all_of_them() -> None:
            await asyncio.gather(*(caller() for _ in range(CALLERS)))

        starter(loop)(all_of_them())
        return taken

    return run


def _threads(work: list[Any], call: Callable[[Any], object]) -> Callable[[], list[float]]:
    def run() -> list[float]:
        taken: list[float] = []
        # `next` of a list's iterator is one step of the interpreter: threads may share it.
        waiting: Iterator[Any] = iter(work)

        def caller() -> None:
            for request in waiting:
                before = time.perf_counter()
                call(request)
                taken.append(time.perf_counter() - before)

        with ThreadPoolExecutor(CALLERS) as pool:
            for done in [pool.submit(caller) for _ in range(CALLERS)]:
                done.result()
        return taken

    return run
