"""The tallies in the pipeline: a table of votes."""

from __future__ import annotations

from fourfold.kernel import load_queries
from fourfold.pipeline.models import PipelineModel
from fourfold.query.tables import Column, Kind, ModelTables, Table, tables_by_name
from tally.model import KIND
from tally.tally import SEQ


def tables():
    seq = Column("seq", "bigint", nullable=False, filtered=True)
    votes = Table(
        name="votes",
        model="tallies",
        description="Every vote.",
        columns=(
            Column("space", "string", nullable=False),
            seq,
            Column("choice", "string", filtered=True),
            Column("votes", "bigint"),
        ),
        query="votes",
        position="seq",
    )
    kind = Kind(
        KIND.profile,
        KIND.migrations,
        SEQ,
        lambda _snapshot, _time: 0,
        load_queries("tally", "pipeline.sql"),
    )
    return ModelTables(
        model="tallies",
        folder="tallies",
        suffix=".sqlite",
        kinds={KIND.profile.name: kind},
        tables=tables_by_name("tallies", [votes], None, {"choice": "What was voted for."}),
    )


MODEL = PipelineModel(name="tallies", tables=tables)
