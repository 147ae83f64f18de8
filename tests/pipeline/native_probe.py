"""The scan in Java without Spark around it: quick enough for hundreds of random files."""

from __future__ import annotations

import base64
from itertools import chain
from pathlib import Path

from fourfold.pipeline import cut, driver, planning, scan
from fourfold.pipeline.failures import typed
from fourfold.pipeline.native import classes
from fourfold.pipeline.native.told import told
from fourfold.pipeline.options import read_options
from fourfold.pipeline.pushdown import Pushed

_made = {}


def probe_of(spark):
    """The one probe of a JVM. Two classes of one name would be the same to what calls them."""
    gateway = driver.gateway(spark)
    if gateway not in _made:
        _made[gateway] = Probe(spark)
    return _made[gateway]


class Probe:
    """Opens tables as tasks do."""

    def __init__(self, spark):
        gateway = driver.gateway(spark)
        jvm = gateway.jvm
        source = Path(__file__).with_name("Probe.java").read_text()
        lines = source.replace("package org.fourfold;", "").splitlines()
        imports = "\n".join(line for line in lines if line.startswith("import "))
        rest = "\n".join(line for line in lines if not line.startswith("import "))
        package, _, unit = classes.unit().partition("\n")
        compiler = driver.compiled(jvm, f"{package}\n{imports}\n{unit}\n{rest}")
        made = compiler.getClassLoader().loadClass("org.fourfold.Probe")
        self._methods = {each.getName(): each for each in made.getMethods()}
        self._gateway = gateway

    def _call(self, name, *values):
        arguments = self._gateway.new_array(self._gateway.jvm.java.lang.Object, len(values))
        for at, value in enumerate(values):
            arguments[at] = value
        return self._methods[name].invoke(None, arguments)

    def open_files(self):
        return self._call("files")

    def possible(self, path):
        return self._call("possible", str(path))

    def table(self, options, taken=None):
        return Table(self, options, taken or cut.take(options))

    def rows(self, options, taken=None):
        """All rows of a read, in the order of tasks."""
        table = self.table(options, taken)
        try:
            return table.next(2**31 - 1)
        finally:
            table.close()

    def sorted(self, options, taken=None):
        return sorted(self.rows(options, taken), key=repr)


class Table:
    def __init__(self, probe, options, taken):
        text = told(taken, options)
        assert text is not None, "this read is not for the JVM"
        self.parts = text.count("\n")
        self._opened = probe._call("open", options.table.ddl(options.columns), text)

    def next(self, batches):
        rows = []
        for line in self._opened.next(batches).splitlines():
            if line.startswith("! "):
                raise typed(RuntimeError(line))
            rows.append(tuple(map(_value, line.split(" "))))
        return rows

    def close(self):
        self._opened.close()


def _value(text):
    if text == "-":
        return None
    return base64.b64decode(text[1:]) if text.startswith("=") else int(text)


def options(root, table="revisions", **more):
    return read_options({"root": str(root), "table": table, **more})


def by_sqlite(options, taken=None):
    """The same rows by the reader in Python, sorted: an index gives them in another order."""
    marks = (taken or cut.take(options)).marks
    columns = options.table.chosen(options.columns)
    works = planning.plan(marks, options, columns, Pushed())
    found = []
    for batch in chain.from_iterable(scan.batches(work) for work in works):
        arrays = [_plain(array) for array in batch.columns]
        found += zip(*(array.to_pylist() for array in arrays), strict=True)
    return sorted(found, key=repr)


def _plain(array):
    """Texts as their bytes, which need not be UTF-8, and times as microseconds."""
    import pyarrow as pa  # noqa: PLC0415 - as everywhere

    if pa.types.is_string(array.type):
        return array.cast(pa.binary())
    return array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
