"""Sessions in memory and in a store, for tests that must hold on both."""

from __future__ import annotations

import pytest

import fourfold
from fourfold.models.sessions import Sessions


@pytest.fixture(params=["memory", "store"])
def sessions(request, tmp_path):
    if request.param == "memory":
        found = Sessions()
        yield found
        found.close()
    else:
        with fourfold.open(tmp_path / "store") as store:
            yield store.sessions
