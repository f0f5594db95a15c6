"""The state that each node holds."""

from __future__ import annotations

from holdfast.control.messages.message import Message


class HeldStoreInfo(Message, frozen=True):
    """The part of one state store that a node holds: its newest version (0: only files that versions share), and bytes.

    ``copy``: that version was only fetched; another node works with it. ``missing_bytes`` is what the node lacks of the
    partition as its standby; None if it is not its standby.
    """

    operator: int
    partition: int
    store: str
    version: int
    size_bytes: int
    copy: bool = False
    missing_bytes: int | None = None


class HeldQueryInfo(Message, frozen=True):
    """The state that a node holds of the query with its checkpoint at ``path``."""

    path: str
    stores: list[HeldStoreInfo]


class NodeHealthInfo(Message, frozen=True):
    """The health of a node: version, ``passthrough`` or ``daemon-io``, bytes, and a sentence for each problem."""

    version: str
    data_mode: str
    cached_bytes: int
    free_bytes: int
    problems: list[str]


class HoldingsInfo(Message, frozen=True):
    """The state of a zone's queries that one node holds, as it told the zone's store at ``told`` (seconds since the epoch).

    ``hosts`` are the node's names and addresses, ``cores`` the number of its cores, ``rack`` what fails together with it.
    With ``standbys`` above 0 it keeps standby copies. This node's own entries are as of now.
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
    rack: str = ""
    standbys: int = 0


class HoldingsReply(Message, frozen=True):
    """The state that nodes hold; ``problems`` has a sentence for each store that did not answer."""

    nodes: list[HoldingsInfo]
    problems: list[str] = []
