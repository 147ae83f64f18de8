"""The Java classes of the scan: compiled by Spark's own compiler, and known to all of its tasks.

What was compiled is kept as a jar in the user's cache, by what it was made of: the sources and the
version of Spark. Nobody ever sees half a jar. Where nothing can be kept, it is made anew for each
process.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fourfold.pipeline import driver, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE: Final = "package org.fourfold;"
_ENTRY: Final = "org.fourfold.StoreTable"
_METHOD: Final = "frame"
_loaded: dict[str, Any] = {}
_loading = threading.Lock()


def method(spark: SparkSession) -> Any:
    """The method that makes a DataFrame; its classes are loaded once for each application."""
    application = spark.sparkContext.applicationId
    with _loading:
        if application not in _loaded:
            gateway = driver.gateway(spark)
            jvm = gateway.jvm
            jar = _jar(jvm, spark.version)
            spark.sparkContext._jsc.addJar(str(jar))  # noqa: SLF001 - Python has no way to do it
            urls = gateway.new_array(jvm.java.net.URL, 1)
            urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
            made = jvm.java.net.URLClassLoader(urls, driver.loader(jvm)).loadClass(_ENTRY)
            _loaded.clear()
            _loaded[application] = driver.method(made, _METHOD)
        return _loaded[application]


def _jar(jvm: Any, version: str) -> Path:
    text = unit()
    digest = hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()[:32]
    folder = java.cache_folder(os.environ) / "spark"
    jar = folder / f"fourfold-{digest}.jar"
    if jar.exists():
        return jar
    classes = _compiled(jvm, text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _kept(classes, jar)
    except OSError:
        return _kept(classes, Path(tempfile.mkdtemp(prefix="fourfold-")) / jar.name)


def _kept(classes: dict[str, bytes], jar: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=jar.parent, prefix=jar.name)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for each, code in sorted(classes.items()):
                archive.writestr(f"{each.replace('.', '/')}.class", code)
        Path(name).replace(jar)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    return jar


def _compiled(jvm: Any, text: str) -> dict[str, bytes]:
    bytecodes = driver.compiled(jvm, text).getBytecodes()
    return {str(name): bytes(code) for name, code in dict(bytecodes).items()}


def unit() -> str:
    """All of the sources as one, which is what the compiler takes: what they import comes first."""
    imports: set[str] = set()
    rest: list[str] = []
    found = [each for each in files(__package__).iterdir() if each.name.endswith(".java")]
    for each in sorted(found, key=lambda source: source.name):
        for line in each.read_text(encoding="utf-8").splitlines():
            if line.startswith("import "):
                imports.add(line)
            elif line != _PACKAGE:
                rest.append(line)
    return "\n".join([_PACKAGE, *sorted(imports), *rest])
