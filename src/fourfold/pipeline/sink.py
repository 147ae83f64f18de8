"""The interface of a sink, and the options that all sinks share."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from fourfold.errors import InvalidInput, Refused
from fourfold.pipeline.scratch import staging_folder

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from fourfold.client import RemoteStore

    BatchWriterOf = Callable[[Mapping[str, str], StructType, bool], DataSourceWriter]
    StreamWriterOf = Callable[[Mapping[str, str], StructType, bool], DataSourceStreamWriter]

_OF_SPARK: Final = ("path", "checkpointlocation", "queryname", "model", "table")
"""Options that Spark itself adds, or that select the sink."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The writers of a model. Each gets the options, the schema, and True to overwrite."""

    batch_writer: BatchWriterOf
    stream_writer: StreamWriterOf


@dataclass(frozen=True, slots=True)
class Destination:
    """Target of a sink: the folder of a store, or a server that has it open."""

    root: Path | None
    url: str = ""
    key: str | None = None

    def staging(self, texts: Mapping[str, str]) -> Path:
        """Return the folder in which tasks stage rows: of the option, or of the store."""
        if "staging" in texts:
            return Path(texts["staging"]).absolute()
        if self.root is None:
            return Path(tempfile.gettempdir()) / "fourfold-staging"
        return staging_folder(self.root).absolute()

    def connect(self) -> RemoteStore:
        """Return the store of the server, to be closed."""
        from fourfold.client import connect  # noqa: PLC0415 - workers need no client

        return connect(self.url, self.key)


def parse_destination(texts: Mapping[str, str]) -> Destination:
    """Return where a sink writes; raise InvalidInput unless there is one of `root` and `url`."""
    from fourfold.pipeline.documents.ingest import check_root  # noqa: PLC0415 - workers need no kernel

    url = texts.get("url", "")
    if url and texts.get("root"):
        raise InvalidInput("pass either the option 'root' or the option 'url'")
    if url:
        return Destination(None, url, texts.get("key") or os.environ.get("FOURFOLD_KEY"))
    return Destination(check_root(texts.get("root")))


def parse_options(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the options of a sink by lower-case name; raise InvalidInput for unknown ones."""
    texts = {name.lower(): value for name, value in options.items()}
    for name in texts:
        if name not in names and name not in _OF_SPARK:
            near = difflib.get_close_matches(name, names, n=1)
            raise InvalidInput(
                f"unknown option {name!r} of the sink fourfold",
                hint=f"Did you mean {near[0]!r}?" if near else f"Options: {', '.join(names)}.",
            )
    return texts


def folder_name(session: str) -> str:
    """Return the name of the staging folder of a write or query."""
    kind = session.partition(":")[0]
    return f"{kind}-{hashlib.sha256(session.encode()).hexdigest()[:24]}"


def write_name(texts: Mapping[str, str]) -> str:
    """Return the name of a batch write: that of its job, or a new one."""
    job = texts.get("job", "")
    return f"job:{job}" if job else f"write:{uuid.uuid4().hex}"


def check_append_mode(overwrite: bool) -> None:
    """Raise Refused if Spark asks to overwrite."""
    if overwrite:
        raise Refused(
            "the sink cannot overwrite history",
            hint='Write with mode("append"). To replace a document, write it with op "set".',
        )


def seconds(text: str) -> float:
    """Parse the option `wait_s`."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidInput(f"option 'wait_s' must be a number of seconds, got {text!r}")
    return seconds


def query_id(checkpoint: str) -> str:
    """Return the id of a query from its checkpoint.

    Batch numbers are unique only with it: a query whose checkpoint was deleted begins again at 0.
    """
    parts = urlsplit(checkpoint)
    if not checkpoint or parts.scheme not in {"", "file"}:
        raise InvalidInput(
            f"checkpointLocation must be a local folder, got {checkpoint or 'none'}",
            hint="Set option('checkpointLocation', ...) to a local folder, or name the query: "
            "option('query', ...), another one for each new checkpoint.",
        )
    path = Path(unquote(parts.path) if parts.scheme else checkpoint) / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"{path}: cannot read the id of the query: {error}",
            hint="Name the query: option('query', ...), another one for each new checkpoint.",
        ) from error
