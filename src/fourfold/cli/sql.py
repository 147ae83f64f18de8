"""`fourfold sql`: query the tables of one store or many in SQL, in SQLite or in Spark."""

from __future__ import annotations

import base64
import os
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import click

from fourfold.cli import sql_shell
from fourfold.cli.completion import complete_apps, complete_spaces
from fourfold.cli.history_options import PointOfStore, branch_option
from fourfold.cli.options import command as fourfold_command
from fourfold.cli.options import is_url, open_or_connect, root_argument
from fourfold.cli.output import Output, counted
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.models.model import all_models
from fourfold.sql_result import Result

At = int | datetime | str | None

# Not from the pipeline: importing it takes a tenth of the time of a small query.
_MODELS: Final = tuple(model.name for model in all_models() if model.pipeline is not None)


@fourfold_command("sql", rows=True)
@root_argument(required=False, url=True)
@click.argument("query", required=False)
@click.option(
    "--key",
    envvar="FOURFOLD_KEY",
    help="Key of the server; prefer FOURFOLD_KEY, which other users cannot see.",
)
@click.option("--tables", "list_tables", is_flag=True, help="List the tables and their columns.")
@click.option(
    "--model",
    type=click.Choice(_MODELS),
    default=_MODELS[0],
    show_default=True,
    help="Model whose tables need no prefix: `state` is documents_state.",
)
@click.option("--space", metavar="DID", shell_complete=complete_spaces, help="Only this space.")
@click.option(
    "--at",
    type=PointOfStore(),
    help="As of this time or restore point, or of this seq if the query reads one log.",
)
@branch_option("Branch of `state` and `history`; '*' for every branch.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop the query after this time.",
)
@click.option(
    "--parquet",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the rows to a Parquet file.",
)
@click.option(
    "--engine",
    type=click.Choice(("sqlite", "spark")),
    help="SQLite in this process, or Spark. Default: sqlite, unless an option requires Spark.",
)
@click.option(
    "--roots",
    metavar="PATTERN",
    help="Spark: several stores ('/data/tenants/*'), or archives by URL, instead of ROOT.",
)
@click.option(
    "--objects",
    metavar="URL",
    help="Spark: published records of streams, without their store.",
)
@click.option(
    "--app",
    metavar="APP",
    shell_complete=complete_apps,
    help="Spark: only this app of graphs, as a slug or an id.",
)
@click.option(
    "--skip-bad", is_flag=True, help="Spark: skip files that cannot be read, and list them."
)
@click.option("--master", help="Spark master: local[*], spark://..., yarn, k8s://...")
@click.option("--remote", help="Spark Connect server, instead of --master: sc://HOST:PORT.")
def command(
    out: Output,
    root: str | None,
    query: str | None,
    *,
    key: str | None,
    list_tables: bool,
    model: str,
    space: str | None,
    at: At,
    branch: str,
    limit: int,
    timeout_s: float,
    parquet: Path | None,
    engine: str | None,
    **spark: Any,
) -> None:
    """Run QUERY, a SELECT over the tables of a store.

    Every log and every folded state of all models is a table with the model as prefix, such as
    documents_state and sessions_messages; --tables lists them. All tables show one state of every
    file, however long the query runs. Without QUERY, a shell reads queries that end with `;`.

    Queries run in SQLite, in this process; if ROOT is the URL of a server, on the server. With
    --engine spark, --roots, --objects, --app, --skip-bad, --master or --remote they run in Spark,
    in its dialect; starting it takes some seconds.
    """
    if list_tables:
        print_tables(out)
        return
    root, query = _root_and_query(root, query)
    needs_spark = any(spark.values())
    if engine == "sqlite" and needs_spark:
        raise InvalidInput(
            "--roots, --objects, --app, --skip-bad, --master and --remote require Spark",
            hint="Omit --engine sqlite.",
        )
    if root is None and not spark["roots"] and not spark["objects"]:
        raise InvalidInput(
            "no store given",
            hint="Pass ROOT, --roots PATTERN or --objects URL, or set FOURFOLD_ROOT.",
        )
    if engine == "spark" or needs_spark:
        if query is None or parquet is not None:
            raise InvalidInput("Spark needs a QUERY, and writes no --parquet")
        options: dict[str, Any] = {"model": model, "space": space, "at": at, "branch": branch}
        store_of = _folder_for_spark(root, spark["roots"])
        _print_answer(out, _ask_spark(query, limit, store=store_of, **options, **spark), limit)
        return
    assert root is not None
    limits: dict[str, Any] = {"timeout_s": timeout_s, "max_rows": limit}
    with open_or_connect(root, key) as store:

        def run(text: str) -> Result:
            result: Result = store.sql(
                text, at=at, branch=branch, model=model, space=space, **limits
            )
            return result

        if query is None:
            sql_shell.run_shell(out, run, lambda result: print_result(out, result))
        elif parquet is not None:
            _write_parquet(out, run(query), parquet)
        else:
            print_result(out, run(query))


