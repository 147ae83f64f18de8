"""The file of the graphs: its upkeep, its numbers, its health, leave to look into it, and what
happens when it is damaged.
"""

from __future__ import annotations

import copy
import stat
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from graph_nodes import APP, everything, open_graphs, with_notes
from test_apps import edit

from fourfold.errors import (
    Busy,
    CapabilityDenied,
    CorruptData,
    FourfoldError,
    InvalidInput,
    LockTimeout,
    Refused,
    SequenceRegression,
    StorageError,
    WriterLocked,
)
from fourfold.kernel import Options, failpoints, inspection
from fourfold.kernel.idempotency import IdempotentRequest, run_once
from fourfold.models.graphs import GLOBAL_SEQ, Capability, Graphs
from fourfold.models.graphs.records import GcReport
from fourfold.models.graphs.verify import problems

HERE = str(Path(__file__).parent)
METRICS = (
    "db_size_bytes",
    "wal_size_bytes",
    "open_connections",
    "pending_checkpoint",
    "last_vacuum_ts",
    "last_backup_ts",
    "txn_latency_ms",
)


def parent(types, **changes):
    return {"type_id": types["parent"], "owner_identity": 1, **changes}


# Numbers and upkeep


def test_gc_removes_outdated_results_and_expired_keys_only(graphs, types, monkeypatch):
    monkeypatch.setattr("fourfold.models.graphs.maintenance.GC_ROWS", 2)
    note = graphs.insert_parent(APP, parent(types))
    for number in range(5):
        graphs.put_cached("search", str(number), "[1]", 0)
    graphs.put_cached("search", "new", "[1]", graphs.position())
    for key, now_s in [("young", None), ("old", 0)]:
        request = IdempotentRequest("caller", key, "digest")
        run_once(graphs.database, request, lambda: b"result", now_s=now_s)
    before = everything(graphs)
    expected = GcReport(cached=5, requests=1, bytes=5 * len("[1]") + len(b"result"))
    assert graphs.gc(dry_run=True) == msgspec.structs.replace(expected, dry_run=True)
    assert graphs.get_cached("search", "0") is not None
    assert graphs.gc() == expected
    assert graphs.gc() == GcReport(0, 0, 0)
    assert graphs.get_cached("search", "0") is None
    assert graphs.get_cached("search", "new") == ("[1]", graphs.position())
    repeated = IdempotentRequest("caller", "young", "digest")
    assert run_once(graphs.database, repeated, lambda: b"other") == (b"result", True)
    assert everything(graphs) == before
    assert graphs.open("notes").read("parent", note) is not None


def test_metrics_have_every_name_of_specification_and_never_row(graphs, types, tmp_path):
    of = {"type_id": types["attr"], "owner_identity": 1}
    note = graphs.insert_parent(APP, parent(types))
    graphs.insert_attr(APP, {**of, "parent_id": note, "value_text": "a secret of mine"})
    graphs.upsert_setting("password", "swordfish")
    graphs.vacuum()
    graphs.backup(tmp_path / "copy.db")
    found = graphs.metrics()
    for name in METRICS:
        assert getattr(found, name) is not None, name
    assert found.sequences == {"global_seq": 2}
    assert found.open_connections == 1
    assert found.txn_latency_ms["p50"] > 0
    for word in ("secret", "swordfish", "SELECT", "note"):
        assert word not in repr(found)


def test_vacuum_does_not_wait_and_is_refused_during_a_read(graphs, types):
    graphs.insert_parent(APP, parent(types))
    with graphs.snapshot(), pytest.raises(Busy, match="read transactions are open"):
        graphs.vacuum()
    graphs.vacuum()
    graphs.analyze()
    assert len(graphs.select_parents(APP)) == 1


def test_checkpoint_stops_at_reader_and_goes_on_without_it(graphs, types, path):
    graphs.checkpoint("TRUNCATE")
    with graphs.snapshot() as reader:
        reader.newest_seq()
        graphs.insert_many_parents(APP, [parent(types)] * 100)
        assert graphs.checkpoint().busy
    assert not graphs.checkpoint("TRUNCATE").busy
    assert path.with_name(path.name + "-wal").stat().st_size == 0
    with pytest.raises(InvalidInput, match="SOMETIMES"):
        graphs.checkpoint("SOMETIMES")


