"""Findings that doctor excuses: only the daemon's environment may hold what a store lacks here."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.doctor_start import _leaves_to_environment
from holdfast.config import ZoneSection


@pytest.mark.parametrize(
    ("url", "options", "is_excused"),
    [
        ("s3://bucket/directory", {}, True),
        ("s3://bucket", {"region": "eu-central-1"}, True),
        ("s3://bucket", {"endpoint": "http://127.0.0.1:9000"}, False),
        ("s3://bucket", {"aws_endpoint_url": "http://127.0.0.1:9000"}, False),
        ("s3://bucket", {"secret_access_key": "wrong"}, False),
        ("abfss://container@account.dfs.core.windows.net/directory", {}, True),
        ("hdfs://common/directory", {"namenodes": "one:9870, two:9870"}, False),
        ("sftp://user:password@host/directory", {}, False),
    ],
)
def test_what_the_environment_may_hold(url: str, options: dict[str, Any], is_excused: bool) -> None:
    assert _leaves_to_environment(ZoneSection(url=url, options=options)) is is_excused
