"""A checkpointer of LangGraph that stores what changed.

    saver = FourfoldSaver(store.sessions)
    graph = builder.compile(checkpointer=saver)

LangGraph hands over its whole state at every step. Here each step is an event that holds what is
new: of a list of messages only those that were appended, of the other channels only those that have
another version. Threads are sessions, so everything that can be done with those can be done with
them: views of the past, verification, bundles, collection, the pipeline.

All that LangGraph asks of a checkpointer is here, for threads and for coroutines, also what few
checkpointers have: `delete_for_runs`, `copy_thread`, `prune` and the history of delta channels.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

from fourfold import limits
from fourfold.errors import AlreadyExists, InvalidInput, MissingDependency, NotFound
from fourfold.models.sessions import Sessions

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
        "the checkpointer needs the package langgraph-checkpoint",
        hint="pip install 'fourfold[langgraph]'",
    ) from error

from fourfold.adapters.langgraph.records import Record
from fourfold.adapters.langgraph.thread_log import StoredCheckpoint, ThreadLog
from fourfold.adapters.langgraph.values import Serde
from fourfold.adapters.session_ids import Generations, checked, encoded

LIBRARY = "langgraph"
Names = list[str]
Config = Any
"""A RunnableConfig; only its `configurable` counts."""


class FourfoldSaver(BaseCheckpointSaver[int]):
    """Checkpoints in the sessions of a store. It may be shared by threads and coroutines."""

    def __init__(self, sessions: Sessions, *, serde: Any = None) -> None:
        super().__init__(serde=serde)
        if not isinstance(sessions, Sessions):
            raise InvalidInput(
                f"a FourfoldSaver stands on sessions, not on {type(sessions).__name__}",
                hint="As in FourfoldSaver(store.sessions).",
            )
        self.sessions = sessions
        self._names = Generations(sessions, LIBRARY)
        self._forget()

    def _forget(self) -> None:
        self._logs: StoredCheckpoint[ThreadLog] = StoredCheckpoint(limits.ADAPTER_THREADS_MAX)
        # A lock lives as long as somebody holds it or waits for it.
        self._locks: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._guard = threading.Lock()

    def with_allowlist(self, extra_allowlist: Any) -> FourfoldSaver:
        clone = super().with_allowlist(extra_allowlist)
        assert isinstance(clone, FourfoldSaver)
        if clone is not self:
            # What was read under the other rules must not be handed out under these.
            clone._forget()  # noqa: SLF001 - its own class
        return clone

    # One checkpoint

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        thread, ns, checkpoint_id = _parts(config)
        with self._held(thread):
            log = self._log(thread, ns)
            if log is None:
                return None
            record = log.newest() if checkpoint_id is None else log.find(checkpoint_id)
            return None if record is None else self._tuple(log, record, thread, ns)

    def put(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Config:
        thread, ns, parent = _parts(config)
        kept = get_checkpoint_metadata(config, metadata)
        with self._held(thread):
            log = self._begun(thread, ns)
            log.put(checkpoint, kept, parent, new_versions or {})
        return _config(thread, ns, checkpoint["id"])

    def put_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        thread, ns, checkpoint_id = _parts(config)
        if checkpoint_id is None:
            raise InvalidInput("writes belong to a checkpoint, and the config names none")
        if not writes:
            return
        listed = [
            (channel, WRITES_IDX_MAP.get(channel, index), value)
            for index, (channel, value) in enumerate(writes)
        ]
        replace = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        with self._held(thread):
            log = self._begun(thread, ns)
            log.put_writes(checkpoint_id, listed, (task_id, task_path), replace=replace)

    # Many

    def list(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph calls it so
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInput(f"limit is {limit!r}, not a number of checkpoints")
        end = None if before is None else _configurable(before).get("checkpoint_id")
        found = self._matching(config, filter or {}, end)
        for log, record, thread, ns in islice(found, limit):
            with self._held(thread):
                made = self._tuple(log, record, thread, ns)
            yield made

    def get_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        thread, ns, checkpoint_id = _parts(config)
        collected: dict[str, list[PendingWrite]] = {name: [] for name in channels}
        seeds: dict[str, Any] = {}
        with self._held(thread):
            log = self._log(thread, ns)
            target = None
            if log is not None:
                target = log.newest() if checkpoint_id is None else log.find(checkpoint_id)
            record = _parent(log, target)
            while log is not None and record is not None and len(seeds) < len(collected):
                for _, task, _, channel, value in reversed(log.writes(record.id)):
                    if channel in collected and channel not in seeds:
                        collected[channel].append((task, channel, value))
                held = {n: at for n, at in record.places.items() if n in collected}
                if fresh := {n: at for n, at in held.items() if n not in seeds}:
                    seeds.update(log.values(fresh))
                record = _parent(log, record)
        history: dict[str, DeltaChannelHistory] = {}
        for name, writes in collected.items():
            history[name] = {"writes": writes[::-1]}
            if name in seeds:
                history[name]["seed"] = seeds[name]
        return history

    # Whole threads

    def delete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread. Their events go with the next collection that they
        are old enough for; the thread can begin anew at once.
        """
        thread = checked(thread_id, "thread_id")
        with self._held(thread):
            if next(self._names.listed(f"{self._names.family(thread)}/"), None) is None:
                return
            number = self._names.free(thread)
            self._names.move_on(thread, number)
            self._names.delete_before(thread, number)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, with all that came before, to one that does not exist yet."""
        source = checked(source_thread_id, "source_thread_id")
        target = checked(target_thread_id, "target_thread_id")
        with self._held(source, target):
            if self._namespaces(target):
                raise AlreadyExists(
                    f"there is a thread {target!r} already",
                    hint="Copy to a new thread, or delete that one first.",
                )
            spaces = self._namespaces(source)
            if not spaces:
                return
            number = self._names.free(target)
            for ns, log in spaces.items():
                sid = self._sid(target, number, ns)
                self._names.begin(sid, _described(target, ns))
                after = self.sessions.current_view(sid).counters.event
                # The same events under the same ids: what they say of each other stays true.
                for event in self.sessions.events_since(log.sid, after):
                    copied = {"type": event.type, **event.data}
                    self.sessions.append_event(sid, copied, key=event.key)
            self._names.move_on(target, number)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace of the threads, or delete them whole. What
        the delta channels of a kept checkpoint are made of is kept too.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise InvalidInput(
                f"{strategy!r:.100} is not a way to prune", hint="keep_latest or delete."
            )
        for thread in [checked(each, "thread_id") for each in thread_ids]:
            if strategy == "delete":
                self.delete_thread(thread)
            else:
                self._rewrite(thread, _latest)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs made, in all threads."""
        gone = {str(each) for each in run_ids}

        def others(log: ThreadLog) -> set[str]:
            return {
                record.id
                for record in log.records()
                if log.told(record.metadata).get("run_id") not in gone
            }

        for thread in {thread: None for run in gone for thread in self._threads_of_run(run)}:
            self._rewrite(thread, others)

    # For coroutines

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def aput(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Config:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (each := await asyncio.to_thread(next, found, None)) is not None:
            yield each

    async def aget_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await asyncio.to_thread(
            self.get_delta_channel_history, config=config, channels=channels
        )

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    # Inside

    def _tuple(self, log: ThreadLog, record: Record, thread: str, ns: str) -> CheckpointTuple:
        rest: Any = log.told(record.rest)
        checkpoint: Any = {
            **rest,
            "id": record.id,
            "channel_versions": dict(record.versions),
            "versions_seen": {node: dict(seen) for node, seen in record.seen.items()},
            "channel_values": log.values(record.places),
        }
        metadata: Any = log.told(record.metadata)
        parent = None if record.parent is None else _config(thread, ns, record.parent)
        writes = [(task, channel, value) for _, task, _, channel, value in log.writes(record.id)]
        return CheckpointTuple(_config(thread, ns, record.id), checkpoint, metadata, parent, writes)

    def _matching(
        self, config: Config | None, wanted: dict[str, Any], before: str | None
    ) -> Iterator[tuple[ThreadLog, Record, str, str]]:
        named = {} if config is None else _configurable(config)
        only, ns = named.get("checkpoint_id"), named.get("checkpoint_ns")
        run = wanted.get("run_id")
        threads: Iterable[str]
        if config is not None:
            threads = [_parts(config)[0]]
        else:
            threads = self._threads_of_run(run) if isinstance(run, str) else self._threads()
        for thread in threads:
            with self._held(thread):
                spaces = self._namespaces(thread)
            for name, log in spaces.items():
                if ns is not None and name != ns:
                    continue
                for record in log.records(before):
                    if only is not None and record.id != only:
                        continue
                    metadata = log.told(record.metadata) if wanted else {}
                    if all(metadata.get(key) == value for key, value in wanted.items()):
                        yield log, record, thread, name

    def _rewrite(self, thread: str, kept: Callable[[ThreadLog], set[str]]) -> None:
        """Carry over what is kept to a new generation of the thread, and delete the old one."""
        with self._held(thread):
            spaces = self._namespaces(thread)
            choices = {ns: kept(log) for ns, log in spaces.items()}
            if all(len(choices[ns]) == sum(1 for _ in log.records()) for ns, log in spaces.items()):
                return
            number = self._names.free(thread)
            for ns, log in spaces.items():
                if not choices[ns]:
                    continue
                sid = self._sid(thread, number, ns)
                self._names.begin(sid, _described(thread, ns))
                _carry(log, ThreadLog(self.sessions, sid, Serde(self.serde)), choices[ns])
            self._names.move_on(thread, number)
            self._names.delete_before(thread, number)

    def _threads(self) -> Iterator[str]:
        """Yield the names of all threads, in the order of their creation, as they are read."""
        seen: set[str] = set()
        for info in self._names.listed(f"{LIBRARY}/"):
            thread = self._thread_of(info.id)
            if thread is not None and thread not in seen:
                seen.add(thread)
                yield thread

    def _threads_of_run(self, run_id: str) -> Names:
        """List the threads that may have a checkpoint of a run, in the order of their creation."""
        found: dict[str, int] = {}
        with self.sessions.log.read() as reading:
            ids = [row.id for row in reading.sessions_of_run(f"{LIBRARY}/", run_id)]
        for sid in ids:
            thread = self._thread_of(sid)
            if thread is not None and thread not in found:
                with self.sessions.log.read() as reading:
                    current = self._names.current(thread)
                    rows = reading.sessions(0, 1, deleted=False, prefix=current)
                found[thread] = rows[0].key if rows else 0
        return sorted(found, key=found.__getitem__)

    def _thread_of(self, sid: str) -> str | None:
        """Return the thread that a session is of; None if it is not of one, or is gone."""
        try:
            session = self.sessions.current_view(sid).session or {}
        except NotFound:
            return None
        return session["thread_id"] if session.get("kind") == LIBRARY else None

    def _namespaces(self, thread: str) -> dict[str, ThreadLog]:
        """The namespaces of a thread that have a session."""
        current = self._names.current(thread)
        found = {}
        for info in self._names.listed(current):
            if info.id == current or info.id.startswith(f"{current}/"):
                session = self.sessions.current_view(info.id).session or {}
                ns = session.get("checkpoint_ns", "")
                log = self._log(thread, ns)
                if log is not None:
                    found[ns] = log
        return found

    def _log(self, thread: str, ns: str) -> ThreadLog | None:
        """The log of a namespace, if there is one."""
        known = self._logs.get((thread, ns))
        if known is not None and known.exists():
            return known
        sid = self._sid(thread, self._names.number(thread), ns)
        log = ThreadLog(self.sessions, sid, Serde(self.serde))
        if not log.exists():
            return None
        return self._keep(thread, ns, log)

    def _begun(self, thread: str, ns: str) -> ThreadLog:
        log = self._log(thread, ns)
        if log is None:
            sid = self._sid(thread, self._names.number(thread), ns)
            self._names.begin(sid, _described(thread, ns))
            log = self._keep(thread, ns, ThreadLog(self.sessions, sid, Serde(self.serde)))
        return log

    def _sid(self, thread: str, number: int, ns: str) -> str:
        sid = f"{self._names.family(thread)}/{number}"
        return f"{sid}/{encoded(ns)}" if ns else sid

    @contextmanager
    def _held(self, *threads: str) -> Iterator[None]:
        """While nobody else of this checkpointer works on these threads."""
        with ExitStack() as stack:
            for thread in sorted(set(threads)):
                with self._guard:
                    lock = self._locks.get(thread)
                    if lock is None:
                        lock = self._locks[thread] = threading.RLock()
                stack.enter_context(lock)
            yield

    def _keep(self, thread: str, ns: str, log: ThreadLog) -> ThreadLog:
        with self._guard:
            self._logs[thread, ns] = log
        return log


def _carry(log: ThreadLog, target: ThreadLog, kept: set[str]) -> None:
    """Put the kept checkpoints of one log, with their writes, into an empty one."""
    for record in sorted(log.records(), key=lambda each: each.event):
        if record.id not in kept:
            continue
        checkpoint = {
            **log.told(record.rest),
            "id": record.id,
            "channel_versions": record.versions,
            "versions_seen": record.seen,
            "channel_values": log.values(record.places),
        }
        target.put(checkpoint, log.told(record.metadata), record.parent, None)
        for event in log.write_events(record.id):
            target.add_writes(record.id, {"type": event.type, **event.data})


def _latest(log: ThreadLog) -> set[str]:
    """The newest checkpoint, and what its delta channels are read from."""
    record = log.newest()
    if record is None:
        return set()
    kept = {record.id}
    missing = set(log.told(record.metadata).get("counters_since_delta_snapshot") or {})
    missing -= record.places.keys()
    while missing and (record := _parent(log, record)) is not None:
        kept.add(record.id)
        missing -= record.places.keys()
    return kept


def _parent(log: ThreadLog | None, record: Record | None) -> Record | None:
    if log is None or record is None or record.parent is None:
        return None
    return log.find(record.parent)


def _described(thread: str, ns: str) -> dict[str, Any]:
    return {"kind": LIBRARY, "thread_id": thread, "checkpoint_ns": ns}


def _config(thread: str, ns: str, checkpoint_id: str) -> Config:
    named = {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": named}


def _configurable(config: Config) -> Mapping[str, Any]:
    found = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(found, Mapping):
        raise InvalidInput(
            'the config has no "configurable"',
            hint='As in {"configurable": {"thread_id": "1"}}.',
        )
    return found


def _parts(config: Config) -> tuple[str, str, str | None]:
    """Thread, namespace and checkpoint that a config names."""
    named = _configurable(config)
    if "thread_id" not in named:
        raise InvalidInput(
            "the config names no thread_id", hint='As in {"configurable": {"thread_id": "1"}}.'
        )
    thread = checked(named["thread_id"], "thread_id")
    ns, checkpoint_id = named.get("checkpoint_ns", ""), named.get("checkpoint_id")
    if not isinstance(ns, str):
        raise InvalidInput(f"checkpoint_ns is {ns!r:.100}, not a text")
    if checkpoint_id is not None and (not isinstance(checkpoint_id, str) or not checkpoint_id):
        raise InvalidInput(f"checkpoint_id is {checkpoint_id!r:.100}, not a text")
    return thread, ns, checkpoint_id
