"""The limits that graphs are measured against leave the same rows as graphs do."""

from __future__ import annotations

import pytest
from bench.graphs import dataset, peer, store, subject
from bench.graphs.task import Run, Task

FORMS = [
    "insert parent",
    "insert attr",
    "insert edge",
    "insert rating",
    "insert attr shared",
    "envelope one asyncio",
    "envelope five asyncio",
    "envelope five threads",
]


def done(task):
    job = subject.job(task)
    job.run()
    job.after()


@pytest.mark.parametrize("form", FORMS)
def test_a_limit_inserts_the_rows_that_graphs_have_written(tmp_path, form):
    base, ours, theirs = (tmp_path / f"{name}.db" for name in ("base", "ours", "theirs"))
    store.make_base(base)
    store.copy(base, ours)
    store.copy(base, theirs)
    before = store.fingerprint(base)
    count = 300 if form.startswith("insert") else 40
    done(Task(form, str(ours), count))
    done(Task(f"kernel {form}", str(theirs), count, str(ours)))
    ordered = "threads" not in form
    found = store.fingerprint(theirs, ordered=ordered)
    assert found == store.fingerprint(ours, ordered=ordered)
    assert store.fingerprint(ours) != before
    with store.opened(theirs) as graphs:
        store.check(graphs, graphs.get_global_seq())
        assert graphs.usage(dataset.APP).rows == dataset.TARGETS + (
            count * 5 if "five" in form else count
        )


def test_large_file_is_built_as_graphs_would_have_written_it(tmp_path):
    path = tmp_path / "size-6000.db"
    store.make_size(path, 6_000)
    with store.opened(path) as graphs:
        store.check(graphs, 1 + store.numbers_of(6_000))
        assert graphs.usage(dataset.APP).rows == 6_000
        graphs.apply(dataset.envelope(1, "five"))
        store.check(graphs, 2 + store.numbers_of(6_000))
    for form in ("pages", "attributes", "past", "old insert", "one envelope"):
        done(Task(form, str(path), 20))


def test_bare_select_and_peer_read_as_many_rows_as_feed(tmp_path):
    log, audit = tmp_path / "log.db", tmp_path / "audit.db"
    store.make_log(log, 30)
    peer.make_log(audit, 30)
    rows = dataset.TARGETS + 150
    for form in ("feed", "bare select by number", "bare select by id"):
        done(Task(form, str(log), rows))
    done(Task("peer feed", str(audit), rows))
    done(Task("peer insert", str(audit), 20))
    done(Task("peer envelope", str(audit), 3))
    with pytest.raises(store.WrongRows):
        done(Task("feed", str(log), rows + 1))


def test_run_knows_whether_it_needs_copy_of_its_file():
    assert Run("insert attr", 1, "base").writes
    assert Run("kernel envelope one threads", 1, "base").is_limit
    assert Run("kernel envelope one threads", 1, "base").what == "envelope one threads"
    assert not Run("one envelope", 1, "size-10000", in_place=True).writes
    assert not Run("feed", 1, "log").writes
    assert Run("peer insert", 1, "peer-base").side == "peer"
