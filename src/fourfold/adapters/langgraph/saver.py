"""LangGraph checkpointer that stores only what changed.

    saver = FourfoldSaver(store.sessions)
    graph = builder.compile(checkpointer=saver)

LangGraph passes its whole state at every step. Here each step is an event with what is new: of a
list of messages the appended ones, of a dict or a text what changed in it.
Threads are sessions, so all features of sessions apply: views of the past, verification, bundles,
garbage collection, the pipeline.

The whole checkpointer interface is implemented, for threads and coroutines, including the optional
`delete_for_runs`, `copy_thread`, `prune` and the history of delta channels.
"""

from __future__ import annotations

import asyncio
import copy
import operator
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import islice
from typing import Any, Final, Literal, TypeVar
from weakref import WeakValueDictionary

from fourfold import limits
from fourfold.cache import LruCache
from fourfold.errors import (
    AlreadyExists,
    HeadMoved,
    InvalidInput,
    LeaseLost,
    MissingDependency,
    NotFound,
    Refused,
)
from fourfold.models.sessions import Claim, Sessions

try:
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        PendingWrite,
        get_checkpoint_metadata,
    )
except ImportError as error:
    raise MissingDependency(
        "the checkpointer requires langgraph-checkpoint, which is not installed",
        hint="pip install 'fourfold[langgraph]'",
    ) from error

from fourfold.adapters.langgraph.records import CheckpointRecord
from fourfold.adapters.langgraph.thread_log import ThreadLog
from fourfold.adapters.langgraph.values import Serde
from fourfold.adapters.session_ids import (
    AnySessions,
    Generations,
    check_name,
    check_sessions,
    encode_name,
)

_T = TypeVar("_T")
LIBRARY = "langgraph"
TIP: Final = "__fourfold_tip"
"""Key in a config: the newest checkpoint when it was read. LangGraph keeps names with two
underscores out of metadata.
"""
_OF_RUN: Final = operator.methodcaller("startswith", "__pregel_")
"""Tell the names that LangGraph adds to the config of a run."""
ADAPTER_THREADS_MAX: Final = 256
"""Threads of LangGraph whose newest checkpoints are cached in memory."""
Names = list[str]
Config = Any
"""A RunnableConfig; only its `configurable` is used."""


