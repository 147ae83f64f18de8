"""`fourfold stream touch`: wait until something changed that concerns certain rows."""

from __future__ import annotations

import math
from typing import Any, Final, cast, get_args

import click
import msgspec

from fourfold.cli.main import SectionedGroup
from fourfold.cli.output import Output
from fourfold.cli.stream.arguments import Place, streams_command
from fourfold.models.streams.touch import ActiveTemplate, Encoding, Entity, Key, Row, Rows, Template
from fourfold.models.streams.validation import format_offset

_ENCODINGS: Final = get_args(Encoding)


@click.command(
    "touch",
    cls=SectionedGroup,
    sections=(("Commands", ("show", "template", "wait")),),
    epilog="Every command takes --json and --traceback.",
)
def touch() -> None:
    """Wait for changes of a state stream, by what they concern.

    The stream is one of the profile state-protocol with touch: `fourfold stream profile set ROOT
    NAME state-protocol --touch`.
    """


@streams_command("show")
@click.argument("name")
def show(out: Output, streams: Place, *, name: str) -> None:
    """Print a cursor at the end of a stream, up to where changes were looked at, and templates."""
    found = streams.touches.meta(name)
    templates = streams.touches.templates(name)
    number = streams.info(name).incarnation_number
    processed = format_offset(found.processed_through + 1, number)
    if out.as_json:
        out.document(
            {
                "name": name,
                "cursor": found.cursor,
                "processed_offset": processed,
                "templates": [_document(each, number) for each in templates],
            }
        )
        return
    out.line(f"cursor: {found.cursor}")
    out.line(f"looked at up to {processed}")
    if templates:
        out.table(
            ("template", "entity", "fields", "state", "from"),
            [
                (
                    each.id,
                    each.entity,
                    ", ".join(f"{field}:{kind}" for field, kind in each.fields.items()),
                    each.state,
                    format_offset(each.active_from_offset, number),
                )
                for each in templates
            ],
        )


@streams_command("template", writes=True)
@click.argument("name")
@click.argument("entity")
@click.argument("fields", nargs=-1, required=True, metavar="FIELD[:ENCODING]...")
@click.option(
    "--ttl",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Retire it when nobody asked for it for so long.",
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
    """Let rows of ENTITY be waited for by the values of fields; prints the template's id.

    An ENCODING is string, integer, number or boolean; string if it is not given. A FIELD with a
    colon in it needs one.
    """
    wanted = Template(entity, _fields(fields), None if ttl is None else 1000 * ttl)
    (made,) = streams.touches.activate(name, [wanted])
    if out.as_json:
        number = streams.info(name).incarnation_number
        out.document({"name": name, "template": _document(made, number)})
    else:
        out.line(made.id)


@streams_command("wait")
@click.argument("name")
@click.option("--cursor", help="From where on; from now on if not given.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long at most; until interrupted if not given.",
)
@click.option("--entity", "entities", multiple=True, metavar="ENTITY", help="All of its rows.")
@click.option("--row", "rows", nargs=2, multiple=True, metavar="ENTITY KEY", help="One row.")
@click.option(
    "--rows",
    "alike",
    nargs=2,
    multiple=True,
    metavar="TEMPLATE VALUES",
    help="The rows with VALUES, a JSON object, in the fields of a template.",
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
    """Wait until one of these was changed, and print which, and a cursor to go on from.

    --entity, --row and --rows may be given several times. A wait whose time is over ends well, too.
    """
    keys: list[Key] = [Entity(each) for each in entities]
    keys += [Row(*each) for each in rows]
    keys += [Rows(template_id, _values(text)) for template_id, text in alike]
    if not keys:
        raise click.UsageError("Say what to wait for: --entity, --row or --rows.")
    told = streams.touches.wait(name, cursor, keys, math.inf if timeout is None else timeout)
    touched = [keys[number] for number in told.keys if number < len(keys)]
    if out.as_json:
        out.document(
            {
                "name": name,
                "touched": told.touched,
                "stale": told.stale,
                "cursor": told.cursor,
                "keys": [_asked(each) for each in touched],
            }
        )
        return
    if told.stale:
        out.line("everything may have changed: the cursor is too old, or of another stream")
    elif not touched:
        out.line("nothing changed")
    for each in touched:
        out.line(f"changed: {_in_words(each)}")
    out.line(f"cursor: {told.cursor}")


def _fields(given: tuple[str, ...]) -> dict[str, Encoding]:
    fields: dict[str, Encoding] = {}
    for text in given:
        name, colon, kind = text.rpartition(":")
        if colon and kind not in _ENCODINGS:
            raise click.UsageError(f"{kind!r} in {text!r} is none of {', '.join(_ENCODINGS)}.")
        field = name if colon else text
        if field in fields:
            raise click.UsageError(f"The field {field!r} is there twice.")
        fields[field] = cast("Encoding", kind if colon else "string")
    return fields


def _values(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise click.UsageError(f"The VALUES of --rows are not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise click.UsageError('The VALUES of --rows are a JSON object, as in {"list": "a"}.')
    return found


def _document(template: ActiveTemplate, number: int) -> dict[str, Any]:
    return {
        **template._asdict(),
        "active_from_offset": format_offset(template.active_from_offset, number),
    }


def _asked(key: Key) -> dict[str, Any]:
    if isinstance(key, Rows):
        return {"template": key.template_id, "values": dict(key.values)}
    return key._asdict()


def _in_words(key: Key) -> str:
    if isinstance(key, Rows):
        return f"{key.template_id} {msgspec.json.encode(key.values).decode()}"
    return " ".join(key)


for _each in (show, template, wait):
    touch.add_command(_each)
