"""Loads of uploaded files into a model: lines of JSON, committed in slices by this process.

Every line is checked before anything is written. Then the lines are written in their order, some
hundreds in one transaction, so that other requests wait only for a slice. A load is named by the
content of its file and its options, and each slice by its number in the load: a load that is
repeated, or continued after a cancellation or a crash, writes only what is missing.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.models.documents import Space
from fourfold.models.documents.encoding import decode
from fourfold.models.documents.request import make_request
from fourfold.models.documents.validation import check_did, check_known_branch
from fourfold.models.graphs import Graphs, envelopes
from fourfold.models.streams import Streams
from fourfold.models.streams.append import Append
from fourfold.models.streams.json_messages import split
from fourfold.models.streams.records import Producer
from fourfold.wire.store import LoadJob

SLICE_LINES: Final = 500
SLICE_BYTES: Final = limits.MIB
"""Lines and bytes of one slice; a single line may be longer."""
LINE_BYTES_MAX: Final = 16 * limits.MIB
OpenSpace = Callable[[str], AbstractContextManager[Space]]
Advance = Callable[[str, int, int], None]
"""Called with what is being done, the bytes so far and all bytes; raises to stop the load."""


class Line(NamedTuple):
    """A line of the file that is not empty."""

    number: int
    text: str


class LoadSlice(NamedTuple):
    """Lines that are written together."""

    number: int
    lines: list[Line]
    end: int
    """Bytes of the file up to the end of the slice."""


class LoadTarget(ABC):
    """Destination of a load."""

    @abstractmethod
    def check(self, line: Line) -> None:
        """Raise an error for a line that could not be written."""

    @abstractmethod
    def write(self, name: str, part: LoadSlice) -> int:
        """Write a slice of the load `name`; return the rows, 0 if it was written before."""


class DocumentsTarget(LoadTarget):
    """Spaces: a line is a document, or an operation."""

    def __init__(self, body: LoadJob, open_space: OpenSpace) -> None:
        if body.rows == "documents" and bool(body.space) == bool(body.space_from):
            raise InvalidInput("pass either space or space_from to load documents")
        if body.space:
            check_did(body.space)
        self._body = body
        self._open_space = open_space

    def check(self, line: Line) -> None:
        """Check everything that needs no database."""
        did, branch, operation = self._parse(line)
        check_did(did)
        make_request([operation], branch=branch, session="load", local_seq=0, replayable=True)

    def write(self, name: str, part: LoadSlice) -> int:
        """Commit the operations of each space and branch."""
        groups: dict[str, dict[str, list[Any]]] = {}
        for line in part.lines:
            did, branch, operation = self._parse(line)
            groups.setdefault(did, {}).setdefault(branch, []).append(operation)
        written = 0
        for did, branches in groups.items():
            with self._open_space(did) as space:
                for index, (branch, operations) in enumerate(branches.items()):
                    number = part.number * SLICE_LINES + index
                    commit = space.transact(
                        operations, session=name, local_seq=number, branch=branch
                    )
                    written += 0 if commit.replayed else len(operations)
        return written

    def _parse(self, line: Line) -> tuple[str, str, dict[str, Any]]:
        """Return the space, the branch and the operation of a line."""
        body, value = self._body, _parse_object(line)
        if body.rows == "documents":
            did = body.space or _text(value, body.space_from)
            return did, "", {"op": "set", "id": _text(value, body.id), "value": value}
        did = _text(value, "space") if "space" in value else body.space
        branch = value.get("branch", "")
        check_known_branch(branch)
        operation = {"op": value.get("op", "set"), "id": _text(value, "id")}
        field = "patches" if operation["op"] == "patch" else "value"
        for name in ("data", field):
            if name in value:
                data = value[name]
                operation[field] = decode(data) if isinstance(data, str) else data
        return did, branch, operation


class StreamTarget(LoadTarget):
    """A stream that exists: a line is a message, or a record of text."""

    def __init__(self, body: LoadJob, streams: Streams) -> None:
        if not body.stream:
            raise InvalidInput("pass the stream to load into")
        self._streams = streams
        self._info = streams.info(body.stream)

    def check(self, line: Line) -> None:
        """Check that the line is JSON if the stream is; its schema is checked by the append."""
        split(line.text.encode(), self._info.content_type)

    def write(self, name: str, part: LoadSlice) -> int:
        """Append the records of all lines, by a producer with the name of the load."""
        kind = self._info.content_type
        records = [record for line in part.lines for record in split(line.text.encode(), kind)]
        request = Append(records, kind, Producer(name, 0, part.number))
        return 0 if self._streams.append(self._info.name, request).duplicate else len(records)


class GraphsTarget(LoadTarget):
    """Graphs: a line is an envelope, with the app of each operation."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs

    def check(self, line: Line) -> None:
        """Check the form of the envelope; its references are checked when it is applied."""
        envelopes.parse(_parse_object(line))

    def write(self, name: str, part: LoadSlice) -> int:
        """Apply the envelopes in one transaction, each under its own seq."""
        if int(self._graphs.get_setting(name) or 0) > part.number:
            return 0
        batch = [_parse_object(line) for line in part.lines]
        return len(self._graphs.apply_many(batch, note=(name, str(part.number + 1))))


