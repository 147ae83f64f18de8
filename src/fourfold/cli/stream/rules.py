"""`fourfold stream schema` and `fourfold stream profile`: rules for the records of a stream."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from fourfold.cli.main import SectionedGroup
from fourfold.cli.output import Output
from fourfold.cli.stream.arguments import Place, name_argument, streams_command
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.streams import rule_changes
from fourfold.models.streams.schemas.registry import Registry, RoutingKey

_STDIN: Final = "-"


@click.command(
    "schema",
    cls=SectionedGroup,
    sections=(("Commands", ("show", "set", "key", "fields", "search")),),
    epilog="Every command takes --json and --traceback.",
)
def schema() -> None:
    """Schemas of the messages of a stream, by version.

    Appends are validated against the newest version. Readers get every message in the newest
    version: lenses convert older messages.
    """


@streams_command("show")
@name_argument
@click.option(
    "--version", type=click.IntRange(min=1), metavar="NUMBER", help="Print only this version."
)
def show_schema(out: Output, streams: Place, *, name: str, version: int | None) -> None:
    """Print the schema of a stream, its versions, and the first offset of each."""
    registry = streams.schemas.get(name)
    if version is not None:
        _show_version(out, name, registry, version)
    elif out.as_json:
        out.document({"name": name, "registry": msgspec.to_builtins(registry)})
    else:
        _show_registry(out, name, registry)


@streams_command("set", writes=True)
@name_argument
@click.argument("file")
@click.option(
    "--lens",
    metavar="FILE|-",
    help="Lens that converts messages of the previous version; required except for the first.",
)
def set_schema(out: Output, streams: Place, *, name: str, file: str, lens: str | None) -> None:
    """Set the JSON schema in FILE, or on stdin for -, as the next version.

    The first version requires an empty stream. Each later one requires a lens, which must provably
    convert every valid message into the new version. Setting the current schema again changes
    nothing.
    """
    if file == lens == _STDIN:
        raise click.UsageError("FILE and --lens cannot both come from stdin.")
    change = rule_changes.registry_change(
        _json_in(file, "a schema"), None if lens is None else _json_in(lens, "a lens")
    )
    before = streams.schemas.get(name)
    after = streams.schemas.put(name, change)
    version = after.current_version
    if out.as_json:
        _document_change(out, name, before, after)
    elif version == before.current_version:
        out.line(f"nothing changed: version {version} of {name} already is this schema")
    else:
        out.line(f"version {version} of {name} applies from {after.boundaries[-1].offset} on")


@streams_command("key", writes=True)
@name_argument
@click.argument("pointer", required=False)
@click.option("--required", is_flag=True, help="Refuse messages without a value there.")
@click.option("--none", "nowhere", is_flag=True, help="Stop reading the routing key from messages.")
def set_key(
    out: Output,
    streams: Place,
    *,
    name: str,
    pointer: str | None,
    required: bool,
    nowhere: bool,
) -> None:
    """Read the routing key of each message from POINTER, a JSON pointer such as /customer/id.

    Applies to new messages.
    """
    if nowhere == (pointer is not None):
        raise click.UsageError("Pass either POINTER or --none.")
    if nowhere and required:
        raise click.UsageError("--required requires POINTER.")
    place = None if pointer is None else RoutingKey(pointer, required)
    before = streams.schemas.get(name)
    after = streams.schemas.put(name, rule_changes.registry_change(routing_key=place))
    if out.as_json:
        _document_change(out, name, before, after)
    else:
        out.line(f"{name}: {_key_in_words(after)}")


@streams_command("fields", writes=True)
@name_argument
@click.argument("fields", nargs=-1, metavar="FIELD...")
@click.option("--none", "nothing", is_flag=True, help="Remove all declared fields.")
def set_fields(
    out: Output, streams: Place, *, name: str, fields: tuple[str, ...], nothing: bool
) -> None:
    """Declare the fields by which published messages can be found."""
    if nothing == bool(fields):
        raise click.UsageError("Pass either FIELDs or --none.")
    _declare(out, streams, name, {"fields": list(fields)})


@streams_command("search", writes=True)
@name_argument
@click.option("--text", multiple=True, metavar="FIELD", help="Field with words to search for.")
@click.option("--column", multiple=True, metavar="FIELD", help="Field to filter and group by.")
@click.option("--timestamp", metavar="FIELD", help="Field with the time of a message.")
@click.option(
    "--rollup",
    multiple=True,
    metavar="JSON",
    help="Counts and sums to compute ahead: an object with every, by and measures.",
)
@click.option("--none", "nothing", is_flag=True, help="Declare nothing; FIELDs of `fields` stay.")
def set_search(
    out: Output,
    streams: Place,
    *,
    name: str,
    text: tuple[str, ...],
    column: tuple[str, ...],
    timestamp: str | None,
    rollup: tuple[str, ...],
    nothing: bool,
) -> None:
    """Declare what `stream search` and `stream stats --by` use, replacing the last declaration."""
    if nothing == bool(text or column or timestamp or rollup):
        raise click.UsageError("Pass either --none, or what to declare.")
    declared = {
        "text": list(text),
        "columns": list(column),
        "timestamp": timestamp,
        "rollups": [_parse_rollup(item) for item in rollup],
    }
    _declare(out, streams, name, declared)


def _parse_rollup(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"--rollup: must be JSON: {error}, got {text!r:.80}") from None


def _declare(out: Output, streams: Place, name: str, part: dict[str, Any]) -> None:
    """Replace a part of the search declaration of a stream."""
    before = streams.schemas.get(name)
    search = {} if before.search is None else msgspec.to_builtins(before.search)
    search = {key: value for key, value in {**search, **part}.items() if value}
    after = streams.schemas.put(name, rule_changes.registry_change(search=search or None))
    if out.as_json:
        _document_change(out, name, before, after)
    else:
        out.line(f"{name}: {_search_in_words(after)}")


@click.command(
    "profile",
    cls=SectionedGroup,
    sections=(("Commands", ("show", "set")),),
    epilog="Every command takes --json and --traceback.",
)
def profile() -> None:
    """Profiles of a stream: generic, state-protocol, evlog."""


@streams_command("show")
@name_argument
def show_profile(out: Output, streams: Place, *, name: str) -> None:
    """Print the profile of a stream."""
    _show_profile(out, name, streams.profiles.get(name).to_json())


@streams_command("set", writes=True)
@name_argument
@click.argument("kind")
@click.option(
    "--touch/--no-touch", default=None, help="state-protocol: let clients wait for changes."
)
@click.option(
    "--redact",
    multiple=True,
    metavar="FIELD",
    help="evlog: redact this field, too; repeatable.",
)
@click.option(
    "--routing-key",
    multiple=True,
    metavar="FIELD",
    help="evlog: field to find events by; repeatable, the first present field counts.",
)
def set_profile(
    out: Output,
    streams: Place,
    *,
    name: str,
    kind: str,
    touch: bool | None,
    redact: tuple[str, ...],
    routing_key: tuple[str, ...],
) -> None:
    """Set the profile of a stream to KIND: generic, state-protocol or evlog.

    Options that you omit get their defaults, whatever the profile was before.
    """
    options = rule_changes.profile(kind, touch, redact or None, routing_key or None)
    _show_profile(out, name, streams.profiles.put(name, options).to_json())


def _json_in(file: str, what: str) -> Any:
    """Read JSON from a file, or from stdin."""
    try:
        data = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{file}: there is no such file") from None
    except IsADirectoryError:
        raise InvalidInput(f"{file} is a folder, not a file") from None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        where = "stdin" if file == _STDIN else file
        raise InvalidInput(f"{where} is not JSON: {error}", hint=f"Pass {what} as JSON.") from None


def _document_change(out: Output, name: str, before: Registry, after: Registry) -> None:
    document = {"name": name, "changed": after != before, "registry": msgspec.to_builtins(after)}
    out.document(document)


def _show_version(out: Output, name: str, registry: Registry, version: int) -> None:
    match = next(
        (boundary for boundary in registry.boundaries if boundary.version == version), None
    )
    if match is None:
        there = ", ".join(registry.schemas)
        raise NotFound(
            f"the stream {name!r} has no version {version} of its schema",
            hint=f"Its versions are {there}." if there else "It has no schema.",
        )
    schema = registry.schemas[str(version)]
    if out.as_json:
        lens = registry.lenses.get(str(version - 1))
        document = {"version": version, "offset": match.offset, "schema": schema, "lens": lens}
        out.document({"name": name, **document})
    else:
        out.text(_pretty(schema) + "\n")


def _show_registry(out: Output, name: str, registry: Registry) -> None:
    if registry.boundaries:
        rows = [(boundary.version, boundary.offset) for boundary in registry.boundaries]
        out.table(("version", "applies from"), rows)
    else:
        out.line(f"{name} has no schema")
    if registry.routing_key is not None:
        out.line(_key_in_words(registry))
    if registry.search is not None:
        out.line(_search_in_words(registry))
    if registry.schema is not None:
        out.text(_pretty(registry.schema) + "\n")


def _key_in_words(registry: Registry) -> str:
    place = registry.routing_key
    if place is None:
        return "no routing key is read from the messages"
    needed = "; every message must have one" if place.required else ""
    return f"the routing key of a message is the value at {place.json_pointer}{needed}"


def _search_in_words(registry: Registry) -> str:
    search = registry.search
    if search is None:
        return "messages are found by no fields"
    parts = [f"messages are found by {', '.join(search.fields) or 'no fields'}"]
    if search.text:
        parts.append(f"words are in {', '.join(search.text)}")
    if search.columns:
        parts.append(f"columns are {', '.join(search.columns)}")
    if search.timestamp is not None:
        parts.append(f"the time is {search.timestamp}")
    parts += [
        f"counted every {rollup.every} by {', '.join(rollup.by) or 'nothing'}"
        for rollup in search.rollups
    ]
    return "; ".join(parts)


def _show_profile(out: Output, name: str, plain: dict[str, Any]) -> None:
    if out.as_json:
        out.document({"name": name, "profile": plain})
        return
    out.line(f"{name} has the profile {plain['kind']}")
    if "touch" in plain:
        can = "can" if plain["touch"].get("enabled") else "cannot"
        out.line(f"its changes {can} be waited for")
    if plain.get("redact"):
        out.line(f"redacted in addition to the defaults: {', '.join(plain['redact'])}")
    if plain.get("routingKey"):
        out.line(f"events are found by {', '.join(plain['routingKey'])}")


def _pretty(value: Any) -> str:
    """Format JSON over several lines, without characters that could move a terminal's cursor."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


for _command in (show_schema, set_schema, set_key, set_fields, set_search):
    schema.add_command(_command)
for _command in (show_profile, set_profile):
    profile.add_command(_command)
