"""Settings in layers, default < file < environment < argument or flag, each with its source.

The section classes in `sections` are the one table of settings. A field is a setting: its type,
range and choices are checked, its default comes from `limits`, its sentence is shown by `fourfold
config` and written into a fresh `fourfold.toml`. Nothing is guessed: a key or a `FOURFOLD_...`
variable that no setting owns is an error that names the nearest one that exists, and a value that
does not fit is refused together with its source. The only I/O is reading the file; the environment
is a parameter.

The table of settings: each section is a class, each field of it a setting.

The type says what is accepted, the default comes from `limits`, and the sentence is what
`fourfold config` shows and a fresh `fourfold.toml` has beside it.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from fourfold import limits
from fourfold.errors import FutureFormat, InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Bytes = Annotated[int, Meta(ge=limits.KIB, le=1024 * limits.GIB)]
_Seconds = Annotated[float, Meta(ge=0.001, le=86_400.0)]


def _says(description: str, unit: str = "") -> Meta:
    return Meta(description=description, extra={"unit": unit})


class Kernel(Struct, frozen=True):
    readers_max: Annotated[
        int,
        Meta(ge=1, le=1_024),
        _says("Read-only connections that one database keeps at most.", "connections"),
    ] = limits.READERS_MAX
    busy_timeout_ms: Annotated[
        int,
        Meta(ge=0, le=3_600_000),
        _says("How long a connection waits for another one's lock.", "milliseconds"),
    ] = limits.BUSY_TIMEOUT_MS
    transaction_deadline_s: Annotated[
        _Seconds, _says("Time that one transaction may take before it is undone.", "seconds")
    ] = limits.TRANSACTION_DEADLINE_S
    slow_transaction_ms: Annotated[
        int,
        Meta(ge=0, le=3_600_000),
        _says("A transaction that takes longer enters the slow log.", "milliseconds"),
    ] = limits.SLOW_TRANSACTION_MS
    group_requests_max: Annotated[
        _Count, _says("Requests that share one transaction and one fsync at most.", "requests")
    ] = limits.GROUP_REQUESTS_MAX
    group_bytes_max: Annotated[
        _Bytes, _says("Payload of the requests that share one transaction at most.", "bytes")
    ] = limits.GROUP_BYTES_MAX
    queue_requests_max: Annotated[
        _Count, _says("Requests that may wait; the next one is refused as overloaded.", "requests")
    ] = limits.QUEUE_REQUESTS_MAX
    queue_bytes_max: Annotated[
        _Bytes, _says("Payload that may wait; more is refused as overloaded.", "bytes")
    ] = limits.QUEUE_BYTES_MAX
    commit_placement: Annotated[
        Literal["auto", "inline", "thread"],
        _says(
            "Where asyncio callers' commits run: on the event loop, in a thread, "
            "or wherever the measured commit time fits best."
        ),
    ] = "auto"
    checkpoint_bytes: Annotated[
        _Bytes, _says("How large the write-ahead log gets before it is folded back.", "bytes")
    ] = limits.CHECKPOINT_BYTES


class Documents(Struct, frozen=True):
    page_size: Annotated[
        Literal[512, 1024, 2048, 4096, 8192, 16384, 32768, 65536],
        _says("Page size of a new space's database; an existing one keeps its own.", "bytes"),
    ] = limits.DOCUMENTS_PAGE_SIZE


class Graphs(Struct, frozen=True):
    sync_flags: Annotated[
        Literal["changeable", "fixed"],
        _says("Whether the sync flags of a row may be changed after it was written."),
    ] = "changeable"


class Streams(Struct, frozen=True):
    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        _says(
            "FULL: an acknowledged append survives a power cut. "
            "NORMAL: faster, and a power cut may take the last commits."
        ),
    ] = "FULL"


class Sessions(Struct, frozen=True):
    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        _says(
            "FULL: an event that was appended survives a power cut. "
            "NORMAL: faster, and a power cut may take the last ones."
        ),
    ] = "FULL"


class Objects(Struct, frozen=True):
    url: Annotated[
        str,
        Meta(min_length=1, max_length=2_048),
        _says(
            "Where objects live: a folder (relative to the store) or an address like s3://bucket."
        ),
    ] = "objects"
    timeout_s: Annotated[
        float,
        Meta(ge=0.1, le=3_600.0),
        _says("Time that one request to the object store may take.", "seconds"),
    ] = limits.OBJECT_TIMEOUT_S
    retries_max: Annotated[
        int,
        Meta(ge=0, le=limits.OBJECT_RETRIES_MAX),
        _says("How often a failed request to the object store is repeated.", "retries"),
    ] = limits.OBJECT_RETRIES_MAX


class Archive(Struct, frozen=True):
    acknowledge: Annotated[
        Literal["committed", "published"],
        _says(
            "When a change of a stream is acknowledged. committed: once it is on this disk. "
            "published: once it is in the object store too."
        ),
    ] = "committed"
    seal_bytes: Annotated[_Bytes, _says("Payload of a stream that makes a segment.", "bytes")] = (
        limits.SEGMENT_BYTES
    )
    seal_rows: Annotated[_Count, _says("Records of a stream that make a segment.", "records")] = (
        limits.SEGMENT_ROWS
    )
    seal_age_s: Annotated[
        _Seconds,
        _says("Pending records are sealed so long after the last segment, if few.", "seconds"),
    ] = limits.SEGMENT_AGE_S
    cache_bytes: Annotated[
        int,
        Meta(ge=0, le=1024 * limits.GIB),
        _says("Published segments that are kept on this disk too.", "bytes"),
    ] = limits.ARCHIVE_CACHE_BYTES
    grace_s: Annotated[
        float,
        Meta(ge=0.0, le=366 * 86_400.0),
        _says("How long objects that nothing speaks of any more are kept.", "seconds"),
    ] = limits.ARCHIVE_GRACE_S
    concurrency: Annotated[
        int,
        Meta(ge=1, le=256),
        _says("Streams that are sealed or published at the same time.", "streams"),
    ] = limits.ARCHIVE_CONCURRENCY
    index: Annotated[
        Literal["on", "off"],
        _says("Whether a server indexes the routing keys of what it has published."),
    ] = "on"
    compact: Annotated[
        Literal["on", "off"],
        _says("Whether a server makes large segments of small ones that it has published."),
    ] = "on"
    publish_s: Annotated[
        float,
        Meta(ge=0.0, le=86_400.0),
        _says("How often a server publishes what is new in databases; 0 for never.", "seconds"),
    ] = limits.PUBLISH_EVERY_S
    keep_s: Annotated[
        float,
        Meta(ge=0.0, le=100 * 366 * 86_400.0),
        _says("How old a point may be to be kept; 0 for any age.", "seconds"),
    ] = 0.0
    keep_points: Annotated[
        int,
        Meta(ge=0, le=1_000_000_000),
        _says("How many of the newest points are kept, however old; 0 for all.", "points"),
    ] = 0
    compact_bytes: Annotated[
        _Bytes, _says("Payload of a segment that small ones are made into, at most.", "bytes")
    ] = limits.COMPACT_BYTES


class Server(Struct, frozen=True):
    public_url: Annotated[
        str,
        Meta(min_length=1, max_length=2_048),
        _says(
            "Where others reach the server, as webhooks are told to answer; "
            "auto: as whoever made the subscription did."
        ),
    ] = "auto"
    webhook_targets: Annotated[
        Literal["auto", "public", "local", "private"],
        _says(
            "Which webhooks are called. public: https to public addresses. local: also this "
            "machine. private: any address. auto: local without keys, public with them."
        ),
    ] = "auto"
    webhook_concurrency: Annotated[
        int,
        Meta(ge=1, le=1_024),
        _says("Webhooks that are under way at the same time.", "webhooks"),
    ] = limits.WEBHOOK_CONCURRENCY
    webhook_timeout_s: Annotated[
        _Seconds, _says("Time that one webhook may take to answer.", "seconds")
    ] = limits.WEBHOOK_TIMEOUT_S
    keys_file: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _says("Where the keys are that sign webhooks; relative to the store."),
    ] = "server-keys.json"
    require_key: Annotated[
        Literal["auto", "always"],
        _says(
            "Whether requests need a key. auto: once a key was ever made. "
            "always: also before there is one."
        ),
    ] = "auto"
    hosts: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _says(
            "Names under which the server answers, with commas; other requests get 421. "
            "any: all. auto: those of this machine where no key is needed, all where one is."
        ),
    ] = "auto"
    connections_max: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        _says("Connections that are open at the same time; the next one gets 503.", "connections"),
    ] = limits.HTTP_CONNECTIONS
    connections_per_address: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        _says(
            "Connections from one address; this machine and trusted proxies have no such limit.",
            "connections",
        ),
    ] = limits.HTTP_CONNECTIONS_PER_ADDRESS
    body_bytes_in_flight: Annotated[
        int,
        Meta(ge=int(limits.HTTP_BODY_MAX / limits.HTTP_BODY_SHARE), le=1024 * limits.GIB),
        _says(
            "Bodies of requests that are being received, together; "
            "one key has a quarter of it at most, and more gets 503.",
            "bytes",
        ),
    ] = limits.HTTP_BODY_BYTES_IN_FLIGHT
    write_stall_s: Annotated[
        _Seconds,
        _says("A client that takes nothing of what it is sent is cut after so long.", "seconds"),
    ] = limits.HTTP_WRITE_STALL_S
    trusted_proxies: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _says(
            "Addresses of proxies, with commas, whose X-Forwarded-Proto and -For are believed; "
            "none: of no proxy."
        ),
    ] = "none"


class Health(Struct, frozen=True):
    wal_degraded_bytes: Annotated[
        _Bytes, _says("A write-ahead log of this size makes the store degraded.", "bytes")
    ] = limits.WAL_DEGRADED_BYTES
    wal_failed_bytes: Annotated[
        _Bytes, _says("A write-ahead log of this size makes the store unhealthy.", "bytes")
    ] = limits.WAL_FAILED_BYTES


__all__ = [
    "FILE_NAME",
    "FORMAT",
    "NOT_SETTINGS",
    "PREFIX",
    "SETTINGS",
    "Archive",
    "Documents",
    "Graphs",
    "Health",
    "Kernel",
    "Layer",
    "Objects",
    "Server",
    "Sessions",
    "Setting",
    "SettingInfo",
    "Settings",
    "Source",
    "Streams",
    "fresh_file",
    "load",
]

FILE_NAME: Final = "fourfold.toml"
FORMAT: Final = 1
"""The version of a store's layout on disk; a file that states a greater one is refused."""
PREFIX: Final = "FOURFOLD_"
NOT_SETTINGS: Final[Mapping[str, str]] = {
    "FOURFOLD_ROOT": "The store that a command uses when no ROOT is given.",
    "FOURFOLD_NO_COLOR": "Any value switches colour off, like NO_COLOR, for this program only.",
    "FOURFOLD_FAULTS": "Fault points to arm; for tests that make the machine fail.",
}
"""Variables that carry the prefix and are no settings. Any other unknown one is a misspelling."""

