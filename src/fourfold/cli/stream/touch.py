"""`fourfold stream touch`: wait for changes that affect certain rows."""

from __future__ import annotations

import math
from typing import Any, Final, cast, get_args

import click
import msgspec

from fourfold.cli.main import SectionedGroup
from fourfold.cli.output import Output
from fourfold.cli.stream.arguments import Place, name_argument, streams_command
from fourfold.models.streams.touch import (
    ActiveTemplate,
    Encoding,
    EntityKey,
    Key,
    RowKey,
    Template,
    TemplateKey,
)
from fourfold.models.streams.validation import format_offset

_ENCODINGS: Final = get_args(Encoding)


@click.command(
    "touch",
    cls=SectionedGroup,
    sections=(("Commands", ("show", "template", "wait")),),
    epilog="Every command takes --json and --traceback.",
)
def touch() -> None:
    """Wait for changes of a state stream that affect certain rows.

    The stream needs the profile state-protocol with touch: `fourfold stream profile set ROOT NAME
    state-protocol --touch`.
    """


@streams_command("show", rows=True)
@name_argument
def show(out: Output, streams: Place, *, name: str) -> None:
    """Print a cursor at the end of a stream, the processed offset, and the templates."""
    meta = streams.touches.meta(name)
    templates = streams.touches.templates(name)
    number = streams.info(name).incarnation_number
    processed = format_offset(meta.processed_through + 1, number)
    if out.format == "text":
        out.line(f"cursor: {meta.cursor}")
        out.line(f"processed up to {processed}")
    out.rows(
        {
            "name": name,
            "cursor": meta.cursor,
            "processed_offset": processed,
            "templates": [_document(active, number) for active in templates],
        },
        "templates",
        {
            "template": "id",
            "entity": "entity",
            "fields": lambda row: ", ".join(f"{key}:{kind}" for key, kind in row["fields"].items()),
            "state": "state",
            "from": "active_from_offset",
        },
        fields=ActiveTemplate._fields,
        empty="no templates",
    )


@streams_command("template", writes=True)
@name_argument
@click.argument("entity")
@click.argument("fields", nargs=-1, required=True, metavar="FIELD[:ENCODING]...")
@click.option(
    "--ttl",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Retire the template after this time without use.",
)
def template(
    out: Output,
    streams: Place,
    *,
    name: str,
    entity: str,
    fields: tuple[str, ...],
    ttl: int | None,
) -> None:
    """Let clients wait for rows of ENTITY by the values of fields; prints the template's id.

    ENCODING is string, integer, number or boolean; default: string. A FIELD that contains a colon
    requires one.
    """
    options = Template(entity, _fields(fields), None if ttl is None else 1000 * ttl)
    (active,) = streams.touches.activate(name, [options])
    if out.as_json:
        number = streams.info(name).incarnation_number
        out.document({"name": name, "template": _document(active, number)})
    else:
        out.line(active.id)


@streams_command("wait")
@name_argument
@click.option("--cursor", help="Start after this cursor; default: now.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Maximum time to wait; default: until interrupted.",
)
@click.option(
    "--entity",
    "entities",
    multiple=True,
    metavar="ENTITY",
    help="Wait for all rows of this entity; repeatable.",
)
@click.option(
    "--row",
    "rows",
    nargs=2,
    multiple=True,
    metavar="ENTITY KEY",
    help="Wait for one row; repeatable.",
)
@click.option(
    "--rows",
    "alike",
    nargs=2,
    multiple=True,
    metavar="TEMPLATE VALUES",
    help="Wait for rows with VALUES, a JSON object, in the fields of a template; repeatable.",
)
def wait(
    out: Output,
    streams: Place,
    *,
    name: str,
    cursor: str | None,
    timeout: float | None,
    entities: tuple[str, ...],
    rows: tuple[tuple[str, str], ...],
    alike: tuple[tuple[str, str], ...],
) -> None:
    """Wait until one of the rows changes; print which, and a cursor to continue from.

    A timeout is not an error.
    """
    keys: list[Key] = [EntityKey(entity) for entity in entities]
    keys += [RowKey(*row) for row in rows]
    keys += [TemplateKey(template_id, _values(text)) for template_id, text in alike]
    if not keys:
        raise click.UsageError("Pass --entity, --row or --rows.")
    result = streams.touches.wait(name, cursor, keys, math.inf if timeout is None else timeout)
    touched = [keys[number] for number in result.keys if number < len(keys)]
    if out.as_json:
        out.document(
            {
                "name": name,
                "touched": result.touched,
                "stale": result.stale,
                "cursor": result.cursor,
                "keys": [_key_json(key) for key in touched],
            }
        )
        return
    if result.stale:
        out.line("everything may have changed: the cursor is too old, or belongs to another stream")
    elif not touched:
        out.line("nothing changed")
    for key in touched:
        out.line(f"changed: {_in_words(key)}")
    out.line(f"cursor: {result.cursor}")


def _fields(texts: tuple[str, ...]) -> dict[str, Encoding]:
    fields: dict[str, Encoding] = {}
    for text in texts:
        name, colon, kind = text.rpartition(":")
        if colon and kind not in _ENCODINGS:
            raise click.UsageError(f"{kind!r} in {text!r} is not one of {', '.join(_ENCODINGS)}.")
        field = name if colon else text
        if field in fields:
            raise click.UsageError(f"Duplicate field {field!r}.")
        fields[field] = cast("Encoding", kind if colon else "string")
    return fields


def _values(text: str) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise click.UsageError(f"The VALUES of --rows are not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise click.UsageError('The VALUES of --rows must be a JSON object, as in {"list": "a"}.')
    return values


def _document(template: ActiveTemplate, number: int) -> dict[str, Any]:
    return {
        **template._asdict(),
        "active_from_offset": format_offset(template.active_from_offset, number),
    }


def _key_json(key: Key) -> dict[str, Any]:
    if isinstance(key, TemplateKey):
        return {"template": key.template_id, "values": dict(key.values)}
    return key._asdict()


def _in_words(key: Key) -> str:
    if isinstance(key, TemplateKey):
        return f"{key.template_id} {msgspec.json.encode(key.values).decode()}"
    return " ".join(key)


for _command in (show, template, wait):
    touch.add_command(_command)
