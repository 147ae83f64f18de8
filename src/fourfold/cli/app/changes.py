"""`fourfold app insert`: a batch of operations under one number."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import click

from fourfold.cli.app.arguments import app_of, graphs_command
from fourfold.cli.output import Output, counted
from fourfold.cli.space.arguments import json_argument
from fourfold.errors import InvalidInput
from fourfold.models.graphs import Graphs


@graphs_command("insert", writes=True)
@click.argument("app")
@click.argument("operations")
@click.option("--owner", type=click.IntRange(min=0), default=0, help="Who owns what is written.")
@click.option(
    "--trace", help="A name by which this batch can be found again; a new one if not given."
)
def insert(
    out: Output, graphs: Graphs, *, app: str, operations: str, owner: int, trace: str | None
) -> None:
    """Write OPERATIONS, a list as JSON, @FILE, or - for stdin: all of them, or none.

    Each is like {"op": "parent_create", "type_key": "note", "payload": {}}. Operations are
    parent, attr, edge or rating, then _create or _update. {"$op": 0} in a payload points at what
    operation 0 of the same batch makes.
    """
    app_id = app_of(graphs, app).app_id
    given = json_argument(operations, "OPERATIONS")
    ops = given.get("ops") if isinstance(given, dict) and "ops" in given else given
    ops = [ops] if isinstance(ops, dict) else ops
    if not isinstance(ops, list):
        raise InvalidInput("OPERATIONS must be a list of operations")
    envelope = {"trace_id": trace or uuid4().hex, "ops": [_full(op, app_id, owner) for op in ops]}
    done = graphs.apply(envelope)
    if out.as_json:
        out.document({**done._asdict(), "app_id": app_id, "trace_id": envelope["trace_id"]})
    else:
        ids = ", ".join(str(each) for each in done.object_ids)
        out.line(f"{counted(len(ops), 'operation')} under {done.global_seq}; objects: {ids}")


def _full(op: Any, app_id: int, owner: int) -> Any:
    """An operation with what the command line says once for all of them."""
    if not isinstance(op, dict):
        return op
    return {"app_id": app_id, "owner_identity": owner, "payload": {}, **op}
