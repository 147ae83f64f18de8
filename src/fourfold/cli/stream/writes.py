"""`fourfold stream append`: from the command line, from stdin, from a file of lines."""

from __future__ import annotations

import click

from fourfold.cli.output import Output, counted
from fourfold.cli.stream.arguments import Place, streams_command
from fourfold.cli.stream.loading import Load, Loaded, load
from fourfold.models.streams import Append, Producer, StreamInfo
from fourfold.models.streams.messages import split
from fourfold.models.streams.names import check_key


@streams_command("append", writes=True)
@click.argument("name")
@click.argument("body", required=False)
@click.option("--from", "source", metavar="FILE|-", help="Every line is a record; - is stdin.")
@click.option("--producer", help="Repeat safely: lines that this producer sent before are skipped.")
@click.option(
    "--seq",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="The producer's number of BODY, or of the first line, which is 0 if not given.",
)
@click.option("--routing-key", metavar="TEXT", help="What the records can be read by.")
@click.option("--close", "closing", is_flag=True, help="Close the stream with the last of them.")
def append(
    out: Output,
    streams: Place,
    *,
    name: str,
    body: str | None,
    source: str | None,
    producer: str | None,
    seq: int | None,
    routing_key: str | None,
    closing: bool,
) -> None:
    """Append BODY, or the lines of a file, to a stream; it returns when they are on disk.

    To a JSON stream a body is a message, or an array of messages.
    """
    if (body is None) == (source is None):
        raise click.UsageError("Give a BODY, or --from FILE, and not both.")
    who = _producer(producer, seq, body)
    info = streams.info(name)
    key = None if routing_key is None else check_key(routing_key)
    if body is not None:
        records = split(body.encode("utf-8", "surrogateescape"), info.content_type)
        request = Append(records, info.content_type, who, close=closing, routing_key=key)
        loaded = _append_one(streams, info, request)
    else:
        assert source is not None
        loaded = load(out, streams, info, Load(source, who, key, closing))
    if out.as_json:
        out.document(
            {
                "name": name,
                "records": loaded.records,
                "sent_before": loaded.sent_before,
                "next_offset": loaded.done.offset,
                "duplicate": loaded.sent_before > 0 and not loaded.records,
                "closed": loaded.done.closed,
            }
        )
        return
    lines = "" if source is None else f"{counted(loaded.sent_before, 'line')} "
    skipped = f" ({lines}sent before)" if loaded.sent_before else ""
    end = loaded.done.offset
    out.line(f"{counted(loaded.records, 'record')}{skipped}; {name} is at {end}")


def _producer(name: str | None, seq: int | None, body: str | None) -> Producer | None:
    """Who appends, and the first number. A line has its number from its place; nobody but the
    caller can know whether a BODY is a new one or the last one again.
    """
    if name is None:
        if seq is not None:
            raise click.UsageError("--seq is the number of a --producer: give that, too.")
        return None
    if body is not None and seq is None:
        raise click.UsageError(
            "A BODY of a --producer needs its number: give --seq, which counts from 0."
        )
    return Producer(name, 0, seq or 0)


def _append_one(streams: Place, info: StreamInfo, request: Append) -> Loaded:
    done = streams.append(info.name, request)
    sent_before = done.duplicate and bool(request.records)
    if request.close and not done.closed:
        # It was sent before, and did not close the stream then.
        done = streams.append(info.name, Append((), info.content_type, close=True))
    return Loaded(done, 0 if sent_before else len(request.records), int(sent_before))
