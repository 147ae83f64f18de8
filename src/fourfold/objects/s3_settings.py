"""Where an S3 bucket is and how to reach it, checked before the first request.

What is not given comes from the environment: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION
or AWS_DEFAULT_REGION, and the credentials from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
AWS_SESSION_TOKEN, or else from the web identity, container or instance that the process runs in.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from fourfold import limits
from fourfold.errors import InvalidConfig, InvalidInput
from fourfold.objects.keys import check_key

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_REGION_DEFAULT: Final = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """One bucket, the prefix in it that belongs to the store, and the way there."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    allow_http: bool = False
    timeout_s: float = limits.OBJECT_TIMEOUT_S
    retries_max: int = limits.OBJECT_RETRIES_MAX

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise InvalidConfig(
                f"{self.bucket!r} is not a bucket name",
                hint="A bucket name has 3 to 63 letters, digits, dots and hyphens.",
            )
        if self.prefix:
            try:
                check_key(self.prefix)
            except InvalidInput as exc:
                raise InvalidConfig(f"the prefix of the store: {exc.message}") from exc
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise InvalidConfig(
                "access_key_id and secret_access_key belong together",
                hint="Give both, or neither and set them in the environment.",
            )
        if self.session_token is not None and self.access_key_id is None:
            raise InvalidConfig(
                "session_token needs access_key_id and secret_access_key",
                hint="Give all three, or none and set them in the environment.",
            )
        if not 0 < self.timeout_s < 86_400:
            raise InvalidConfig(f"timeout_s is {self.timeout_s!r}, not a number of seconds")
        if not 0 <= self.retries_max <= limits.OBJECT_RETRIES_MAX:
            raise InvalidConfig(
                f"retries_max is {self.retries_max}, not 0 to {limits.OBJECT_RETRIES_MAX}"
            )

    def client_arguments(self, timeout_s: float) -> dict[str, Any]:
        """The arguments of obstore's own S3 store."""
        endpoint = self.endpoint or _environment(
            "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"
        )
        region = self.region or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
        arguments: dict[str, Any] = {
            "bucket": self.bucket,
            "region": region or _REGION_DEFAULT,
            "conditional_put": "etag",
            "client_options": {
                "allow_http": _http_allowed(endpoint, asked=self.allow_http),
                "timeout": timedelta(seconds=timeout_s),
            },
            "retry_config": {
                "max_retries": self.retries_max,
                "retry_timeout": timedelta(seconds=limits.OBJECT_RETRY_WINDOW_S),
            },
        }
        if endpoint:
            arguments["aws_endpoint_url_s3"] = endpoint
        if self.access_key_id is not None:
            # A provider, since plain arguments would be joined with a session token of the
            # environment.
            arguments["credential_provider"] = self._credentials
        return arguments

    def _credentials(self) -> dict[str, str | None]:
        return {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "token": self.session_token,
            "expires_at": None,
        }


def _environment(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _http_allowed(endpoint: str | None, *, asked: bool) -> bool:
    """Whether plain HTTP may be spoken: to this machine, or where the user asked for it."""
    if endpoint is None:
        return False
    if "@" in endpoint:
        raise InvalidConfig(
            "the endpoint holds a user name or password",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead.",
        )
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname
        _ = parts.port
    except ValueError as exc:
        raise InvalidConfig(f"endpoint {endpoint!r} is not a URL: {exc}") from exc
    if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
        raise InvalidConfig(
            f"endpoint {endpoint!r} is not an http or https URL",
            hint="Write it like https://s3.example.org or http://localhost:9000.",
        )
    if parts.scheme == "http" and not (asked or _is_loopback(host)):
        raise InvalidConfig(
            f"endpoint {endpoint!r} is not encrypted and not on this machine",
            hint="Use https, or give allow_http=True if the network between is trusted.",
        )
    return parts.scheme == "http"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
