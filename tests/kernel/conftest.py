"""What the kernel's tests share: a ledger that is open, and a machine without armed faults."""

from __future__ import annotations

import ledger
import pytest

from fourfold.kernel import failpoints


@pytest.fixture(autouse=True)
def _no_faults():
    failpoints.disarm()
    yield
    failpoints.disarm()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def db(path):
    with ledger.open_ledger(path) as database:
        yield database
