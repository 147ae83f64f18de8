"""A job examines its inputs once, when it plans; changes after that are errors, never surprises."""

from __future__ import annotations

from pathlib import Path

import pytest

import fourfold
from fourfold.errors import FourfoldError
from fourfold.pipeline import cut, jobs, store_files
from fourfold.pipeline.jobs.job import Context
from fourfold.pipeline.jobs.runner import resolve_options

A, B = "did:web:a.example", "did:web:b.example"


@pytest.fixture
def root(tmp_path):
    """A store with data of the models that these jobs read."""
    with fourfold.open(tmp_path / "store") as store:
        for did in (A, B):
            store.space(did).set("x", {"n": 1})
        store.graphs.register_app("notes", "Notes")
        store.sessions.create_session({"id": "s", "model": "m"})
    return tmp_path / "store"


class SparkNeededError(Exception):
    """The job needs Spark from here on."""


def context_of(job, root, options):
    def open_session():
        raise SparkNeededError

    return Context(
        root=root,
        options=resolve_options(job, options),
        watermark={},
        work="w-1",
        open_session=open_session,
    )


def remove(root, did):
    for path in (Path(root) / "spaces").glob(f"{did}*"):
        path.unlink()


HEAD = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("name", "options", "files"),
    [
        ("materialize", {}, 2),
        ("materialize", {"model": "sessions"}, 1),
        ("materialize", {"model": "graphs"}, 1),
        ("snapshots", {}, 2),
        ("stats", {}, 2),
        ("stats", {"model": "graphs"}, 1),
        ("components", {}, 1),
        ("lineage", {"head": [HEAD]}, 1),
    ],
)
def test_job_reads_cut_once(root, tmp_path, monkeypatch, name, options, files):
    inspected = []
    inspect = cut.inspect_file

    def counting(file, *arguments, **keywords):
        inspected.append(file.path)
        return inspect(file, *arguments, **keywords)

    monkeypatch.setattr(cut, "inspect_file", counting)
    job = jobs.get_job(name)
    into = {"into": str(tmp_path / "out")} if name == "materialize" else {}
    context = context_of(job, root, {**into, **options})
    plan = job.plan(context)
    remove(root, A)
    with pytest.raises(SparkNeededError):
        job.run(context, plan)
    assert len(inspected) == len(set(inspected)) == files


@pytest.mark.parametrize("name", ["gc", "verify"])
def test_job_lists_files_once(root, monkeypatch, name):
    listed = []
    find = store_files.find_files
    monkeypatch.setattr(store_files, "find_files", lambda *a: listed.append(1) or find(*a))
    job = jobs.get_job(name)
    context = context_of(job, root, {})
    plan = job.plan(context)
    with pytest.raises(SparkNeededError):
        job.run(context, plan)
    assert len(listed) == 1


@pytest.mark.spark
@pytest.mark.parametrize("name", ["materialize", "stats", "snapshots"])
def test_space_removed_after_plan_raises_fourfold_error(root, tmp_path, spark, monkeypatch, name):
    job = jobs.get_job(name)
    run = type(job).run

    def remove_and_run(self, context, plan):
        remove(root, A)
        return run(self, context, plan)

    monkeypatch.setattr(type(job), "run", remove_and_run)
    into = {"into": str(tmp_path / "out")} if name == "materialize" else {}
    with pytest.raises(FourfoldError, match=r"a\.example"):
        jobs.run(job, root, into, spark=spark)
    [row] = jobs.history(root)
    assert row.state == "failed"
    assert row.error["kind"] in {"not_found", "storage"}
