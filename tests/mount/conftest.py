"""Nodes over S3, for the tests with mounts."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.stores.s3 import S3Server, Versitygw

S3NodeFactory = Callable[..., Node]


@pytest.fixture
def place(s3_moto: S3Server) -> S3Server:
    """A place of its own on moto's server, which is everywhere."""
    return s3_moto.below(uuid.uuid4().hex)


@pytest.fixture
def counted(s3_versitygw: Versitygw) -> Versitygw:
    """A place of its own on a server that checks signatures and counts requests."""
    return s3_versitygw.below(uuid.uuid4().hex)


@pytest.fixture
def make_s3_node(make_node: NodeFactory) -> S3NodeFactory:
    """A factory of nodes whose zones are over an S3 server."""

    def make(server: S3Server, name: str = "a", **settings: Any) -> Node:
        node = make_node(
            name,
            checkpoints=server.below("checkpoints").url,
            blobs=server.below("blobs").url,
            remote__connect_timeout_seconds=2,
            **settings,
        )
        node.environment.update(server.environment)
        return node

    return make


def keys(server: S3Server) -> set[str]:
    found = server.client().list_objects_v2(Bucket=server.bucket, Prefix=f"{server.prefix}/")
    return {item["Key"].removeprefix(f"{server.prefix}/") for item in found.get("Contents", [])}