Layer = Literal["default", "file", "environment", "argument", "flag"]


class Source(Struct, frozen=True):
    """Where a value came from: the layer, and the exact place in it."""

    layer: Layer
    where: str = ""

    def __str__(self) -> str:
        return self.where or self.layer


class Setting(Struct, frozen=True):
    """One row of the table: everything there is to say about a setting, apart from its value."""

    name: str
    type: Any
    default: int | float | str
    unit: str
    description: str
    choices: tuple[int | str, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None

    @property
    def variable(self) -> str:
        return PREFIX + self.name.replace(".", "_").upper()

    @property
    def expects(self) -> str:
        """What a value must be, in words that an error message and the reference share."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        if isinstance(self.default, str):
            return "a non-empty string"
        if isinstance(self.default, int):
            return f"a whole number from {self.minimum} to {self.maximum}"
        return f"a number from {self.minimum:g} to {self.maximum:g}"


class SettingInfo(Struct, frozen=True):
    """A setting as `fourfold config` shows it."""

    name: str
    value: int | float | str
    layer: Layer
    source: str
    default: int | float | str
    unit: str
    description: str


class Settings(Struct, frozen=True):
    """Every setting: `settings.kernel.readers_max`, or `settings["kernel.readers_max"]`."""

    kernel: Kernel = Kernel()
    documents: Documents = Documents()
    graphs: Graphs = Graphs()
    streams: Streams = Streams()
    sessions: Sessions = Sessions()
    objects: Objects = Objects()
    archive: Archive = Archive()
    server: Server = Server()
    health: Health = Health()
    sources: dict[str, Source] = {}
    """Where each value that is not a default came from, by dotted name."""

    def __getitem__(self, name: str) -> int | float | str:
        if name not in SETTINGS:
            raise InvalidConfig(f"there is no setting named {name!r}", hint=_nearest(name))
        section, _, key = name.partition(".")
        value: int | float | str = getattr(getattr(self, section), key)
        return value

    def source(self, name: str) -> Source:
        return self.sources.get(name, Source("default"))

    def explain(self) -> list[SettingInfo]:
        return [
            SettingInfo(
                name=name,
                value=self[name],
                layer=self.source(name).layer,
                source=str(self.source(name)),
                default=setting.default,
                unit=setting.unit,
                description=setting.description,
            )
            for name, setting in SETTINGS.items()
        ]


_SECTIONS: Final[dict[str, type[Struct]]] = {
    "kernel": Kernel,
    "documents": Documents,
    "graphs": Graphs,
    "streams": Streams,
    "sessions": Sessions,
    "objects": Objects,
    "archive": Archive,
    "server": Server,
    "health": Health,
}


def _table() -> dict[str, Setting]:
    table = {}
    for section, cls in _SECTIONS.items():
        hints = get_type_hints(cls, include_extras=True)
        for field in msgspec.structs.fields(cls):
            hint = hints[field.encode_name]
            plain, *metas = get_args(hint)
            facts = {
                key: getattr(meta, key)
                for meta in metas
                for key in ("ge", "le", "description", "extra")
                if getattr(meta, key) is not None
            }
            name = f"{section}.{field.name}"
            table[name] = Setting(
                name=name,
                type=hint,
                default=field.default,
                unit=facts["extra"]["unit"],
                description=facts["description"],
                choices=get_args(plain),
                minimum=facts.get("ge"),
                maximum=facts.get("le"),
            )
    return table


SETTINGS: Final[dict[str, Setting]] = _table()
"""Every setting by its dotted name, in the order in which files and tables list them."""

_VARIABLES: Final = {setting.variable: setting for setting in SETTINGS.values()}


def load(
    root: Path | str | None,
    *,
    environ: Mapping[str, str],
    arguments: Mapping[str, object] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of the store in `root`, with every layer applied and every value checked.

    Without a root there is no file layer. `arguments` are typed values given in code, `flags` are
    texts given on the command line; both go by dotted name.
    """
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}

    def take(name: str, raw: object, source: Source) -> None:
        values[name] = _convert(SETTINGS[name], raw, source)
        sources[name] = source

    if root is not None:
        path = Path(root) / FILE_NAME
        for name, raw in _read_file(path):
            take(name, raw, Source("file", f"{path}: {name}"))
    for variable, text in sorted(environ.items()):
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS:
            if variable not in _VARIABLES:
                raise InvalidConfig(
                    f"the environment variable {variable} names no setting",
                    hint=_nearest(variable, _VARIABLES),
                )
            take(_VARIABLES[variable].name, text, Source("environment", variable))
    for name, raw in (arguments or {}).items():
        take(_known(name, "the argument"), raw, Source("argument", f"argument {name}"))
    for name, text in (flags or {}).items():
        take(_known(name, "the flag --set"), text, Source("flag", f"--set {name}"))
    settings = Settings(
        **{section: _build(section, values) for section in _SECTIONS}, sources=sources
    )
    _check_pairs(settings)
    return settings


