"""Servers that attackers have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stores.lying_s3 import LyingS3


@pytest.fixture
def lying() -> Iterator[LyingS3]:
    """An S3 server that knows no rules, and tells the truth until a test gives it a lie."""
    with LyingS3() as server:
        yield server