class FourfoldSaver(BaseCheckpointSaver[int]):
    """Checkpointer that uses the sessions of a store. Threads and coroutines may share it.

    Args:
        sessions: `store.sessions` of a folder, or of a server (`fourfold.connect`).
        serde: A serializer of LangGraph, by default its own.
        stale_writes: `refuse` raises HeadMoved for a checkpoint of a run whose thread has got
            another newest checkpoint since that run loaded its own; `accept` stores it.
    """

    def __init__(
        self,
        sessions: AnySessions,
        *,
        serde: Any = None,
        stale_writes: Literal["refuse", "accept"] = "refuse",
    ) -> None:
        super().__init__(serde=serde)
        if stale_writes not in {"refuse", "accept"}:
            raise InvalidInput(f"stale_writes must be refuse or accept, got {stale_writes!r:.100}")
        self.sessions = check_sessions(sessions, "FourfoldSaver")
        self.stale_writes = stale_writes
        self._names = Generations(sessions, LIBRARY)
        self._claim: Claim | None = None
        self._reset_caches()

    def _reset_caches(self) -> None:
        self._logs: LruCache[tuple[str, str], ThreadLog] = LruCache(ADAPTER_THREADS_MAX)
        # A lock exists as long as a thread holds it or waits for it.
        self._locks: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._guard = threading.Lock()

    def with_allowlist(self, extra_allowlist: Any) -> FourfoldSaver:
        """Return a checkpointer whose serializer also allows other types."""
        clone = super().with_allowlist(extra_allowlist)
        assert isinstance(clone, FourfoldSaver)
        if clone is not self:
            # Values read under other rules must not be returned under these.
            clone._reset_caches()  # noqa: SLF001
        return clone

    # One checkpoint

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        """Return a checkpoint, by default the newest one of the thread, or None.

        Its config also has the newest checkpoint at this time, for `put`: LangGraph passes the
        config of the checkpoint that a run loaded to every `put` of that run.
        """
        thread, ns, checkpoint_id = _parse_config(config)
        with self._locked(thread):
            log = self._log(thread, ns)
            newest = None if log is None else log.newest()
            if log is None or newest is None:
                if checkpoint_id is None:
                    self._note_empty(config, thread, ns)
                return None
            record = newest if checkpoint_id is None else log.find(checkpoint_id)
            if record is None:
                return None
            loaded = self._tuple(log, record, thread, ns, knows=True)
            loaded.config["configurable"][TIP] = _format_tip(log, newest.id)
            return loaded

    def put(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Config:
        """Store a checkpoint and return the config that names it.

        Raises:
            HeadMoved: The newest checkpoint of the thread is neither the parent nor the one that
                was the newest when the run loaded its checkpoint: another run was faster.
            LeaseLost: This checkpointer has claimed the thread, and another one has claimed it
                since.
        """
        thread, ns, parent = _parse_config(config)
        merged_metadata = get_checkpoint_metadata(config, metadata)
        with self._writing(thread), self._owned(thread):

            def work(log: ThreadLog) -> Config:
                tip = self._parse_tip(config, thread, ns, log.sid)
                log.put(
                    *(checkpoint, merged_metadata, parent, new_versions or {}),
                    tip=tip,
                    epoch=self._claim,
                )
                stored = _config(thread, ns, checkpoint["id"])
                stored["configurable"][TIP] = _format_tip(log, checkpoint["id"])
                return stored

            return self._write(config, thread, ns, work)

    def put_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the pending writes of a task.

        Raises:
            HeadMoved: The thread was deleted or pruned after the run loaded its checkpoint.
            LeaseLost: This checkpointer has claimed the thread, and another one has claimed it
                since.
        """
        thread, ns, checkpoint_id = _parse_config(config)
        if checkpoint_id is None:
            raise InvalidInput("config: must have a checkpoint_id to store writes")
        if not writes:
            return
        indexed_writes = [
            (channel, WRITES_IDX_MAP.get(channel, index), value)
            for index, (channel, value) in enumerate(writes)
        ]
        replace = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        with self._writing(thread), self._owned(thread):

            def work(log: ThreadLog) -> None:
                self._parse_tip(config, thread, ns, log.sid)
                task, epoch = (task_id, task_path), self._claim
                log.put_writes(checkpoint_id, indexed_writes, task, replace=replace, epoch=epoch)

            self._write(config, thread, ns, work)

    # Ownership

    def claim_write_ownership(
        self, thread_id: str, *, holder: str | None = None, ttl_s: float = limits.SESSION_LEASE_S
    ) -> FourfoldSaver:
        """Claim a thread, and return the checkpointer that may write it until the next claim.

            owner = saver.claim_write_ownership("1")
            graph = builder.compile(checkpointer=owner)

        A claim supersedes an earlier one at once, whether its holder still runs or not. From then
        on every checkpoint and every write of the earlier owner is refused in its transaction, in
        all namespaces of the thread. Checkpointers without a claim are not restricted.

        Args:
            thread_id: The thread; it need not exist yet. The owner writes no other one.
            holder: A name of the worker, for people; by default its machine and process.
            ttl_s: Seconds for which lists show the lease as in force. Ownership does not expire.
        """
        thread = check_name(thread_id, "thread_id")
        name = f"{socket.gethostname()}/{os.getpid()}" if holder is None else holder
        with self._writing(thread):
            sid = self._names.create_name(thread)
            claim = self.sessions.claim(sid, name, ttl_s, steal=True)
        owner = copy.copy(self)
        owner._claim = claim  # noqa: SLF001 - of the same class
        return owner

    def check_write_ownership(self) -> None:
        """Raise LeaseLost if another checkpointer has claimed the thread of this one since."""
        claim = self._claim
        if claim is None:
            raise InvalidInput(
                "this checkpointer has claimed no thread",
                hint="Use the one that claim_write_ownership(thread_id) returns.",
            )
        current = self.sessions.find_lease(claim.session)
        if current is None or current.epoch != claim.epoch:
            raise LeaseLost(
                f"session {claim.session!r}: no lease of epoch {claim.epoch}",
                details={
                    "session": claim.session,
                    "epoch": claim.epoch,
                    "current": None if current is None else current.epoch,
                },
            )

    def release_write_ownership(self) -> None:
        """Give the thread of this checkpointer back: it writes nothing from then on."""
        if self._claim is None:
            self.check_write_ownership()
        else:
            self.sessions.release(self._claim.session, self._claim.epoch)

    # Many

    def list(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first, of a thread or of all threads."""
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInput(f"limit: must be an int of 0 or more, got {limit!r}")
        end = None if before is None else _configurable(before).get("checkpoint_id")
        matches = self._iter_matching(config, filter or {}, end)
        for log, record, thread, ns in islice(matches, limit):
            with self._locked(thread):
                checkpoint = self._tuple(log, record, thread, ns)
            yield checkpoint

    def get_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to delta channels since their last stored values."""
        thread, ns, checkpoint_id = _parse_config(config)
        collected: dict[str, list[PendingWrite]] = {name: [] for name in channels}
        seeds: dict[str, Any] = {}
        with self._locked(thread):
            log = self._log(thread, ns)
            target = None
            if log is not None:
                target = log.newest() if checkpoint_id is None else log.find(checkpoint_id)
            record = _parent(log, target)
            while log is not None and record is not None and len(seeds) < len(collected):
                for _, task, _, channel, value in reversed(log.writes(record.id)):
                    if channel in collected and channel not in seeds:
                        collected[channel].append((task, channel, value))
                places = {n: event_id for n, event_id in record.places.items() if n in collected}
                if new_places := {n: event_id for n, event_id in places.items() if n not in seeds}:
                    seeds.update(log.values(new_places))
                record = _parent(log, record)
        history: dict[str, DeltaChannelHistory] = {}
        for name, writes in collected.items():
            history[name] = {"writes": writes[::-1]}
            if name in seeds:
                history[name]["seed"] = seeds[name]
        return history

    # Whole threads

    def delete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread; the thread can start again at once.

        Garbage collection removes their events once they are old enough.
        """
        thread = check_name(thread_id, "thread_id")
        with self._writing_whole(thread):
            if next(self._names.iter_sessions(f"{self._names.name_prefix(thread)}/"), None) is None:
                return
            number = self._names.next_free_number(thread)
            self._names.set_current(thread, number)
            self._names.delete_before(thread, number)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with its history to one that does not exist yet."""
        source = check_name(source_thread_id, "source_thread_id")
        target = check_name(target_thread_id, "target_thread_id")
        with self._writing_whole(source, target):
            if self._namespaces(target):
                raise AlreadyExists(
                    f"thread {target!r} already exists",
                    hint="Copy to a new thread, or delete that one first.",
                )
            spaces = self._namespaces(source)
            if not spaces:
                return
            number = self._names.next_free_number(target)
            for ns, log in spaces.items():
                sid = self._sid(target, number, ns)
                self._names.begin(sid, _session_options(target, ns))
                after = self.sessions.current_view(sid).counters.event
                # The events keep their ids, so references between them stay valid.
                for event in self.sessions.events_since(log.sid, after):
                    copied = {"type": event.type, **event.data}
                    self.sessions.append_event(sid, copied, key=event.key)
            self._names.set_current(target, number)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace of threads, or delete the threads.

        Checkpoints that the delta channels of a retained checkpoint depend on are retained too.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise InvalidInput(f"strategy: must be keep_latest or delete, got {strategy!r:.100}")
        for thread in [check_name(thread_id, "thread_id") for thread_id in thread_ids]:
            if strategy == "delete":
                self.delete_thread(thread)
            else:
                self._rewrite(thread, _latest_ids)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, in all threads."""
        deleted_runs = {str(run_id) for run_id in run_ids}

        def remaining(log: ThreadLog) -> set[str]:
            return {
                record.id
                for record in log.records()
                if log.read_document(record.metadata).get("run_id") not in deleted_runs
            }

        for thread in {
            thread: None for run in deleted_runs for thread in self._threads_of_run(run)
        }:
            self._rewrite(thread, remaining)

    # For coroutines

    async def aclaim_write_ownership(
        self, thread_id: str, *, holder: str | None = None, ttl_s: float = limits.SESSION_LEASE_S
    ) -> FourfoldSaver:
        """Claim a thread, and return the checkpointer that may write it until the next claim."""
        return await asyncio.to_thread(
            self.claim_write_ownership, thread_id, holder=holder, ttl_s=ttl_s
        )

    async def acheck_write_ownership(self) -> None:
        """Raise LeaseLost if another checkpointer has claimed the thread of this one since."""
        await asyncio.to_thread(self.check_write_ownership)

    async def arelease_write_ownership(self) -> None:
        """Give the thread of this checkpointer back: it writes nothing from then on."""
        await asyncio.to_thread(self.release_write_ownership)

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        """Return a checkpoint, by default the newest one of the thread, or None."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def aput(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Config:
        """Store a checkpoint and return the config that names it."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the pending writes of a task."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, newest first, of a thread or of all threads."""
        checkpoints = self.list(config, filter=filter, before=before, limit=limit)
        while (checkpoint := await asyncio.to_thread(next, checkpoints, None)) is not None:
            yield checkpoint

    async def aget_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to delta channels since their last stored values."""
        return await asyncio.to_thread(
            self.get_delta_channel_history, config=config, channels=channels
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread; the thread can start again at once."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with its history to one that does not exist yet."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace of threads, or delete the threads."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, in all threads."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    # Inside

    def _tuple(
        self,
        log: ThreadLog,
        record: CheckpointRecord,
        thread: str,
        ns: str,
        *,
        knows: bool = False,
    ) -> CheckpointTuple:
        rest: Any = log.read_document(record.rest)
        checkpoint: Any = {
            **rest,
            "id": record.id,
            "channel_versions": dict(record.versions),
            "versions_seen": {node: dict(seen) for node, seen in record.seen.items()},
            "channel_values": log.values(record.places),
        }
        metadata: Any = log.read_document(record.metadata)
        parent = None if record.parent is None else _config(thread, ns, record.parent)
        writes = [
            (task, channel, value)
            for _, task, _, channel, value in log.writes(record.id, knows=knows)
        ]
        return CheckpointTuple(_config(thread, ns, record.id), checkpoint, metadata, parent, writes)

    def _iter_matching(
        self, config: Config | None, metadata_filter: dict[str, Any], before: str | None
    ) -> Iterator[tuple[ThreadLog, CheckpointRecord, str, str]]:
        configurable = {} if config is None else _configurable(config)
        only, ns = configurable.get("checkpoint_id"), configurable.get("checkpoint_ns")
        run = metadata_filter.get("run_id")
        threads: Iterable[str]
        if config is not None:
            threads = [_parse_config(config)[0]]
        else:
            threads = self._threads_of_run(run) if isinstance(run, str) else self._threads()
        for thread in threads:
            with self._locked(thread):
                spaces = self._namespaces(thread)
            for name, log in spaces.items():
                if ns is not None and name != ns:
                    continue
                for record in log.records(before):
                    if only is not None and record.id != only:
                        continue
                    metadata = log.read_document(record.metadata) if metadata_filter else {}
                    if all(metadata.get(key) == value for key, value in metadata_filter.items()):
                        yield log, record, thread, name

    def _rewrite(self, thread: str, select: Callable[[ThreadLog], set[str]]) -> None:
        """Copy selected checkpoints to a new generation of the thread, and delete the old one."""
        with self._writing_whole(thread):
            spaces = self._namespaces(thread)
            choices = {ns: select(log) for ns, log in spaces.items()}
            if all(len(choices[ns]) == sum(1 for _ in log.records()) for ns, log in spaces.items()):
                return
            number = self._names.next_free_number(thread)
            for ns, log in spaces.items():
                if not choices[ns]:
                    continue
                sid = self._sid(thread, number, ns)
                self._names.begin(sid, _session_options(thread, ns))
                _copy_checkpoints(
                    log, ThreadLog(self.sessions, sid, Serde(self.serde)), choices[ns]
                )
            self._names.set_current(thread, number)
            self._names.delete_before(thread, number)

    def _threads(self) -> Iterator[str]:
        """Yield the names of all threads, in the order of their creation, as they are read."""
        seen: set[str] = set()
        for info in self._names.iter_sessions(f"{LIBRARY}/"):
            thread = self._find_thread(info.id)
            if thread is not None and thread not in seen:
                seen.add(thread)
                yield thread

    def _threads_of_run(self, run_id: str) -> Names:
        """List the threads that may have a checkpoint of a run, in the order of their creation."""
        if not isinstance(self.sessions, Sessions):
            # A server has no route for its index of runs.
            return list(self._threads())
        threads: dict[str, int] = {}
        with self.sessions.log.read() as reading:
            ids = [row.id for row in reading.sessions_of_run(f"{LIBRARY}/", run_id)]
        for sid in ids:
            thread = self._find_thread(sid)
            if thread is not None and thread not in threads:
                with self.sessions.log.read() as reading:
                    current_prefix = self._names.current_prefix(thread)
                    rows = reading.sessions(0, 1, deleted=False, prefix=current_prefix)
                threads[thread] = rows[0].key if rows else 0
        return sorted(threads, key=threads.__getitem__)

    def _find_thread(self, sid: str) -> str | None:
        """Return the thread of a session, or None if it is not a thread's, or is deleted."""
        try:
            session = self.sessions.current_view(sid).session or {}
        except NotFound:
            return None
        return session["thread_id"] if session.get("kind") == LIBRARY else None

    def _namespaces(self, thread: str) -> dict[str, ThreadLog]:
        """Return the namespaces of a thread that have a session."""
        current_prefix = self._names.current_prefix(thread)
        logs = {}
        for info in self._names.iter_sessions(current_prefix):
            if info.id == current_prefix or info.id.startswith(f"{current_prefix}/"):
                session = self.sessions.current_view(info.id).session or {}
                ns = session.get("checkpoint_ns", "")
                log = self._log(thread, ns)
                if log is not None:
                    logs[ns] = log
        return logs

    def _log(self, thread: str, ns: str) -> ThreadLog | None:
        """Return the log of a namespace, or None."""
        with self._guard:
            cached = self._logs.get((thread, ns))
        if cached is not None and cached.exists():
            return cached
        sid = self._sid(thread, self._names.current_number(thread), ns)
        log = ThreadLog(self.sessions, sid, Serde(self.serde))
        if not log.exists():
            return None
        return self._cache_log(thread, ns, log)

    def _write(self, config: Config, thread: str, ns: str, work: Callable[[ThreadLog], _T]) -> _T:
        """Write the log of a run. That of an earlier write is taken without asking for it."""
        with self._guard:
            cached = self._logs.get((thread, ns))
        if cached is not None and cached.is_read:
            with suppress(NotFound):
                return work(cached)
        return work(self._log_of_run(config, thread, ns))

    def _log_of_run(self, config: Config, thread: str, ns: str) -> ThreadLog:
        """Return the log that a run writes; create it if there is none."""
        log = self._log(thread, ns)
        if log is None:
            sid = self._sid(thread, self._names.current_number(thread), ns)
            self._parse_tip(config, thread, ns, sid)
            if self._claim is not None:
                self.check_write_ownership()
            suffix = f"/{encode_name(ns)}" if ns else ""
            sid = self._names.begin_current(thread, suffix, _session_options(thread, ns))
            log = self._cache_log(thread, ns, ThreadLog(self.sessions, sid, Serde(self.serde)))
        return log

    def _note_empty(self, config: Config, thread: str, ns: str) -> None:
        """Let a run that found no checkpoint carry that to its first `put`.

        There is no config to return, so it is written into that of the run: LangGraph's own copy.
        """
        configurable = config["configurable"]
        if isinstance(configurable, dict) and any(map(_OF_RUN, configurable)):
            sid = self._sid(thread, self._names.current_number(thread), ns)
            configurable[TIP] = f"{sid} "

    def _parse_tip(self, config: Config, thread: str, ns: str, sid: str) -> str | None:
        """Return the newest checkpoint that a run knows, empty if it found none.

        It is None if this is not to be checked.

        Raises:
            HeadMoved: The run knows an earlier generation of the thread.
        """
        tip = _configurable(config).get(TIP)
        if self.stale_writes == "accept" or not isinstance(tip, str):
            return None
        known, _, checkpoint_id = tip.partition(" ")
        if known == sid:
            return checkpoint_id
        prefix = f"{self._names.name_prefix(thread)}/"
        number, _, namespace = known.removeprefix(prefix).partition("/")
        if not known.startswith(prefix) or namespace != (encode_name(ns) if ns else ""):
            return None  # That of the graph around a subgraph.
        raise HeadMoved(
            f"thread {thread!r}: was deleted or pruned after this run loaded generation {number}",
            hint="Run the graph again from the newest checkpoint of the thread.",
            details={"session": sid, "expected": known, "current": sid},
        )

    def _sid(self, thread: str, number: int, ns: str) -> str:
        sid = f"{self._names.name_prefix(thread)}/{number}"
        return f"{sid}/{encode_name(ns)}" if ns else sid

    def _writing(self, *threads: str) -> AbstractContextManager[None]:
        """Hold the locks of these threads, to change them.

        Refused inside a transaction: reads would not see what it wrote, and a rollback would leave
        it in the caches.
        """
        if isinstance(self.sessions, Sessions) and self.sessions.log.in_transaction():
            raise Refused(
                "checkpoints cannot be written inside a transaction of the sessions",
                hint="Leave the transaction first.",
            )
        return self._locked(*threads)

    def _writing_whole(self, *threads: str) -> AbstractContextManager[None]:
        """Hold the locks of these threads, to delete or replace them."""
        if self._claim is not None:
            raise Refused(
                "a checkpointer with a claim only writes checkpoints",
                hint="Use the checkpointer without a claim to delete, copy or prune threads.",
            )
        return self._writing(*threads)

    @contextmanager
    def _owned(self, thread: str) -> Iterator[None]:
        """Write a thread: raise LeaseLost for a conflict if its claim is lost."""
        claim = self._claim
        if claim is not None and claim.session != self._names.name_prefix(thread):
            raise Refused(
                f"thread {thread!r}: this checkpointer has claimed {claim.session!r}",
                hint="Claim this thread too, or use the checkpointer without a claim.",
            )
        try:
            yield
        except HeadMoved:
            if claim is not None:
                self.check_write_ownership()
            raise

    @contextmanager
    def _locked(self, *threads: str) -> Iterator[None]:
        """Hold the locks of these threads."""
        with ExitStack() as stack:
            for thread in sorted(set(threads)):
                with self._guard:
                    lock = self._locks.get(thread)
                    if lock is None:
                        lock = self._locks[thread] = threading.RLock()
                stack.enter_context(lock)
            yield

    def _cache_log(self, thread: str, ns: str, log: ThreadLog) -> ThreadLog:
        with self._guard:
            self._logs.put((thread, ns), log)
        return log


def _copy_checkpoints(log: ThreadLog, target: ThreadLog, ids: set[str]) -> None:
    """Copy checkpoints of one log, with their writes, into an empty one."""
    for record in sorted(log.records(), key=lambda record: record.event):
        if record.id not in ids:
            continue
        checkpoint = {
            **log.read_document(record.rest),
            "id": record.id,
            "channel_versions": record.versions,
            "versions_seen": record.seen,
            "channel_values": log.values(record.places),
        }
        target.put(checkpoint, log.read_document(record.metadata), record.parent, None)
        log.copy_writes(record.id, target)


def _latest_ids(log: ThreadLog) -> set[str]:
    """Return the newest checkpoint, and those that its delta channels depend on."""
    record = log.newest()
    if record is None:
        return set()
    ids = {record.id}
    missing = set(log.read_document(record.metadata).get("counters_since_delta_snapshot") or {})
    missing -= record.places.keys()
    while missing and (record := _parent(log, record)) is not None:
        ids.add(record.id)
        missing -= record.places.keys()
    return ids


def _parent(log: ThreadLog | None, record: CheckpointRecord | None) -> CheckpointRecord | None:
    if log is None or record is None or record.parent is None:
        return None
    return log.find(record.parent)


def _session_options(thread: str, ns: str) -> dict[str, Any]:
    return {"kind": LIBRARY, "thread_id": thread, "checkpoint_ns": ns}


def _format_tip(log: ThreadLog, checkpoint_id: str) -> str:
    return f"{log.sid} {checkpoint_id}"


def _config(thread: str, ns: str, checkpoint_id: str) -> Config:
    configurable = {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": configurable}


def _configurable(config: Config) -> Mapping[str, Any]:
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(configurable, Mapping):
        raise InvalidInput(
            'config: must have "configurable"',
            hint='Pass {"configurable": {"thread_id": "1"}}.',
        )
    return configurable


def _parse_config(config: Config) -> tuple[str, str, str | None]:
    """Return the thread, namespace and checkpoint of a config."""
    configurable = _configurable(config)
    if "thread_id" not in configurable:
        raise InvalidInput(
            "config: must have a thread_id", hint='Pass {"configurable": {"thread_id": "1"}}.'
        )
    thread = check_name(configurable["thread_id"], "thread_id")
    ns, checkpoint_id = configurable.get("checkpoint_ns", ""), configurable.get("checkpoint_id")
    if not isinstance(ns, str):
        raise InvalidInput(f"checkpoint_ns: must be a string, got {ns!r:.100}")
    if checkpoint_id is not None and (not isinstance(checkpoint_id, str) or not checkpoint_id):
        raise InvalidInput(f"checkpoint_id: must be a non-empty string, got {checkpoint_id!r:.100}")
    return thread, ns, checkpoint_id