def _build(section: str, values: Mapping[str, Any]) -> Any:
    prefix = section + "."
    given = {name.removeprefix(prefix): v for name, v in values.items() if name.startswith(prefix)}
    return _SECTIONS[section](**given)


def _convert(setting: Setting, raw: object, source: Source) -> int | float | str:
    # The environment and flags carry text only; files and arguments carry types, and keep to them.
    strict = source.layer in ("file", "argument")
    try:
        value: int | float | str = msgspec.convert(raw, setting.type, strict=strict)
    except msgspec.ValidationError:
        raise InvalidConfig(
            f"{setting.name} must be {setting.expects}, not {raw!r} (from {source})"
        ) from None
    return value


_PAIRS: Final = (
    ("kernel.group_requests_max", "kernel.queue_requests_max"),
    ("kernel.group_bytes_max", "kernel.queue_bytes_max"),
    ("health.wal_degraded_bytes", "health.wal_failed_bytes"),
)


def _check_pairs(settings: Settings) -> None:
    for small, large in _PAIRS:
        if float(settings[small]) > float(settings[large]):
            raise InvalidConfig(
                f"{small} = {settings[small]} (from {settings.source(small)}) must not exceed "
                f"{large} = {settings[large]} (from {settings.source(large)})",
                hint=f"Lower {small} or raise {large}.",
            )


