"""The steps of the demo.

Each does something real and returns what it observed: lines for people, facts for `--json`.
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
from fourfold.cli.demo.journal import add, journal, numbers
from fourfold.cli.demo.scripted_agent import SID, TASK, agent, last_word
from fourfold.cli.output import size
from fourfold.errors import FourfoldError, SequenceRegression
from fourfold.kernel import Database, Transaction
from fourfold.models.documents import Space
from fourfold.models.graphs import ApplyResult, Graphs
from fourfold.models.sessions.runtime import Runtime
from fourfold.models.streams import Producer

_DID = "did:web:demo.example"
_PLAN = "urn:plan:dinner"
_START = {"dish": "soup", "guests": ["Ada"], "budget": 40}


def documents_branch_and_travel(stage: Stage) -> Shown:
    """A document is branched, changed on both sides, merged, and read at an earlier seq."""
    with fourfold.open(stage.root) as store:
        space = store.space(_DID)
        first = space.set(_PLAN, _START)
        space.branches.create("idea")
        space.patch(_PLAN, [{"op": "replace", "path": "/dish", "value": "curry"}], branch="idea")
        space.patch(_PLAN, [{"op": "append", "path": "/guests", "values": ["Grace"]}])
        apart = [_dish_and_guests(space, branch) for branch in ("", "idea")]
        merged = space.branches.merge("idea")
        assert merged.commit is not None
        together = _dish_and_guests(space, "")
        then = space.read(_PLAN, at=first.seq)
        assert then is not None
        space.delete(_PLAN)
        space.transact(space.diff("", None, merged.commit.seq).operations)
        undone = _dish_and_guests(space, "") == together
        sound = space.verify() == []
        seq = space.seq()
    lines = [
        f"seq {first.seq}: {_PLAN} is set; a branch diverges, and nothing is copied",
        f"by default {apart[0]}; on the branch {apart[1]}",
        f"seq {merged.commit.seq}: merged field by field: {together}",
        f"read as of seq {first.seq}: unchanged: {then.document == _START}",
        f"deleted, and brought back from the past: {undone}",
        f"{seq} commits, each checked against its digest; sound: {sound}",
    ]
    return lines, {
        "merged": together,
        "past_unchanged": then.document == _START,
        "undone": undone,
        "commits": seq,
        "sound": sound,
    }


def _dish_and_guests(space: Space, branch: str) -> str:
    state = space.read(_PLAN, branch)
    assert state is not None
    assert state.document is not None
    return f"{state.document['dish']} for {' and '.join(state.document['guests'])}"


_APP = "messages"
_SHARED = 1


def graphs_agree_between_stores(stage: Stage) -> Shown:
    """Two stores exchange a graph in signed packages, and agree."""
    try:
        from fourfold.models.graphs.sync.keys import Ed25519Signer  # noqa: PLC0415 - an extra

        key = Ed25519Signer.generate()
    except FourfoldError as error:
        return [f"left out: {error.message}"], {"skipped": error.hint}
    with fourfold.open(stage.root) as here, fourfold.open(stage.scratch / "peer") as there:
        alice, bob = here.graphs, there.graphs
        for entry in (alice, bob):
            entry.register_app(_APP, "Messages")
            entry.define_domain("talk", _SHARED)
        owner = alice.add_identity(key.public_key, "Alice").id
        first = _say(alice, owner, "Hello")
        alice.apply(_update(alice, owner, first.object_ids[1], "Hello, Bob"))
        peer = bob.add_peer(bob.add_identity(key.public_key).id, "file:").id
        bob.allow_peer(peer, "talk")
        sent = alice.export_package("talk", key)
        done = bob.ingest_package(peer, sent.data)
        changed = bob.ingest_package(peer, sent.data.replace(b"Hello", b"Hullo"))
        again = bob.ingest_package(peer, sent.data)
        refusals = sorted({refusal.kind for refusal in changed.refused})
        app = bob.app(_APP).app_id
        now, then = _texts(bob, app), _texts(alice, alice.app(_APP).app_id, first.global_seq)
    lines = [
        f"a message and its correction are {sent.envelopes} envelopes, signed by their author",
        f"a package of {sent.rows} rows; the other store added {done.added}: {now[0]!r}",
        f"the same package again: {again.known} known, {again.added} rows added",
        f"one with a changed letter: {', '.join(refusals)}",
        f"read as of number {first.global_seq}: {then[0]!r}",
    ]
    return lines, {"added": done.added, "text": now[0], "then": then[0], "refused": refusals}


def _say(graphs: Graphs, owner: int, text: str) -> ApplyResult:
    app = graphs.app(_APP).app_id
    talk = graphs.register_type(app, "parent", "conversation")
    body = graphs.register_type(app, "attr", "text")
    common = {"app_id": app, "owner_identity": owner}
    value = {"parent_id": {"$op": 0}, "value": text, "sync_flags": _SHARED}
    ops = [
        {"op": "parent_create", "type_id": talk, "payload": {"sync_flags": _SHARED}, **common},
        {"op": "attr_create", "type_id": body, "payload": value, **common},
    ]
    return graphs.apply({"trace_id": "demo", "ops": ops})


def _update(graphs: Graphs, owner: int, attr_id: int, text: str) -> dict[str, object]:
    op = {
        "op": "attr_update",
        "app_id": graphs.app(_APP).app_id,
        "type_key": "text",
        "owner_identity": owner,
        "payload": {"attr_id": attr_id, "value": text, "sync_flags": _SHARED},
    }
    return {"trace_id": "demo", "ops": [op]}


def _texts(graphs: Graphs, app: int, at: int | None = None) -> list[str | None]:
    return [row.value_text for row in graphs.current_attrs(app, at=at)]


def an_agent_is_killed_and_resumes(stage: Stage) -> Shown:
    """An agent is killed in the middle of its turn; another process resumes it."""
    child = subprocess.Popen(
        [sys.executable, "-m", "fourfold.cli.demo.killed_agent", str(stage.root)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    questions = [child.stdout.readline().strip() for _ in range(3)]
    os.kill(child.pid, signal.SIGKILL)
    child.stdout.close()
    child.wait()
    again: list[str] = []
    with fourfold.open(stage.root) as store:
        sessions = store.sessions
        runtime = agent(sessions, again.append)
        interrupted = runtime.interrupted(SID)
        result = runtime.run_turn(SID, TASK, key=TASK)
        recorded = len(sessions.current_view(SID).evals)
        children = len(sessions.current_view(SID).edges)
        assert result.head is not None
        fork = Runtime(sessions, last_word).attach(result.head, "what was last?", sid="demo/fork")
        sound = not sessions.verify()
    repeated = len(set(questions) & set(again))
    lines = [
        f"process {child.pid} sent its model {len(questions)} questions, then got SIGKILL",
        f"turn {interrupted} went on with {len(again)}, {repeated} of them the one that was open",
        f"one turn in the log, {recorded} answers, {children} children, {result.status}",
        f"a new session starts from its head and knows {fork.value!r}; sound: {sound}",
    ]
    facts: dict[str, object] = {
        "asked": len(questions),
        "repeated": repeated,
        "recorded": recorded,
        "status": result.status,
        "sound": sound,
    }
    return lines, facts


_NAME = "demo/orders"


def streams_are_written_once_and_followed(stage: Stage) -> Shown:
    """A stream stores each request once, is forked without copying, and is followed to its end."""
    with fourfold.open(stage.root) as store:
        orders = store.streams.create(_NAME, "application/json")
        sent = [
            orders.append(b'{"id": %d, "total": 9.50}' % n, producer=Producer("till", 0, n))
            for n in (0, 1, 1, 1)
        ]
        repeated = sum(entry.duplicate for entry in sent)
        fork = orders.fork("demo/what-if", at=1)
        fork.append(b'{"id": 99}')
        seen: list[bytes] = []

        def follow() -> None:
            for chunk in orders.follow("now"):
                seen.extend(record.payload for record in chunk.records)

        reader = threading.Thread(target=follow)
        reader.start()
        orders.append(b'{"id": 2, "total": 1.00}')
        orders.close()
        reader.join()
        stored = [record.payload for record in orders.read().records]
        forked = [record.payload for record in fork.read().records]
        sound = not store.streams.verify()
    lines = [
        f"{len(sent)} requests, {repeated} of them repeated: {len(stored) - 1} messages",
        f"stored byte for byte: {stored[0].decode()}",
        f"the fork has {len(forked)} messages, one of them its own",
        f"a reader that waited saw {len(seen)} more and the end; sound: {sound}",
    ]
    return lines, {"repeated": repeated, "messages": len(stored), "seen": len(seen), "sound": sound}


Shown = tuple[list[str], dict[str, object]]

_CALLERS = 64
_WRITES_EACH = 50
_KILL_AFTER = 500


@dataclass(slots=True)
class Stage:
    """The environment of the demo: the store, and a folder for everything else."""

    root: Path
    scratch: Path

    @property
    def backup(self) -> Path:
        """The folder of the backup that the demo makes."""
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
    """64 concurrent callers share commits, and each gets its own number."""
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
        stored = numbers(journal(store))
    missing = set(acknowledged) - set(stored)
    lines = [
        f"process {child.pid} acknowledged {len(acknowledged):,} entries, then got SIGKILL",
        f"reopened: {len(missing)} missing, {len(stored):,} in all, dense: {_dense(stored)}",
    ]
    return lines, {
        "acknowledged": len(acknowledged),
        "missing": len(missing),
        "dense": _dense(stored),
    }


def a_second_writer_is_refused(stage: Stage) -> Shown:
    """A second writer is refused; readers are not."""
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
    """A backup is taken from a store in use, and a flipped bit in it is detected."""
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
    """A restore never assigns a number twice."""
    with fourfold.open(stage.root) as store:
        last = journal(store).transact(lambda txn: add(txn, "after the backup"))
    try:
        fourfold.restore(stage.backup, stage.root)
    except SequenceRegression as error:
        refusal = error
    fourfold.restore(stage.backup, stage.root, advance=True)
    for replaced in list(stage.root.rglob("*.replaced-*")):
        replaced.unlink()  # The demo trusts its backup; `fourfold doctor` would report the file.
    with fourfold.open(stage.root) as store:
        following = journal(store).transact(lambda txn: add(txn, "after the restore"))
    name = refusal.message.replace(str(stage.root), "ROOT")
    lines = [
        f"error[{refusal.kind}]: {name}",
        f"with advance=True it continues above: {last} was used, the next entry is {following}",
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


def _write_from_threads(log: Database) -> list[int]:
    got: list[int] = []

    def caller(name: int) -> None:
        got.extend(log.transact(_adding(f"{name}/{turn}")) for turn in range(_WRITES_EACH))

    threads = [threading.Thread(target=caller, args=(name,)) for name in range(_CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def _adding(text: str) -> Callable[[Transaction], int]:
    return lambda txn: add(txn, text)


def _dense(values: list[int]) -> bool:
    return sorted(values) == list(range(min(values), max(values) + 1))


def _flip_a_bit(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
