"""The client for coroutines. The one for threads, `fourfold.client.threads`, is generated from it.

After a change run `make generate`.
"""

from __future__ import annotations
