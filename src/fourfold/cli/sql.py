"""`fourfold sql`: query the tables of one store or many in SQL."""

from __future__ import annotations

import base64
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from fourfold.cli.completion import complete_apps, complete_spaces
from fourfold.cli.options import command as fourfold_command
from fourfold.cli.options import root_argument
from fourfold.cli.output import Output, counted
from fourfold.cli.space.arguments import at_option, branch_option
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.pipeline.models import DEFAULT_MODEL, model_names

At = int | datetime | None


@fourfold_command("sql", rows=True)
@root_argument(required=False)
@click.argument("query")
@click.option(
    "--roots", metavar="PATTERN", help="Several stores, instead of ROOT: '/data/tenants/*'."
)
@click.option(
    "--model",
    type=click.Choice(model_names()),
    default=DEFAULT_MODEL,
    show_default=True,
    help="Model whose tables to query.",
)
@click.option("--space", metavar="DID", shell_complete=complete_spaces, help="Only this space.")
@click.option(
    "--objects",
    metavar="URL",
    help="Streams: published records; with ROOT, also unpublished ones.",
)
@click.option(
    "--app",
    metavar="APP",
    shell_complete=complete_apps,
    help="Graphs: only this app, as a slug or an id.",
)
@at_option("As of this seq or time.")
@branch_option("Branch of `state` and `history`; '*' for every branch.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--skip-bad", is_flag=True, help="Skip files that cannot be read, and list them.")
@click.option("--master", help="Spark master: local[*], spark://..., yarn, k8s://...")
@click.option("--remote", help="Spark Connect server, instead of --master: sc://HOST:PORT.")
def command(
    out: Output,
    root: Path | None,
    query: str,
    *,
    roots: str | None,
    model: str,
    space: str | None,
    objects: str | None,
    app: str | None,
    at: At,
    branch: str,
    limit: int,
    skip_bad: bool,
    master: str | None,
    remote: str | None,
) -> None:
    """Run QUERY, a SELECT over the tables of a store.

    Tables of documents: commits, revisions, facts, values, branches, snapshots, blobs, state,
    history, files. Tables of sessions (--model sessions): events, sessions, turns, steps, messages,
    evals, heads, edges, payloads, view, files. Tables of graphs (--model graphs): parents, attrs,
    edges, ratings, changes, current, apps, types, envelopes, logs, identities, peers, files. Tables
    of streams (--model streams): records, messages, streams, schemas, producers, state, files. With
    --objects, records, messages and state come from published objects.

    All tables show one state of every file, however long the query runs. Starting Spark takes some
    seconds.
    """
    if roots is not None:
        root = None
    if root is None and roots is None and objects is None:
        raise InvalidInput(
            "no store given",
            hint="Pass ROOT, --roots PATTERN or --objects URL, or set FOURFOLD_ROOT.",
        )
    answer = _ask(
        query,
        limit,
        master,
        remote,
        store=root,
        roots=roots,
        model=model,
        space=space,
        objects=objects,
        app=app,
        at=at,
        branch=branch,
        skip_bad=skip_bad,
    )
    if out.as_json:
        out.document(answer)
        return
    if out.as_rows:
        write = out.row_writer(answer["columns"])
        for row in answer["rows"]:
            write(dict(zip(answer["columns"], row, strict=True)))
        return
    out.table(answer["columns"], [[_cell(value) for value in row] for row in answer["rows"]])
    if answer["more"]:
        out.line(f"... only the first {counted(limit, 'row')}; --limit shows more")
    for entry in answer["skipped"]:
        out.line(f"skipped: {entry['problem']}")


def _ask(
    query: str, limit: int, master: str | None, remote: str | None, **options: Any
) -> dict[str, Any]:
    from fourfold.pipeline import session, sql  # noqa: PLC0415 - only now is Spark wanted
    from fourfold.pipeline.views import to_user_error  # noqa: PLC0415

    spark = session(master, remote, quiet=True)
    try:
        frame, views = sql(spark, query, **options)
        rows = frame.limit(limit + 1).collect()
    except FourfoldError:
        raise
    except Exception as error:
        raise to_user_error(error) from error
    finally:
        spark.stop()
    return {
        "columns": list(frame.columns),
        "rows": [[_plain(value) for value in row] for row in rows[:limit]],
        "more": len(rows) > limit,
        "skipped": [{"path": entry.path, "problem": entry.problem} for entry in views.cut.bad],
    }


def _plain(value: Any) -> Any:
    """Convert a value to one that JSON supports."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
