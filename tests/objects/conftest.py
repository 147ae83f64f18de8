"""One S3 server for all tests of this folder; the assertions of the contract explain themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("fourfold.testing.object_contract")

from support.s3_server import serve_s3  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with serve_s3() as server:
        yield server