def run_load(body: LoadJob, path: Path, target: LoadTarget, advance: Advance) -> dict[str, Any]:
    """Check the lines of a file and write them; return the figures of the load.

    Raises:
        InvalidInput: a line is not valid; nothing was written.
    """
    # What is appended meanwhile is not part of the load.
    size = path.stat().st_size
    # The same content under another name is the same load.
    digest = hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(body, upload="")))
    lines = 0
    for part in iter_slices(path, size, digest.update):
        for line in part.lines:
            with _located(line):
                target.check(line)
        lines += len(part.lines)
        advance("checking", part.end, 2 * size)
    if not lines:
        raise InvalidInput("the upload has no lines")
    name = f"load:{digest.hexdigest()[:32]}"
    written = 0
    for part in iter_slices(path, size):
        with _located(*(part.lines[:1] + part.lines[-1:])):
            written += target.write(name, part)
        advance("loading", size + part.end, 2 * size)
    return {"name": name, "lines_read": lines, "rows": written}


def iter_slices(
    path: Path, size: int, listen: Callable[[bytes], object] = bytes
) -> Iterator[LoadSlice]:
    """Yield the lines of the first `size` bytes of a file in slices; `listen` gets every byte."""
    lines: list[Line] = []
    slice_number = number = pending = end = 0
    with path.open("rb") as file:
        while end < size and (data := file.readline(min(LINE_BYTES_MAX + 1, size - end))):
            number += 1
            if len(data) > LINE_BYTES_MAX:
                raise InvalidInput(f"line {number}: must be at most {LINE_BYTES_MAX} bytes")
            listen(data)
            end += len(data)
            try:
                text = data.decode().strip()
            except UnicodeDecodeError:
                raise InvalidInput(f"line {number}: must be UTF-8") from None
            if text:
                lines.append(Line(number, text))
                pending += len(data)
            if len(lines) >= SLICE_LINES or pending >= SLICE_BYTES:
                yield LoadSlice(slice_number, lines, end)
                slice_number, lines, pending = slice_number + 1, [], 0
    if lines:
        yield LoadSlice(slice_number, lines, end)


class _located(AbstractContextManager[None]):  # noqa: N801 - used like a function
    """Name the lines in errors of a block."""

    def __init__(self, *lines: Line) -> None:
        numbers = [number for number, _ in groupby(line.number for line in lines)]
        self._where = " to ".join(map(str, numbers))
        self._noun = "line" if len(numbers) == 1 else "lines"

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, FourfoldError):
            message = f"{self._noun} {self._where}: {error.message}"
            raise error.with_message(message) from error


def _parse_object(line: Line) -> dict[str, Any]:
    try:
        value = decode(line.text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"must be JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"must be a JSON object, got {line.text!r:.80}")
    return value


def _text(value: dict[str, Any], field: str) -> str:
    """Return a field as text; a whole number is one, too."""
    text = value.get(field)
    if type(text) is int:
        return str(text)
    if not isinstance(text, str):
        raise InvalidInput(f"{field}: must be a text, got {text!r:.80}")
    return text
