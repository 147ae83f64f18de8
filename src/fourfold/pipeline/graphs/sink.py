"""The sink of graphs: rows of a DataFrame or of a Spark stream become envelopes.

A row is an envelope: `envelope`, the JSON of `apply`. The progress of a write is a setting of the
graphs, written in the transaction of each page: pages up to it are skipped when a batch is sent
again. References of an envelope are checked when it is applied; one that is refused stops the
batch, which continues there when it is sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fourfold.models.graphs import envelopes
from fourfold.pipeline.json_sink import BatchName, JsonRows, Page, json_sink
from fourfold.store import Store


def check_envelope(envelope: Any, group: str | None) -> None:
    """Raise InvalidInput for what no app accepts."""
    del group
    envelopes.parse(envelope)


def apply_pages(store: Store, group: str | None, pages: Iterator[Page], batch: BatchName) -> None:
    """Apply envelopes, each page once."""
    del group
    graphs = store.graphs
    written = _progress(graphs.get_setting(batch.key))
    for number, page in enumerate(pages):
        if (batch.number, number) > written:
            graphs.apply_many(page, note=(batch.key, f"{batch.number} {number}"))
    # Once Spark counts the batch as done, it must survive a power failure.
    graphs.database.make_durable()


def _progress(text: str | None) -> tuple[int, int]:
    """Return the batch and the page that were written last."""
    if text is None:
        return -1, -1
    batch, _, page = text.partition(" ")
    return int(batch), int(page)


SINK: Final = json_sink(
    JsonRows(model="graphs", value="envelope", group=None, check=check_envelope, write=apply_pages)
)
