"""Real processes are killed while they write, and while they take in a peer's packages: what was
acknowledged is there, whole, and nothing else is.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from graph_nodes import APP, SHARED, Node, everything, open_graphs, with_notes

from fourfold.models.graphs.verify import problems
from support.crash import Moment, random_kill_time, run
from support.properties import repeats

SCRIPT = Path(__file__).with_name("graph_child.py")
POINTS = (
    "kernel.statement.after",
    "kernel.commit.before",
    "kernel.commit.after",
    "kernel.acknowledge.before",
)


def check_written(path, acknowledged):
    graphs = open_graphs(path)
    rows = everything(graphs)
    numbers = {row.global_seq: row.owner_identity for row in rows["parent"]}
    assert sorted(numbers) == list(range(1, graphs.get_global_seq() + 1))
    texts = {}
    for row in rows["attr"]:
        texts.setdefault(row.global_seq, []).append(row.value_text)
    for seq, values in texts.items():
        # Three rows under every number: all of an envelope, or none of it.
        assert len(values) == 3
        assert len(set(values)) == 1
        assert seq in numbers
    for seq, text in acknowledged.items():
        assert texts[seq][0] == text
    with graphs.database.read() as snapshot:
        assert problems(snapshot, str(path), graphs.node) == []
    graphs.database.close()


def killed_writers(path, crashes):
    graphs = open_graphs(path)
    with_notes(graphs)
    graphs.database.close()
    acknowledged = {}
    for given in crashes:
        crash = run(SCRIPT, "write", str(path), **given)
        assert crash.killed, crash
        for line in crash.lines:
            seq, text = line.split()
            assert int(seq) not in acknowledged
            acknowledged[int(seq)] = text
        check_written(path, acknowledged)
    return acknowledged


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_killed_at_a_fault_point_leaves_whole_envelopes(path, point):
    killed_writers(path, [{"fault": f"{point}=kill@{at}"} for at in (3, 11)])


@pytest.mark.slow
def test_writers_killed_at_any_moment_lose_nothing_acknowledged(path):
    random, kills = Random(7), repeats(60)
    acknowledged = killed_writers(path, [{"kill": random_kill_time(random)} for _ in range(kills)])
    assert len(acknowledged) > 5 * kills


@pytest.fixture
def two_nodes(tmp_path):
    """Alice wrote 60 notes and packed them into small packages; Bob has taken in none."""
    alice, bob = Node(tmp_path / "a.db", 1), Node(tmp_path / "b.db", 2)
    bob.meet(alice)
    for n in range(60):
        with alice.graphs.transaction() as txn:
            of = {"owner_identity": alice.me, "sync_flags": SHARED}
            note = alice.graphs.insert_parent(
                APP, {"type_id": alice.types["parent"], **of}, txn=txn
            )
            body = {"type_id": alice.types["attr"], "parent_id": note, "value_text": str(n), **of}
            alice.graphs.insert_attr(APP, body, txn=txn)
    folder = tmp_path / "packages"
    folder.mkdir()
    after, complete = 0, False
    while not complete:
        sent = alice.graphs.export_package("notes", alice.signer, after=after, max_bytes=4000)
        (folder / f"{sent.position:06d}").write_bytes(sent.data)
        after, complete = sent.position, sent.complete
    bob.graphs.database.close()
    yield alice, bob, folder
    alice.graphs.database.close()
    bob.graphs.database.close()


@pytest.mark.parametrize("point", [*POINTS, "graphs.sync.checked", "graphs.sync.written"])
def test_node_killed_while_ingesting_has_whole_envelopes_and_resumes(two_nodes, point):
    alice, bob, folder = two_nodes
    last = 0
    for at in (4, 9, 2, 30):
        crash = run(SCRIPT, "ingest", str(bob.path), str(folder), fault=f"{point}=kill@{at}")
        last = max(last, *(int(line) for line in crash.lines if line != "done"), 0)
        bob.open()
        texts = [row.value_text for row in bob.graphs.current_attrs(APP)]
        # An entry of the log is an envelope with both of its rows.
        assert texts == [str(n) for n in range(len(texts))]
        assert len(texts) >= last
        (log,) = json.loads(bob.graphs.sync_tips("notes"))["logs"] or ({"tips": [[0, ""]]},)
        assert log["tips"][0][0] == len(texts)
        with bob.graphs.database.read() as snapshot:
            assert problems(snapshot, "bob", bob.graphs.node) == []
        bob.graphs.database.close()
    crash = run(SCRIPT, "ingest", str(bob.path), str(folder), kill=Moment(1000, 60))
    assert "done" in crash.lines, crash
    bob.open()
    wanted = [row.value_text for row in alice.graphs.current_attrs(APP)]
    assert [row.value_text for row in bob.graphs.current_attrs(APP)] == wanted
