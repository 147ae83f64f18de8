"""Settings in layers, default < file < environment < argument or flag, each with its source.

Each section is a class, and each field of it a setting: its type, range and choices are checked,
its default comes from `limits`, and its description is shown by `fourfold config` and written to a
new `fourfold.toml`. An unknown key or `FOURFOLD_...` variable is an error that names the nearest
existing one, and an invalid value is rejected together with its source. The only I/O is reading the
file; the environment is a parameter.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from fourfold import limits
from fourfold.errors import FutureFormat, InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PUBLISH_EVERY_S: Final = 10.0
"""Interval of background publishing: a lost disk loses at most this much."""
CONFIG_BYTES_MAX: Final = 1 * limits.MIB
"""A larger `fourfold.toml` is some other file."""
DOCUMENTS_PAGE_SIZE: Final = 32_768
"""Large pages suit whole documents; a space may choose another size when it is created."""

_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Bytes = Annotated[int, Meta(ge=limits.KIB, le=1024 * limits.GIB)]
_Seconds = Annotated[float, Meta(ge=0.001, le=86_400.0)]


def _describe(description: str, unit: str = "") -> Meta:
    """Return the metadata of a setting, as shown by `fourfold config`."""
    return Meta(description=description, extra={"unit": unit})


class KernelSettings(Struct, frozen=True):
    """Settings of SQLite connections, group commit and checkpoints."""

    readers_max: Annotated[
        int,
        Meta(ge=1, le=1_024),
        _describe("Maximum number of read-only connections per database.", "connections"),
    ] = limits.READERS_MAX
    busy_timeout_ms: Annotated[
        int,
        Meta(ge=0, le=3_600_000),
        _describe("Time that a connection waits for a lock of another one.", "milliseconds"),
    ] = limits.BUSY_TIMEOUT_MS
    transaction_deadline_s: Annotated[
        _Seconds,
        _describe("Maximum duration of a transaction; a longer one is rolled back.", "seconds"),
    ] = limits.TRANSACTION_DEADLINE_S
    slow_transaction_ms: Annotated[
        int,
        Meta(ge=0, le=3_600_000),
        _describe("Log transactions that take longer than this as slow.", "milliseconds"),
    ] = limits.SLOW_TRANSACTION_MS
    group_requests_max: Annotated[
        _Count,
        _describe(
            "Maximum number of requests that share one transaction and one fsync.", "requests"
        ),
    ] = limits.GROUP_REQUESTS_MAX
    group_bytes_max: Annotated[
        _Bytes, _describe("Maximum payload of the requests that share one transaction.", "bytes")
    ] = limits.GROUP_BYTES_MAX
    queue_requests_max: Annotated[
        _Count,
        _describe(
            "Maximum number of queued requests; further ones fail as overloaded.", "requests"
        ),
    ] = limits.QUEUE_REQUESTS_MAX
    queue_bytes_max: Annotated[
        _Bytes,
        _describe("Maximum payload of queued requests; further ones fail as overloaded.", "bytes"),
    ] = limits.QUEUE_BYTES_MAX
    commit_placement: Annotated[
        Literal["auto", "inline", "thread"],
        _describe(
            "Where commits of asyncio callers run. inline: on the event loop. thread: in a thread. "
            "auto: depends on the measured commit time."
        ),
    ] = "auto"
    checkpoint_bytes: Annotated[
        _Bytes, _describe("Size of the write-ahead log that triggers a checkpoint.", "bytes")
    ] = limits.CHECKPOINT_BYTES


class DocumentSettings(Struct, frozen=True):
    """Settings of document spaces."""

    page_size: Annotated[
        Literal[512, 1024, 2048, 4096, 8192, 16384, 32768, 65536],
        _describe("Page size of the database of a new space; existing ones keep theirs.", "bytes"),
    ] = DOCUMENTS_PAGE_SIZE


class GraphSettings(Struct, frozen=True):
    """Settings of graphs."""

    sync_flags: Annotated[
        Literal["changeable", "fixed"],
        _describe("Allow or forbid changes to the sync flags of a stored row."),
    ] = "changeable"


class StreamSettings(Struct, frozen=True):
    """Settings of streams."""

    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        _describe(
            "FULL: an acknowledged append survives a power failure. "
            "NORMAL: faster, but a power failure may lose the last commits."
        ),
    ] = "FULL"


class SessionSettings(Struct, frozen=True):
    """Settings of sessions."""

    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        _describe(
            "FULL: an appended event survives a power failure. "
            "NORMAL: faster, but a power failure may lose the last events."
        ),
    ] = "FULL"
    otlp_url: Annotated[
        str,
        _describe(
            "Receiver of OpenTelemetry traces (OTLP over HTTP) of turns that end while a server "
            "runs, such as http://localhost:4318. none: no traces."
        ),
    ] = "none"
    otlp_content: Annotated[
        Literal["on", "off"], _describe("on: traces have messages, results and errors.")
    ] = "off"
    otlp_headers: Annotated[
        str,
        _describe("Headers of requests with traces: name=value,name=value. none: no headers."),
    ] = "none"


class ObjectSettings(Struct, frozen=True):
    """Settings of the object store."""

    url: Annotated[
        str,
        Meta(min_length=1, max_length=2_048),
        _describe(
            "Location of objects: a folder (relative to the store) or a URL like s3://bucket."
        ),
    ] = "objects"
    timeout_s: Annotated[
        float,
        Meta(ge=0.1, le=3_600.0),
        _describe("Timeout of one request to the object store.", "seconds"),
    ] = limits.OBJECT_TIMEOUT_S
    retries_max: Annotated[
        int,
        Meta(ge=0, le=limits.OBJECT_RETRIES_MAX),
        _describe("Maximum number of retries of a failed request to the object store.", "retries"),
    ] = limits.OBJECT_RETRIES_MAX


class ArchiveSettings(Struct, frozen=True):
    """Settings of sealing, publishing and garbage collection."""

    acknowledge: Annotated[
        Literal["committed", "published"],
        _describe(
            "When a change of a stream is acknowledged. committed: once it is on the local disk. "
            "published: once it is also in the object store."
        ),
    ] = "committed"
    seal_bytes: Annotated[
        _Bytes, _describe("Pending payload of a stream at which a segment is sealed.", "bytes")
    ] = limits.SEGMENT_BYTES
    seal_rows: Annotated[
        _Count, _describe("Pending records of a stream at which a segment is sealed.", "records")
    ] = limits.SEGMENT_ROWS
    seal_age_s: Annotated[
        _Seconds,
        _describe("Maximum time between segments of a stream with few pending records.", "seconds"),
    ] = limits.SEGMENT_AGE_S
    cache_bytes: Annotated[
        int,
        Meta(ge=0, le=1024 * limits.GIB),
        _describe("Maximum size of the local cache of published segments.", "bytes"),
    ] = limits.ARCHIVE_CACHE_BYTES
    grace_s: Annotated[
        float,
        Meta(ge=0.0, le=366 * 86_400.0),
        _describe("Grace period before unreferenced objects are deleted.", "seconds"),
    ] = limits.ARCHIVE_GRACE_S
    concurrency: Annotated[
        int,
        Meta(ge=1, le=256),
        _describe("Maximum number of streams sealed or published at the same time.", "streams"),
    ] = limits.ARCHIVE_CONCURRENCY
    index: Annotated[
        Literal["on", "off"],
        _describe("Build routing key indexes of published segments in the server."),
    ] = "on"
    compact: Annotated[
        Literal["on", "off"],
        _describe("Compact small published segments into large ones in the server."),
    ] = "on"
    companions: Annotated[
        Literal["on", "off"],
        _describe("Build search companions of published segments in the server."),
    ] = "on"
    publish_s: Annotated[
        float,
        Meta(ge=0.0, le=86_400.0),
        _describe(
            "Interval at which a server publishes changed databases; 0 disables it.", "seconds"
        ),
    ] = PUBLISH_EVERY_S
    keep_s: Annotated[
        float,
        Meta(ge=0.0, le=100 * 366 * 86_400.0),
        _describe("Maximum age of a restore point; 0 keeps all.", "seconds"),
    ] = 0.0
    keep_points: Annotated[
        int,
        Meta(ge=0, le=1_000_000_000),
        _describe(
            "Number of newest restore points to keep regardless of age; 0 keeps all.", "points"
        ),
    ] = 0
    compact_bytes: Annotated[
        _Bytes, _describe("Maximum payload of a compacted segment.", "bytes")
    ] = limits.COMPACT_BYTES


class PipelineSettings(Struct, frozen=True):
    """Settings of reads with Spark."""

    cache_folder: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _describe(
            "Folder for rows of live files that are exported for Spark, outside the store. "
            "auto: exports in the cache folder of the user."
        ),
    ] = "auto"
    cache_bytes: Annotated[
        _Bytes, _describe("Maximum size of that folder; reads that need more fail.", "bytes")
    ] = limits.EXPORT_CACHE_BYTES
    cache_shared: Annotated[
        Literal["on", "off"],
        _describe(
            "on: the executors of a cluster see that folder, under the same path. "
            "off: the driver serves its files to them."
        ),
    ] = "off"


class ServerSettings(Struct, frozen=True):
    """Settings of the HTTP server."""

    public_url: Annotated[
        str,
        Meta(min_length=1, max_length=2_048),
        _describe(
            "Public base URL for webhook callbacks. "
            "auto: the host of the request that created the subscription."
        ),
    ] = "auto"
    webhook_targets: Annotated[
        Literal["auto", "public", "local", "private"],
        _describe(
            "Allowed webhook targets. public: https to public addresses. local: also this "
            "machine. private: any address. auto: local without keys, public with them."
        ),
    ] = "auto"
    webhook_concurrency: Annotated[
        int,
        Meta(ge=1, le=1_024),
        _describe("Maximum number of concurrent webhook calls.", "webhooks"),
    ] = limits.WEBHOOK_CONCURRENCY
    webhook_timeout_s: Annotated[_Seconds, _describe("Timeout of one webhook call.", "seconds")] = (
        limits.WEBHOOK_TIMEOUT_S
    )
    keys_file: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _describe("File with the keys that sign webhooks; relative to the store."),
    ] = "server-keys.json"
    backups: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _describe(
            "Folder for backups that jobs of the server make; relative to the store. "
            "auto: ROOT-backups, next to the store."
        ),
    ] = "auto"
    require_key: Annotated[
        Literal["auto", "always"],
        _describe(
            "When requests need a key. auto: after the first key was created. "
            "always: even before that."
        ),
    ] = "auto"
    hosts: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _describe(
            "Host names that the server accepts, separated by commas; other requests get 421. "
            "any: all. auto: those of this machine if no key is needed, otherwise all."
        ),
    ] = "auto"
    connections_max: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        _describe("Maximum number of open connections; further ones get 503.", "connections"),
    ] = limits.HTTP_CONNECTIONS
    connections_per_address: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        _describe(
            "Maximum number of connections per address, except this machine and trusted proxies.",
            "connections",
        ),
    ] = limits.HTTP_CONNECTIONS_PER_ADDRESS
    body_bytes_in_flight: Annotated[
        int,
        Meta(ge=int(limits.HTTP_BODY_MAX / limits.HTTP_BODY_SHARE), le=1024 * limits.GIB),
        _describe(
            "Maximum total size of request bodies being received; a quarter of it per key. "
            "Further requests get 503.",
            "bytes",
        ),
    ] = limits.HTTP_BODY_BYTES_IN_FLIGHT
    query_processes: Annotated[
        int,
        Meta(ge=1, le=64),
        _describe("Maximum number of processes that run SQL of clients.", "processes"),
    ] = limits.QUERY_PROCESSES
    query_memory_bytes: Annotated[
        int,
        Meta(ge=32 * limits.MIB, le=1024 * limits.GIB),
        _describe("Memory that one query of a client may use.", "bytes"),
    ] = limits.QUERY_MEMORY_BYTES
    write_stall_s: Annotated[
        _Seconds,
        _describe(
            "Time after which a client that does not read its response is disconnected.", "seconds"
        ),
    ] = limits.HTTP_WRITE_STALL_S
    tls_cert: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _describe(
            "PEM file of the certificate with its chain; relative to the store. none: no TLS."
        ),
    ] = "none"
    tls_key: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _describe("PEM file of the key of the certificate; relative to the store."),
    ] = "none"
    handshake_s: Annotated[
        _Seconds,
        _describe("Time for a TLS handshake; a slower client is disconnected.", "seconds"),
    ] = limits.HTTP_HANDSHAKE_S
    audit_bytes: Annotated[
        int,
        Meta(ge=0, le=1024 * limits.GIB),
        _describe(
            "Size of the audit log; its oldest entries are deleted. 0: no audit log.", "bytes"
        ),
    ] = limits.AUDIT_BYTES
    slow_request_ms: Annotated[
        int,
        Meta(ge=0, le=3_600_000),
        _describe("Log requests that take longer than this as slow.", "milliseconds"),
    ] = int(limits.SLOW_REQUEST_S * 1000)
    otlp_url: Annotated[
        str,
        Meta(min_length=1, max_length=2_048),
        _describe("Receiver (OTLP over HTTP) of traces of requests and of metrics. none: none."),
    ] = "none"
    otlp_headers: Annotated[
        str,
        _describe("Headers of requests to that receiver: name=value,name=value. none: no headers."),
    ] = "none"
    otlp_share: Annotated[
        float,
        Meta(ge=0.0, le=1.0),
        _describe("Share of requests that are traced, of those without `traceparent`; 0 to 1."),
    ] = 1.0
    otlp_metrics_s: Annotated[
        float,
        Meta(ge=0.0, le=86_400.0),
        _describe("Interval at which metrics are sent to that receiver; 0 sends none.", "seconds"),
    ] = 60.0
    trusted_proxies: Annotated[
        str,
        Meta(min_length=1, max_length=4_096),
        _describe(
            "Addresses of trusted proxies, separated by commas, whose X-Forwarded-Proto and "
            "X-Forwarded-For headers are used. none: no proxy."
        ),
    ] = "none"


class HealthSettings(Struct, frozen=True):
    """Settings of health checks."""

    wal_degraded_bytes: Annotated[
        _Bytes, _describe("Size of a write-ahead log from which the store is degraded.", "bytes")
    ] = limits.WAL_DEGRADED_BYTES
    wal_failed_bytes: Annotated[
        _Bytes, _describe("Size of a write-ahead log from which the store is unhealthy.", "bytes")
    ] = limits.WAL_FAILED_BYTES


class LogSettings(Struct, frozen=True):
    """Settings of the log that `fourfold serve` writes to standard error."""

    format: Annotated[
        Literal["text", "json"],
        _describe(
            "Format of a line of the log. json: an object with `time`, `level` and `message`."
        ),
    ] = "text"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _describe("Lowest level of the lines in the log."),
    ] = "info"


__all__ = [
    "FILE_NAME",
    "FORMAT",
    "NOT_SETTINGS",
    "PREFIX",
    "SETTINGS",
    "ArchiveSettings",
    "DocumentSettings",
    "GraphSettings",
    "HealthSettings",
    "KernelSettings",
    "Layer",
    "LogSettings",
    "ObjectSettings",
    "PipelineSettings",
    "ServerSettings",
    "SessionSettings",
    "Setting",
    "SettingInfo",
    "Settings",
    "Source",
    "StreamSettings",
    "fresh_file",
    "load",
]

FILE_NAME: Final = "fourfold.toml"
FORMAT: Final = 1
"""Version of the layout of a store on disk; files of a newer version are rejected."""
PREFIX: Final = "FOURFOLD_"
NOT_SETTINGS: Final[Mapping[str, str]] = {
    "FOURFOLD_ROOT": "The store that a command uses if ROOT is not given.",
    "FOURFOLD_PROGRESS": "json: commands with --json print their progress on stderr.",
    "FOURFOLD_STARTED_BY": "What starts a run of the pipeline, for its record: `job` and a number.",
    "FOURFOLD_NO_COLOR": "Any value disables colour, like NO_COLOR, for this program only.",
    "FOURFOLD_SPARK_TRAINING": "off: Spark sessions write no class archive in the background.",
    "FOURFOLD_FAULTS": "Failpoints to enable, for tests that inject failures.",
}
"""Variables with the prefix that are not settings. Any other unknown one is an error."""

Layer = Literal["default", "file", "environment", "argument", "flag"]


class Source(Struct, frozen=True):
    """The layer that a value comes from, and the place in it."""

    layer: Layer
    where: str = ""

    def __str__(self) -> str:
        return self.where or self.layer


class Setting(Struct, frozen=True):
    """Name, type, default, range and description of a setting."""

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
        """Name of the environment variable."""
        return PREFIX + self.name.replace(".", "_").upper()

    @property
    def expects(self) -> str:
        """Description of valid values, used in error messages and in the reference."""
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

    kernel: KernelSettings = KernelSettings()
    documents: DocumentSettings = DocumentSettings()
    graphs: GraphSettings = GraphSettings()
    streams: StreamSettings = StreamSettings()
    sessions: SessionSettings = SessionSettings()
    objects: ObjectSettings = ObjectSettings()
    archive: ArchiveSettings = ArchiveSettings()
    pipeline: PipelineSettings = PipelineSettings()
    server: ServerSettings = ServerSettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()
    sources: dict[str, Source] = {}
    """Source of each value that is not a default, by dotted name."""

    def __getitem__(self, name: str) -> int | float | str:
        if name not in SETTINGS:
            raise InvalidConfig(f"unknown setting {name!r}", hint=_nearest(name))
        section, _, key = name.partition(".")
        value: int | float | str = getattr(getattr(self, section), key)
        return value

    def source(self, name: str) -> Source:
        """Return the source of the value of a setting."""
        return self.sources.get(name, Source("default"))

    def explain(self) -> list[SettingInfo]:
        """Return every setting with its value and its source."""
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
    "kernel": KernelSettings,
    "documents": DocumentSettings,
    "graphs": GraphSettings,
    "streams": StreamSettings,
    "sessions": SessionSettings,
    "objects": ObjectSettings,
    "archive": ArchiveSettings,
    "pipeline": PipelineSettings,
    "server": ServerSettings,
    "health": HealthSettings,
    "log": LogSettings,
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
"""Every setting by its dotted name, in the order of files and tables."""

_RETIRED: Final = {
    "archive.format": (
        "2",
        "Remove the setting: the next publication writes tables beside an archive of format 1.",
    )
}
"""Settings that have one value left, which is ignored, and the hint for any other value."""
_VARIABLES: Final = {
    PREFIX + name.replace(".", "_").upper(): name for name in (*SETTINGS, *_RETIRED)
}
"""Names of settings by their environment variables."""


def load(
    root: Path | str | None,
    *,
    environ: Mapping[str, str],
    arguments: Mapping[str, object] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Settings:
    """Load and check the settings of the store in `root`.

    Args:
        root: Folder of the store; None skips the file layer.
        environ: Environment variables; those that start with `FOURFOLD_` are settings.
        arguments: Typed values set in code, by dotted name.
        flags: Texts from the command line, by dotted name.
    """
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}

    def apply(name: str, raw: object, source: Source) -> None:
        if name in _RETIRED:
            _check_retired(name, raw, source)
            return
        values[name] = _convert(SETTINGS[name], raw, source)
        sources[name] = source

    if root is not None:
        path = Path(root) / FILE_NAME
        for name, raw in _read_file(path):
            apply(name, raw, Source("file", f"{path}: {name}"))
    for variable, text in sorted(environ.items()):
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS:
            if variable not in _VARIABLES:
                raise InvalidConfig(
                    f"unknown environment variable {variable}",
                    hint=_nearest(variable, _VARIABLES),
                )
            apply(_VARIABLES[variable], text, Source("environment", variable))
    for name, raw in (arguments or {}).items():
        apply(_check_name(name, "argument"), raw, Source("argument", f"argument {name}"))
    for name, text in (flags or {}).items():
        apply(_check_name(name, "--set"), text, Source("flag", f"--set {name}"))
    settings = Settings(
        **{section: _build(section, values) for section in _SECTIONS}, sources=sources
    )
    _check_pairs(settings)
    return settings


def _build(section: str, values: Mapping[str, Any]) -> Any:
    prefix = section + "."
    fields = {name.removeprefix(prefix): v for name, v in values.items() if name.startswith(prefix)}
    return _SECTIONS[section](**fields)


def _convert(setting: Setting, raw: object, source: Source) -> int | float | str:
    # Values of the environment and of flags are text; those of files and arguments are typed.
    strict = source.layer in ("file", "argument")
    try:
        value: int | float | str = msgspec.convert(raw, setting.type, strict=strict)
    except msgspec.ValidationError:
        raise InvalidConfig(
            f"{setting.name} must be {setting.expects}, got {raw!r} (from {source})"
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


def _check_retired(name: str, raw: object, source: Source) -> None:
    """Ignore a setting that has one value left; raise InvalidConfig for any other value."""
    value, hint = _RETIRED[name]
    if str(raw) != value:
        raise InvalidConfig(f"{name} must be {value}, got {raw!r} (from {source})", hint=hint)


def _check_name(name: str, origin: str) -> str:
    if name not in SETTINGS and name not in _RETIRED:
        raise InvalidConfig(f"{origin}: unknown setting {name!r}", hint=_nearest(name))
    return name


def _nearest(name: str, known: Iterable[str] = SETTINGS) -> str:
    import difflib  # noqa: PLC0415 - for this message only

    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    if match:
        return f"Did you mean {match[0]}? `fourfold config` lists every setting."
    return "`fourfold config` lists every setting."


def _read_file(path: Path) -> list[tuple[str, object]]:
    try:
        with path.open("rb") as file:
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidConfig(
            f"{path}: cannot read the file: {error.strerror}",
            hint=f"Give this user read permission: `chmod u+r {path}`.",
        ) from error
    if len(raw) > CONFIG_BYTES_MAX:
        raise InvalidConfig(f"{path}: the file is larger than {CONFIG_BYTES_MAX} bytes")
    try:
        document = tomllib.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidConfig(
            f"{path}: not valid TOML: {error}",
            hint="Correct that line, or print a new file with `fourfold config --init`.",
        ) from error
    _check_format(path, document.pop("format", None))
    return _flatten(path, document)


def _check_format(path: Path, version: object) -> None:
    # The version is checked before any key: a newer file may have keys that are unknown here.
    if type(version) is not int or version < 1:
        actual = "no format" if version is None else f"format = {version!r}"
        raise InvalidConfig(
            f"{path}: format must be the version of the store's layout, found {actual}",
            hint=f"Write `format = {FORMAT}` as the first line of the file.",
        )
    if version > FORMAT:
        raise FutureFormat(
            f"{path}: this Fourfold reads formats up to {FORMAT}, found format = {version}"
        )


def _flatten(path: Path, document: Mapping[str, object]) -> list[tuple[str, object]]:
    values = []
    for section, keys in document.items():
        if section not in _SECTIONS or not isinstance(keys, dict):
            raise InvalidConfig(
                f"{path}: unknown key {section!r}",
                hint=f"The sections are {', '.join(_SECTIONS)}. {_nearest(section)}",
            )
        for key, value in keys.items():
            name = f"{section}.{key}"
            if name not in SETTINGS and name not in _RETIRED:
                raise InvalidConfig(f"{path}: unknown key {name!r}", hint=_nearest(name))
            values.append((name, value))
    return values


def fresh_file() -> str:
    """Return the text of a new `fourfold.toml`: every setting with its default, commented out."""
    lines = [
        "# The settings of this Fourfold store. A line that starts with '#' shows the default.",
        "# Environment variables override this file: FOURFOLD_<SECTION>_<NAME>.",
        "# `fourfold config ROOT` shows the effective values and their sources.",
        "",
        "# The version of the store's layout on disk. Do not edit: Fourfold changes it.",
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
