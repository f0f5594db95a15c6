"""Which node holds which state."""

from __future__ import annotations

from holdfast.control.messages.message import Message


class HeldStoreInfo(Message, frozen=True):
    """What a node holds of one state store: its newest version there (0: only files that versions share), and bytes."""

    operator: int
    partition: int
    store: str
    version: int
    size_bytes: int


class HeldQueryInfo(Message, frozen=True):
    """What a node holds of the query with its checkpoint at ``path``."""

    path: str
    stores: list[HeldStoreInfo]


class NodeHealthInfo(Message, frozen=True):
    """How a node is: its version, ``passthrough`` or ``daemon-io``, bytes, and a sentence for each thing that is wrong."""

    version: str
    data_mode: str
    cached_bytes: int
    free_bytes: int
    problems: list[str]


class HoldingsInfo(Message, frozen=True):
    """What one node holds of a zone's queries, as it has told the zone's store at ``told`` (seconds since the epoch).

    ``hosts`` are names and addresses of the node, ``cores`` are what it has. This node's own are as of now.
    """

    zone: str
    node: str
    hosts: list[str]
    cores: int
    draining: bool
    told: float
    this_node: bool
    queries: list[HeldQueryInfo]
    health: NodeHealthInfo | None = None
    """None if the node runs a version that does not tell it."""


class HoldingsReply(Message, frozen=True):
    """Who holds what; ``problems`` has a sentence for each store that did not answer."""

    nodes: list[HoldingsInfo]
    problems: list[str] = []
