"""The sink of graphs: rows of a DataFrame or of a Spark stream become envelopes.

A row is an envelope: `envelope`, the JSON of `apply`. The progress of a write is a setting of the
graphs, written in the transaction of each page: pages up to it are skipped when a batch is sent
again. References of an envelope are checked when it is applied; a refused envelope stops
the batch, and a retry resumes at that envelope.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from fourfold.client import RemoteStore
from fourfold.models.graphs import envelopes
from fourfold.pipeline.json_sink import BatchName, JsonRows, Page, json_sink

if TYPE_CHECKING:
    from fourfold.pipeline.json_sink import SinkStore


def check_envelope(envelope: Any, group: str | None) -> None:
    """Raise InvalidInput for what no app accepts."""
    del group
    envelopes.parse(envelope)


def apply_pages(
    store: SinkStore, group: str | None, pages: Iterator[Page], batch: BatchName
) -> None:
    """Apply envelopes, each page once."""
    del group
    if isinstance(store, RemoteStore):
        _apply_remotely(store, pages, batch)
        return
    graphs = store.graphs
    written = _progress(graphs.get_setting(batch.key))
    for number, page in enumerate(pages):
        if (batch.number, number) > written:
            graphs.apply_many(page, note=(batch.key, f"{batch.number} {number}"))
    # Once Spark counts the batch as done, it must survive a power failure.
    graphs.database.make_durable()


def _apply_remotely(store: RemoteStore, pages: Iterator[Page], batch: BatchName) -> None:
    """Apply envelopes through the API of a server, each under an idempotency key of its own."""
    for number, page in enumerate(pages):
        for place, envelope in enumerate(page):
            store.graphs.apply_once(envelope, f"{batch.key}:{batch.number}:{number}:{place}")


def _progress(text: str | None) -> tuple[int, int]:
    """Return the batch and the page that were written last."""
    if text is None:
        return -1, -1
    batch, _, page = text.partition(" ")
    return int(batch), int(page)


SINK: Final = json_sink(
    JsonRows(model="graphs", value="envelope", group=None, check=check_envelope, write=apply_pages)
)
