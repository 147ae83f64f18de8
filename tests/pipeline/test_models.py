"""The registry of models: every part loads, and jobs offer exactly the models that have theirs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from fourfold.errors import FourfoldError, NotFound
from fourfold.models import model as registry
from fourfold.pipeline import jobs, models
from fourfold.pipeline import source as source_module
from fourfold.pipeline.gc_tasks import Collector
from fourfold.pipeline.jobs.load import Loader
from fourfold.pipeline.jobs.materialize import Materializer
from fourfold.pipeline.jobs.stats import Statistics
from fourfold.pipeline.sink import Sink
from fourfold.pipeline.source import FourfoldSource
from fourfold.pipeline.spark import unwrap_error
from fourfold.pipeline.verify_tasks import Verifier
from fourfold.query.tables import ModelTables

PARTS = {
    "tables": ModelTables,
    "sink": Sink,
    "materialize": Materializer,
    "load": Loader,
    "verify": Verifier,
    "gc": Collector,
    "stats": Statistics,
}


@pytest.mark.parametrize("model", models.list_models(), ids=lambda model: model.name)
def test_every_registered_part_loads(model):
    for part, kind in PARTS.items():
        load = getattr(model, part)
        if load is not None:
            assert isinstance(load(), kind), part
    assert model.tables().model == model.name


def test_registry_names_the_module_of_every_model():
    names = [model.name for model in registry.all_models()]
    assert [model.name for model in models.list_models()] == names
    assert [models.get_model(name).name for name in names] == names
    assert names[0] == models.DEFAULT_MODEL


@pytest.mark.parametrize("part", ["materialize", "load", "verify", "gc", "stats"])
def test_job_offers_the_models_that_have_its_part(part):
    [option] = [option for option in jobs.get_job(part).options if option.name == "model"]
    assert option.choices == models.model_names(part)
    assert models.DEFAULT_MODEL in option.choices


def test_missing_part_raises_not_found():
    with pytest.raises(NotFound, match="job 'gc' does not support the model 'graphs'") as caught:
        models.get_collector("graphs")
    assert caught.value.hint == "Models: documents, sessions."
    with pytest.raises(NotFound, match="unknown model 'tables'"):
        models.model_tables("tables")


def test_model_without_sink_refuses_writes(monkeypatch):
    without = replace(models.get_model("graphs"), sink=None)
    monkeypatch.setattr(source_module, "get_model", lambda _: without)
    source = FourfoldSource({"root": "/anywhere", "model": "graphs"})
    for write in (source.writer, source.streamWriter):
        with pytest.raises(Exception, match="has no sink") as caught:
            write(None, False)
        error = unwrap_error(caught.value)
        assert isinstance(error, FourfoldError)
        assert (error.kind, error.hint) == (
            "not_found",
            f"Write {' or '.join(models.model_names('sink'))}.",
        )


def test_jobs_of_models_are_registered():
    assert set(jobs.job_names()) == set(jobs.all_jobs())
    assert {name: job.name for name, job in jobs.all_jobs().items()} == dict(
        zip(jobs.job_names(), jobs.job_names(), strict=True)
    )


def test_job_is_imported_without_the_others():
    code = (
        "import sys\n"
        "from fourfold.pipeline import jobs\n"
        "jobs.get_job('gc')\n"
        "print(*(name for name in sys.modules if name.startswith('fourfold.pipeline.jobs.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert loaded == {"gc", "job", "runner", "runs"}