def _known(name: str, origin: str) -> str:
    if name not in SETTINGS:
        raise InvalidConfig(f"{origin} {name!r} names no setting", hint=_nearest(name))
    return name


def _nearest(name: str, known: Iterable[str] = SETTINGS) -> str:
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    if match:
        return f"Did you mean {match[0]}? `fourfold config` lists every setting."
    return "`fourfold config` lists every setting."


def _read_file(path: Path) -> list[tuple[str, object]]:
    try:
        with path.open("rb") as file:
            raw = file.read(limits.CONFIG_BYTES_MAX + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidConfig(
            f"{path} cannot be read: {error.strerror}",
            hint=f"Let this user read it: `chmod u+r {path}`.",
        ) from error
    if len(raw) > limits.CONFIG_BYTES_MAX:
        raise InvalidConfig(f"{path} is larger than {limits.CONFIG_BYTES_MAX} bytes")
    try:
        document = tomllib.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidConfig(
            f"{path} is not valid TOML: {error}",
            hint="Mend that line, or print a fresh file with `fourfold config --init`.",
        ) from error
    _check_format(path, document.pop("format", None))
    return _flatten(path, document)


def _check_format(path: Path, found: object) -> None:
    # The version is judged before any key: a newer file may well have keys that are unknown here.
    if type(found) is not int or found < 1:
        stated = "no format" if found is None else f"format = {found!r}"
        raise InvalidConfig(
            f"{path} states {stated}; it must state the version of the store's layout",
            hint=f"Write `format = {FORMAT}` as the first line of the file.",
        )
    if found > FORMAT:
        raise FutureFormat(f"{path} states format = {found}; this Fourfold reads up to {FORMAT}")


def _flatten(path: Path, document: Mapping[str, object]) -> list[tuple[str, object]]:
    found = []
    for section, keys in document.items():
        if section not in _SECTIONS or not isinstance(keys, dict):
            raise InvalidConfig(
                f"{path} has an unknown key {section!r}",
                hint=f"The sections are {', '.join(_SECTIONS)}. {_nearest(section)}",
            )
        for key, value in keys.items():
            name = f"{section}.{key}"
            if name not in SETTINGS:
                raise InvalidConfig(f"{path} has an unknown key {name!r}", hint=_nearest(name))
            found.append((name, value))
    return found


def fresh_file() -> str:
    """The text of a new `fourfold.toml`: every setting with its default, commented out."""
    lines = [
        "# The settings of this Fourfold store. A line that starts with '#' shows the default.",
        "# The environment outranks this file: FOURFOLD_<SECTION>_<NAME>.",
        "# `fourfold config ROOT` shows each value in force and where it comes from.",
        "",
        "# The version of the store's layout on disk. Fourfold changes it; people do not.",
        f"format = {FORMAT}",
    ]
    section = ""
    for name, setting in SETTINGS.items():
        head, _, key = name.partition(".")
        if head != section:
            section = head
            lines += ["", f"[{section}]"]
        unit = f" ({setting.unit})" if setting.unit else ""
        default = msgspec.json.encode(setting.default).decode()
        lines += [
            f"# {setting.description}",
            f"# {setting.expects[0].upper()}{setting.expects[1:]}{unit}.",
            f"#{key} = {default}",
        ]
    return "\n".join(lines) + "\n"