def test_closed_file_leaves_no_wal_and_is_private(path):
    graphs = open_graphs(path)
    with_notes(graphs)
    graphs.database.close()
    assert sorted(each.name for each in path.parent.iterdir() if "wal" in each.name) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    folder = path.parent / "new"
    open_graphs(folder / "backend.db").database.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_second_process_cannot_write_and_may_read(graphs, types, path):
    graphs.insert_parent(APP, parent(types))
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path; from graph_nodes import open_graphs\n"
        "from fourfold.errors import WriterLocked\n"
        "assert len(open_graphs(Path(sys.argv[1]), mode='r').select_parents(1)) == 1\n"
        "try: open_graphs(Path(sys.argv[1]))\n"
        "except WriterLocked: print('locked')\n"
    )
    command = [sys.executable, "-c", script, str(path), HERE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "locked\n"
    with pytest.raises(WriterLocked):
        open_graphs(path)


def test_two_processes_that_start_on_empty_folder_make_one_schema(path):
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path; from graph_nodes import open_graphs\n"
        "from fourfold.errors import WriterLocked\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for _ in range(2000):\n"
        "    try: graphs = open_graphs(Path(sys.argv[1])); break\n"
        "    except WriterLocked: time.sleep(0.01)\n"
        "graphs.register_app('notes', 'Notes'); graphs.database.close(); print('done')\n"
    )
    command = [sys.executable, "-c", script, str(path), HERE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for each in both:
        assert each.stdout.readline() == "ready\n"
    for each in both:
        each.stdin.write("go\n")
        each.stdin.flush()
    assert [each.communicate()[0] for each in both] == ["done\n", "done\n"]
    graphs = open_graphs(path)
    assert [app.slug for app in graphs.list_apps()] == ["system", "notes"]
    with graphs.database.read() as snapshot:
        assert snapshot.all("SELECT id, seq FROM global_seq") == [(1, 0)]
        assert problems(snapshot, str(path), graphs.node) == []
    graphs.database.close()


def test_writer_that_times_out_gets_a_retryable_error(path):
    options = Options(transaction_deadline_s=0.2)
    graphs = open_graphs(path, options=options)
    types = with_notes(graphs)
    failures = []

    def insert():
        try:
            graphs.insert_parent(APP, parent(types))
        except FourfoldError as error:
            failures.append(error)

    with graphs.database.write(deadline_s=60) as txn:
        waiting = threading.Thread(target=insert)
        waiting.start()
        waiting.join(60)
        assert txn.value("SELECT 1") == 1
    assert [isinstance(each, Busy | LockTimeout) and each.retryable for each in failures] == [True]
    assert graphs.insert_parent(APP, parent(types)) == 1
    graphs.database.close()


# Capabilities


def test_integrity_check_requires_a_capability_granted_here(graphs, tmp_path):
    leave = graphs.grant(["diagnostics"])
    assert graphs.integrity_check(leave) == []
    other = open_graphs(tmp_path / "other.db")
    strangers = [
        None,
        "diagnostics",
        Capability(frozenset({"diagnostics"})),
        copy.copy(leave),
        other.grant(["diagnostics"]),
    ]
    for stranger in strangers:
        with pytest.raises(CapabilityDenied, match="diagnostics"):
            graphs.integrity_check(stranger)
    graphs.revoke(leave)
    with pytest.raises(CapabilityDenied):
        graphs.integrity_check(leave)
    other.database.close()


@pytest.mark.parametrize("rights", [[], ["everything"], "diagnostics", ["diagnostics", "x"]])
def test_unknown_rights_are_refused(graphs, rights):
    with pytest.raises(InvalidInput, match="rights"):
        graphs.grant(rights)


# Damage


def fill(path):
    graphs = open_graphs(path)
    types = with_notes(graphs)
    for _ in range(20):
        graphs.insert_many_parents(APP, [parent(types)] * 100)
    return graphs, types


def spoil(path):
    """Overwrite one of the last pages of a closed file, which hold rows."""
    at = path.stat().st_size * 7 // 8 // 4096 * 4096
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 4096)


def test_damage_that_check_finds_stops_writers_and_leaves_numbers_readable(path, tmp_path):
    graphs, _ = fill(path)
    graphs.backup(tmp_path / "copy.db")
    before = everything(graphs)
    graphs.database.close()
    spoil(path)
    graphs = open_graphs(path)
    assert graphs.health().ready
    assert graphs.integrity_check(graphs.grant(["diagnostics"]))
    health = graphs.health()
    assert (health.state, health.ready) == ("failed", False)
    for write in (
        lambda: graphs.upsert_setting("a", "b"),
        lambda: graphs.register_app("more", "More"),
        lambda: graphs.upgrade_app(APP, []),
        lambda: graphs.transaction().__enter__(),
    ):
        with pytest.raises(CorruptData, match="a check found damage"):
            write()
    assert graphs.metrics().db_size_bytes > 0
    graphs.database.close()
    inspection.restore(tmp_path / "copy.db", path, (GLOBAL_SEQ,), replace_unreadable=True)
    graphs = open_graphs(path)
    assert everything(graphs) == before
    assert graphs.integrity_check(graphs.grant(["diagnostics"])) == []
    assert graphs.health().ready
    graphs.upsert_setting("a", "b")
    graphs.database.close()


