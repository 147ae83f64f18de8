"""Imports from the web framework, Starlette; the error names the extra to install."""

from __future__ import annotations

from fourfold.errors import MissingDependency

try:
    from starlette.convertors import Convertor, register_url_convertor
    from starlette.middleware.gzip import GZipMiddleware
    from starlette.routing import compile_path
except ImportError:
    raise MissingDependency(
        "the server requires starlette, which is not installed",
        hint="pip install 'fourfold[server]'",
    ) from None

__all__ = ["Convertor", "GZipMiddleware", "compile_path", "register_url_convertor"]