def _folder_for_spark(root: str | None, roots: str | None) -> Path | None:
    """Return the folder that Spark reads, or None if it reads several, or objects."""
    if root is not None and is_url(root):
        raise InvalidInput(
            f"Spark reads folders and objects, got {root}",
            hint="Omit the options of Spark, or run the command where the folder is.",
        )
    return None if roots is not None or root is None else Path(root)


def _root_and_query(root: str | None, query: str | None) -> tuple[str | None, str | None]:
    """Return ROOT and QUERY: a single argument that is neither folder nor URL is the query."""
    if query is None and root is not None and not is_url(root) and not Path(root).is_dir():
        return os.environ.get("FOURFOLD_ROOT"), root
    return root, query


def print_result(out: Output, result: Result) -> None:
    """Print the rows of a query in the format that was requested."""
    answer = {
        "columns": list(result.columns),
        "rows": [[_plain(value) for value in row] for row in result],
        "more": result.truncated,
        "warnings": list(result.warnings),
        "cut": result.cut,
        "skipped": [],
    }
    _print_answer(out, answer, len(result))


def _print_answer(out: Output, answer: dict[str, Any], limit: int) -> None:
    if out.as_json:
        out.document(answer)
        return
    if out.as_rows:
        write = out.row_writer(answer["columns"])
        for row in answer["rows"]:
            write(dict(zip(answer["columns"], row, strict=True)))
        for warning in answer["warnings"]:
            out.warning(warning)
        return
    out.table(answer["columns"], [[_cell(value) for value in row] for row in answer["rows"]])
    if answer["more"] and not answer["warnings"]:
        out.line(f"... only the first {counted(limit, 'row')}; --limit shows more")
    for warning in answer["warnings"]:
        out.line(f"warning: {warning}")
    for entry in answer["skipped"]:
        out.line(f"skipped: {entry['problem']}")


def _write_parquet(out: Output, result: Result, path: Path) -> None:
    result.write_parquet(path)
    report = {
        "path": str(path),
        "rows": len(result),
        "more": result.truncated,
        "warnings": list(result.warnings),
        "cut": result.cut,
    }
    if out.as_json:
        out.document(report)
    else:
        out.line(f"{counted(len(result), 'row')} in {path}")
        for warning in result.warnings:
            out.line(f"warning: {warning}")
        if result.truncated and not result.warnings:
            out.line(f"... only the first {counted(len(result), 'row')}; --limit writes more")


def print_tables(out: Output) -> None:
    """Print the registry of tables: columns, types and keys."""
    from fourfold.query.engine import all_tables  # noqa: PLC0415 - it imports every model

    tables = [
        {
            "table": f"{model}_{table.name}",
            "description": table.description,
            "key": list(table.identity),
            "columns": [
                {
                    "name": column.name,
                    "type": column.type,
                    "hidden": column.hidden,
                    "description": column.description,
                }
                for column in table.columns
            ],
        }
        for model, registry in all_tables().items()
        for table in registry.public()
    ]
    out.rows(
        {"tables": tables},
        "tables",
        {
            "table": "table",
            "columns": lambda table: ", ".join(
                f"{column['name']} {column['type']}"
                for column in table["columns"]
                if not column["hidden"]
            ),
        },
        fields=["table", "description", "key", "columns"],
    )


def _ask_spark(
    query: str, limit: int, master: str | None, remote: str | None, **options: Any
) -> dict[str, Any]:
    from fourfold.pipeline import sql  # noqa: PLC0415 - only now is Spark wanted
    from fourfold.pipeline.spark import start_session  # noqa: PLC0415
    from fourfold.pipeline.views import to_user_error  # noqa: PLC0415

    spark = start_session(master, remote, quiet=True, brief=True)
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
        "warnings": [],
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