def test_an_old_backup_does_not_take_numbers_back(path, tmp_path):
    graphs, types = fill(path)
    graphs.backup(tmp_path / "old.db")
    graphs.insert_parent(APP, parent(types))
    rows = everything(graphs)
    with pytest.raises(WriterLocked):
        inspection.restore(tmp_path / "old.db", path, (GLOBAL_SEQ,))
    graphs.insert_log(APP, "info", "alive", "{}")
    graphs.database.close()
    with pytest.raises(SequenceRegression):
        inspection.restore(tmp_path / "old.db", path, (GLOBAL_SEQ,))
    graphs = open_graphs(path)
    assert everything(graphs) == rows
    assert graphs.get_global_seq() == 21
    graphs.database.close()


def test_start_that_fails_at_any_statement_leaves_file_that_starts(tmp_path):
    """On a new file, and on one whose apps are there already."""
    for number in range(1, 200):
        path = tmp_path / f"{number}.db"
        failpoints.arm("kernel.statement.before", "raise", at=number)
        try:
            open_graphs(path).database.close()
        except FourfoldError:
            pass
        else:
            break
        finally:
            failpoints.disarm()
        graphs = open_graphs(path)
        with graphs.database.read() as snapshot:
            assert problems(snapshot, str(path), graphs.node) == []
        assert [app.slug for app in graphs.list_apps()] == ["system"]
        graphs.database.close()
    assert number > 2


def test_app_whose_tables_cannot_all_be_made_is_not_there(graphs):
    """A failure in the middle of a registration leaves neither a table nor a row of the app."""
    for number in range(1, 200):
        failpoints.arm("kernel.statement.before", "raise", at=number)
        try:
            graphs.register_app("market", "Market")
        except StorageError:
            with graphs.database.read() as snapshot:
                sql = "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'app_1_*'"
                assert snapshot.value(sql) == 0
            assert [app.slug for app in graphs.list_apps()] == ["system"]
        else:
            break
        finally:
            failpoints.disarm()
    assert number > 3
    assert graphs.app("market").app_id == 1


def test_a_global_table_that_is_gone_is_damage(path):
    for table in ("settings", "peers", "sync_state", "domain_seq", "identities", "apps"):
        graphs = open_graphs(path.with_name(f"{table}.db"))
        graphs.database.close()
        edit(path.with_name(f"{table}.db"), f"DROP TABLE {table}")
        with pytest.raises(CorruptData, match=f"table {table} is missing"):
            open_graphs(path.with_name(f"{table}.db"))


# The calls by their other names


def test_the_helpers_have_the_names_of_both_sections():
    assert Graphs.with_txn is Graphs.with_transaction
    assert Graphs.write_batch is Graphs.with_transaction
    assert Graphs.read_only is Graphs.with_read_only


def test_the_other_names_do_the_same(graphs, types):
    def write(txn):
        graphs.next_global_seq(txn)
        return graphs.insert_many_parents(APP, [parent(types)] * 2, txn=txn)

    assert graphs.with_txn(write) == [1, 2]
    assert graphs.write_batch(write) == [3, 4]
    assert graphs.with_transaction(write) == [5, 6]
    assert graphs.read_only(lambda reader: reader.newest_seq()) == 3
    assert graphs.with_read_only(lambda reader: reader.newest_seq()) == 3
    with pytest.raises(ZeroDivisionError):
        graphs.write_batch(lambda txn: write(txn) and 1 / 0)
    assert graphs.get_global_seq() == 3


# Identities


def test_identities_are_objects_and_their_cache_can_be_rebuilt(graphs):
    alice = graphs.add_identity("ed25519:alice", "Alice")
    bob = graphs.add_identity("ed25519:bob")
    assert (alice.id, bob.id) == (1, 2)
    assert graphs.rebuild_identities() == (2, 0, 0)
    assert [row.value_text for row in graphs.current_attrs(0, parent_ids=[1])] == [
        "ed25519:alice",
        "Alice",
    ]
    with graphs.database.write() as txn:
        txn.execute("DELETE FROM identities WHERE id = 1")
        txn.execute("UPDATE identities SET pubkey = 'ed25519:mallory' WHERE id = 2")
    assert len(graphs.verify()) == 2
    assert graphs.rebuild_identities() == (0, 2, 0)
    assert graphs.list_identities() == (alice, bob)
    assert graphs.verify() == []


def test_new_label_reaches_the_cache_in_the_same_transaction(graphs):
    alice = graphs.add_identity("ed25519:alice", "Alice")
    label = graphs.current_attrs(0, parent_ids=[alice.id])[1]
    graphs.update(0, "attr", label.object_id, {"value_text": "Alicia"})
    assert graphs.list_identities() == (alice._replace(label="Alicia"),)
    assert graphs.rebuild_identities() == (1, 0, 0)


def test_identity_that_only_cache_knows_is_not_dropped_unasked(graphs):
    with graphs.database.write() as txn:
        txn.execute("INSERT INTO identities VALUES (7, 'ed25519:ghost', NULL, 'x')")
    with pytest.raises(Refused, match="identity 7"):
        graphs.rebuild_identities()
    assert [each.id for each in graphs.list_identities()] == [7]
    assert graphs.rebuild_identities(drop_unknown=True) == (0, 0, 1)
    assert graphs.list_identities() == ()
