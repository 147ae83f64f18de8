"""Open an object store by its URL: `memory:`, a path, `file:`, or `s3://bucket/prefix`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from fourfold import limits
from fourfold.errors import InvalidConfig
from fourfold.objects.folder import FolderStore
from fourfold.objects.memory import MemoryStore

if TYPE_CHECKING:
    from fourfold.objects.protocol import ObjectStore

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_HINT: Final = (
    "Use memory:, a folder such as ./objects, file:///srv/objects, or "
    "s3://bucket/prefix?endpoint=https://s3.example.org&region=eu-central-1."
)
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


def open_objects(
    location: str | os.PathLike[str],
    *,
    timeout_s: float = limits.OBJECT_TIMEOUT_S,
    retries_max: int = limits.OBJECT_RETRIES_MAX,
) -> ObjectStore:
    """Open the object store at a path or URL. A missing folder is created, a bucket never.

    Credentials are not part of a URL: they come from the environment, or from S3Settings.

    Args:
        timeout_s: Timeout of one request to a remote store.
        retries_max: Maximum number of retries of one request to a remote store.
    """
    if not isinstance(location, str):
        return FolderStore(location)
    if not location.strip() or "\0" in location:
        raise InvalidConfig(f"invalid URL of an object store: {location!r}", hint=_HINT)
    match = _SCHEME.match(location)
    scheme = match[1].lower() if match else ""
    if scheme == "":
        return FolderStore(os.path.expanduser(location))  # noqa: PTH111
    if scheme == "memory":
        if location != "memory:":
            raise InvalidConfig(
                f"object store URL must be memory: without a path, got {location!r}", hint=_HINT
            )
        return MemoryStore()
    if scheme == "file":
        return FolderStore(_file_path(location))
    if scheme == "s3":
        return _open_s3(location, timeout_s, retries_max)
    raise InvalidConfig(
        f"unknown scheme {scheme!r} in {location!r}",
        hint=_HINT + " Write a relative path with a colon as ./like:this.",
    )


def _file_path(location: str) -> str:
    parts = urlsplit(location)
    if parts.netloc not in {"", "localhost"} or parts.query or parts.fragment:
        raise InvalidConfig(
            f"file: URL must have no host, query or fragment, got {location!r}", hint=_HINT
        )
    path = unquote(parts.path)
    if not path or "\0" in path:
        raise InvalidConfig(f"file: URL must have a path, got {location!r}", hint=_HINT)
    return path


def _open_s3(location: str, timeout_s: float, retries_max: int) -> ObjectStore:
    from fourfold.objects.s3 import S3Settings, S3Store  # noqa: PLC0415 - few stores are on S3

    try:
        parts = urlsplit(location)
        options = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError as exc:
        raise InvalidConfig(f"invalid s3: URL: {exc}", hint=_HINT) from exc
    if "@" in parts.netloc or parts.fragment:
        raise InvalidConfig(
            f"s3: URL must have no user, password or fragment, got s3://...{parts.path}",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment.",
        )
    unknown = options.keys() - {"endpoint", "region", "allow_http"}
    if unknown:
        raise InvalidConfig(
            f"unknown options in the s3: URL: {', '.join(sorted(unknown))}",
            hint="Use endpoint, region and allow_http; set credentials in the environment.",
        )
    allow_http = options.get("allow_http", "false").lower()
    if allow_http not in _BOOLEANS:
        raise InvalidConfig(f"allow_http must be true or false, got {allow_http!r}")
    settings = S3Settings(
        bucket=parts.netloc,
        prefix=unquote(parts.path).strip("/"),
        endpoint=options.get("endpoint") or None,
        region=options.get("region") or None,
        allow_http=_BOOLEANS[allow_http],
        timeout_s=timeout_s,
        retries_max=retries_max,
    )
    return S3Store(settings)
