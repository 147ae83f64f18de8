"""The client for threads, generated from `fourfold.client.coroutines` by `make generate`."""

from __future__ import annotations
