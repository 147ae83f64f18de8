"""`fourfold stream schema` and `fourfold stream profile`: what a stream asks of its records."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from fourfold.cli.main import SectionedGroup
from fourfold.cli.output import Output
from fourfold.cli.stream.arguments import Place, streams_command
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.streams import rules
from fourfold.models.streams.schemas.registry import Registry, RoutingKey

_STDIN: Final = "-"


@click.command(
    "schema",
    cls=SectionedGroup,
    sections=(("Commands", ("show", "set", "key", "fields")),),
    epilog="Every command takes --json and --traceback.",
)
def schema() -> None:
    """What the messages of a stream look like, version by version.

    Appends are held against the newest version. Readers get every message in it: those that were
    stored before are brought into it by the lenses that came with the versions.
    """


@streams_command("show")
@click.argument("name")
@click.option("--version", type=click.IntRange(min=1), metavar="NUMBER", help="Only that schema.")
def show_schema(out: Output, streams: Place, *, name: str, version: int | None) -> None:
    """Print the schema of a stream, its versions, and from which offset on each holds."""
    registry = streams.schemas.get(name)
    if version is not None:
        _show_version(out, name, registry, version)
    elif out.as_json:
        out.document({"name": name, "registry": msgspec.to_builtins(registry)})
    else:
        _show_registry(out, name, registry)


@streams_command("set", writes=True)
@click.argument("name")
@click.argument("file")
@click.option(
    "--lens",
    metavar="FILE|-",
    help="What brings messages of the version before into it; every version but the first needs "
    "one.",
)
def set_schema(out: Output, streams: Place, *, name: str, file: str, lens: str | None) -> None:
    """Set the JSON schema in FILE, or on stdin for -, as the next version.

    The first one needs an empty stream. Each later one comes with a lens, of which it is proven
    that it brings every valid message into the new version. The same schema again changes nothing.
    """
    if file == lens == _STDIN:
        raise click.UsageError("FILE and --lens cannot both come from stdin.")
    change = rules.registry_change(
        _json_in(file, "a schema"), None if lens is None else _json_in(lens, "a lens")
    )
    before = streams.schemas.get(name)
    after = streams.schemas.put(name, change)
    version = after.current_version
    if out.as_json:
        _document_change(out, name, before, after)
    elif version == before.current_version:
        out.line(f"nothing changed: version {version} of {name} is this schema already")
    else:
        out.line(f"version {version} of {name} holds from {after.boundaries[-1].offset} on")


@streams_command("key", writes=True)
@click.argument("name")
@click.argument("pointer", required=False)
@click.option("--required", is_flag=True, help="Refuse messages that have none there.")
@click.option("--none", "nowhere", is_flag=True, help="Take it from the messages no longer.")
def set_key(
    out: Output,
    streams: Place,
    *,
    name: str,
    pointer: str | None,
    required: bool,
    nowhere: bool,
) -> None:
    """Take the routing key of each message from POINTER, a JSON pointer as in /customer/id.

    It holds for messages that come from now on.
    """
    if nowhere == (pointer is not None):
        raise click.UsageError("Give a POINTER, or --none, and not both.")
    if nowhere and required:
        raise click.UsageError("--required is about a POINTER, and there is none.")
    place = None if pointer is None else RoutingKey(pointer, required)
    before = streams.schemas.get(name)
    after = streams.schemas.put(name, rules.registry_change(routing_key=place))
    if out.as_json:
        _document_change(out, name, before, after)
    else:
        out.line(f"{name}: {_key_in_words(after)}")


@streams_command("fields", writes=True)
@click.argument("name")
@click.argument("fields", nargs=-1, metavar="FIELD...")
@click.option("--none", "nothing", is_flag=True, help="Declare none any longer.")
def set_fields(
    out: Output, streams: Place, *, name: str, fields: tuple[str, ...], nothing: bool
) -> None:
    """Declare the fields that messages are found by, once they are in published segments."""
    if nothing == bool(fields):
        raise click.UsageError("Give FIELDs, or --none, and not both.")
    before = streams.schemas.get(name)
    change = rules.registry_change(search=None if nothing else fields)
    after = streams.schemas.put(name, change)
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
    """What a stream is used as: generic, state-protocol, evlog."""


@streams_command("show")
@click.argument("name")
def show_profile(out: Output, streams: Place, *, name: str) -> None:
    """Print what a stream is used as."""
    _show_profile(out, name, streams.profiles.get(name).to_json())


@streams_command("set", writes=True)
@click.argument("name")
@click.argument("kind")
@click.option("--touch/--no-touch", default=None, help="Of state-protocol: let changes be awaited.")
@click.option(
    "--redact",
    multiple=True,
    metavar="FIELD",
    help="Of evlog: keep its value out, too.",
)
@click.option(
    "--routing-key",
    multiple=True,
    metavar="FIELD",
    help="Of evlog: find events by it, or by the next that is given where it is missing.",
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
    """Use a stream as KIND: generic, state-protocol or evlog.

    What is not said is as it is by default, whatever the profile was before.
    """
    given = rules.profile(kind, touch, redact or None, routing_key or None)
    _show_profile(out, name, streams.profiles.put(name, given).to_json())


def _json_in(file: str, what: str) -> Any:
    """The JSON in a file, or on stdin."""
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
        raise InvalidInput(f"{where} is not JSON: {error}", hint=f"Give {what} as JSON.") from None


def _document_change(out: Output, name: str, before: Registry, after: Registry) -> None:
    document = {"name": name, "changed": after != before, "registry": msgspec.to_builtins(after)}
    out.document(document)


def _show_version(out: Output, name: str, registry: Registry, version: int) -> None:
    found = next((each for each in registry.boundaries if each.version == version), None)
    if found is None:
        there = ", ".join(registry.schemas)
        raise NotFound(
            f"the stream {name!r} has no version {version} of its schema",
            hint=f"Its versions are {there}." if there else "It has no schema.",
        )
    schema = registry.schemas[str(version)]
    if out.as_json:
        lens = registry.lenses.get(str(version - 1))
        document = {"version": version, "offset": found.offset, "schema": schema, "lens": lens}
        out.document({"name": name, **document})
    else:
        out.text(_pretty(schema) + "\n")


def _show_registry(out: Output, name: str, registry: Registry) -> None:
    if registry.boundaries:
        rows = [(each.version, each.offset) for each in registry.boundaries]
        out.table(("version", "holds from"), rows)
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
        return "no routing key is taken from the messages"
    needed = "; every message must have one" if place.required else ""
    return f"the routing key of a message is what stands at {place.json_pointer}{needed}"


def _search_in_words(registry: Registry) -> str:
    if registry.search is None or not registry.search.fields:
        return "messages are found by no fields"
    return f"messages are found by {', '.join(registry.search.fields)}"


def _show_profile(out: Output, name: str, plain: dict[str, Any]) -> None:
    if out.as_json:
        out.document({"name": name, "profile": plain})
        return
    out.line(f"{name} is used as {plain['kind']}")
    if "touch" in plain:
        can = "can" if plain["touch"].get("enabled") else "cannot"
        out.line(f"its changes {can} be waited for")
    if plain.get("redact"):
        out.line(f"kept out beside what is always secret: {', '.join(plain['redact'])}")
    if plain.get("routingKey"):
        out.line(f"events are found by {', '.join(plain['routingKey'])}")


def _pretty(value: Any) -> str:
    """JSON for people, and for programs that read it from a pipe: no character of it can move the
    cursor of a terminal.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


for _each in (show_schema, set_schema, set_key, set_fields):
    schema.add_command(_each)
for _each in (show_profile, set_profile):
    profile.add_command(_each)
