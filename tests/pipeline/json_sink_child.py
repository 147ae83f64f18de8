"""Rows of sessions and graphs, and a process that writes them and is killed between two pages.

`json_sink_child.py ROOT MODEL CALL WHEN`: SIGKILL `before` or `after` the page number CALL.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from fourfold.client import RemoteGraphs, RemoteSessions
from fourfold.models.graphs import Graphs
from fourfold.models.sessions import Sessions
from fourfold.pipeline import json_sink
from fourfold.pipeline.source import FourfoldSource

REMOTE_CALLS = {
    "sessions": (RemoteSessions, "append_events"),
    "graphs": (RemoteGraphs, "apply_once"),
}
CALLS = {"sessions": (Sessions, "append_events"), "graphs": (Graphs, "apply_many")}


class Written:
    """A write as Spark runs it with some tasks, without a JVM."""

    def __init__(self, root, model, *tasks, batch=None, **options):
        self.batch = batch
        self.batches = [pa.RecordBatch.from_pylist(rows) for rows in tasks]
        name = "url" if str(root).startswith("http") else "root"
        source = FourfoldSource({name: str(root), "model": model, **options})
        schema = from_arrow_schema(self.batches[0].schema)
        make = source.writer if batch is None else source.streamWriter
        self.writer = make(schema, False)

    def stage(self):
        return [self.writer.write(iter([batch])) for batch in self.batches]

    def run(self):
        messages = self.stage()
        if self.batch is None:
            self.writer.commit(messages)
        else:
            self.writer.commit(messages, self.batch)


def events(*numbers, session="a"):
    return [
        {
            "session": session,
            "event": json.dumps({"type": "message/appended", "message": {"content": str(number)}}),
            "n": number,
        }
        for number in numbers
    ]


def envelopes(*numbers, **more):
    return [
        {
            "envelope": json.dumps(
                {
                    "trace_id": f"row {number}",
                    "ops": [
                        {
                            "op": "parent_create",
                            "app_id": 1,
                            "type_key": "note",
                            "owner_identity": 1,
                            "payload": {},
                            **more,
                        }
                    ],
                }
            ),
            "n": number,
        }
        for number in numbers
    ]


ROWS = {"sessions": events, "graphs": envelopes}


def main(root, model, call, when):
    json_sink.JSON_SINK_PAGE = 3
    owner, name = (REMOTE_CALLS if root.startswith("http") else CALLS)[model]
    original = getattr(owner, name)
    calls = []

    def dying(self, *arguments, **options):
        calls.append(1)
        last = len(calls) == int(call)
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(self, *arguments, **options)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)
    Written(root, model, ROWS[model](*range(10)), job="once", order="n").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
