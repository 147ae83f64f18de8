"""Commits as a part of traces: the transactions that wrote what a request asked for.

    with commit_traces.collecting(commits):
        space.set("note", {"n": 1})

While no tracer is armed, a transaction costs one truth test of a set more, and a request none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    from fourfold.kernel.commit_request import CommitRequest
    from fourfold.kernel.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")
COMMITS_MAX: Final = 16
"""Commits that one request remembers; an import, for example, may have thousands."""


class CommitTrace(NamedTuple):
    """A committed transaction."""

    ended_ns: int
    """Time at which COMMIT returned, since 1970."""
    seconds: float
    """Time from BEGIN to the end of COMMIT."""
    commit_s: float
    """Time of COMMIT, with its sync."""
    group_size: int
    """Writes that share the transaction."""


Commits = list[CommitTrace]
armed: set[object] = set()
"""Tracers that run. Commits are remembered only while there is one."""
_commits: ContextVar[Commits | None] = ContextVar("commits", default=None)


@contextmanager
def collecting(commits: Commits) -> Iterator[None]:
    """Add the commits of writes that the block requests, at the latest when they return."""
    token = _commits.set(commits)
    try:
        yield
    finally:
        _commits.reset(token)


def in_context(call: Callable[P, T]) -> Callable[P, T]:
    """Return a function that collects for the present caller, in whatever context it is called."""
    return partial(copy_context().run, call) if armed else call


def attach(request: CommitRequest) -> None:
    """Note which caller a queued request is for."""
    commits = _commits.get()
    if commits is not None:
        request.commits = (*request.commits, commits)


def add(writer: Writer, group: Sequence[CommitRequest], group_size: int) -> None:
    """Add the latest commit of a writer to the callers of its group."""
    trace = None
    for request in group:
        if request.commits and request.error is None:
            trace = trace or _latest(writer, group_size)
            for commits in request.commits:
                _add(commits, trace)


def add_own(writer: Writer) -> None:
    """Add the latest commit of a writer, which had only the write of this caller."""
    commits = _commits.get()
    if commits is not None:
        _add(commits, _latest(writer, 1))


def _add(commits: Commits, trace: CommitTrace) -> None:
    if len(commits) < COMMITS_MAX:
        commits.append(trace)


def _latest(writer: Writer, group_size: int) -> CommitTrace:
    return CommitTrace(time.time_ns(), *writer.latest_s, group_size)
