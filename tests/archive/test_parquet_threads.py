"""Reads of a Parquet file stay on the calling thread.

A thread of Arrow that still holds a Python file when the interpreter ends aborts the process.
"""

from __future__ import annotations

import io
import threading

import pyarrow as pa
import pyarrow.parquet as pq

from fourfold.archive.segment_reader import open_parquet


class NotingFile(io.BytesIO):
    """Notes the threads that read it."""

    def __init__(self, data):
        super().__init__(data)
        self.threads = set()

    def read(self, *arguments):
        self.threads.add(threading.get_ident())
        return super().read(*arguments)


def test_parquet_file_is_read_on_the_calling_thread():
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(10_000)), "b": ["x" * 50] * 10_000}), sink)
    source = NotingFile(sink.getvalue())
    file = open_parquet(source)
    for group in range(file.num_row_groups):
        file.read_row_group(group, use_threads=False)
    assert source.threads == {threading.get_ident()}
