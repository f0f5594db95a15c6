"""The kinds of names among objects, and the policy that each carries: whether it is sent, created once, believed, fetched.

This is the only place that knows what a kind means. Nobody else asks which kind a name is of: they ask its policy. A further
kind is a member here and a key of ``[names]`` in the configuration.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KindPolicy:
    """What may happen to names of a kind."""

    explanation: str
    """A sentence for people (``holdfast why``)."""
    stays_here: bool = False
    """It never leaves this node: no object is made of it, and none is looked for."""
    awaits_rename: bool = False
    """It is renamed to its final name when it is whole; who has it open is about to create that name."""
    created_once: bool = False
    """A second creation fails, on whichever node, until the name is unlinked."""
    revalidated: bool = False
    """Another node may replace the object: a belief that is older than the metadata TTL is asked about again."""
    fetched_ahead: bool = False
    """A prefetch takes it."""
    creator_seconds: float = 0.0
    """For how long a thread that has created such a name in a directory is believed to go on creating them there."""
    creator_known_at_open: bool = False
    """The thread counts as their creator as soon as it makes the file; else when the store has taken the object."""
    polled_while_read: bool = False
    """Readers ask for its size before each read: a long one is served by the daemon, which saves them those requests."""

    @property
    def lasts(self) -> bool:
        """Whether the object never changes as long as it is there: nothing about it need ever be asked again."""
        return not self.stays_here and not self.revalidated


_POLICIES = {
    "temporary": KindPolicy(
        "Its name is temporary: it stays on this node until it is renamed to a final name.",
        stays_here=True,
        awaits_rename=True,
    ),
    "sidecar": KindPolicy(
        "It is Hadoop's checksum of a neighbour: it stays on this node.",
        stays_here=True,
        polled_while_read=True,
    ),
    "write-once": KindPolicy(
        "Its name is write-once: a second creation fails with EEXIST on whichever node, until it is removed.",
        created_once=True,
        fetched_ahead=True,
        creator_seconds=600.0,
    ),
    "immutable": KindPolicy(
        "Its name stands for its content: a copy is never asked about again.",
        fetched_ahead=True,
        creator_seconds=5.0,
        creator_known_at_open=True,
    ),
    "replaceable": KindPolicy(
        "It may be replaced on other nodes: an open asks the store if its last answer is older than the TTL.",
        revalidated=True,
        fetched_ahead=True,
    ),
}


class NameKind(enum.Enum):
    """A kind of name. Its value is its key in the configuration, with a hyphen, and its word in messages."""

    TEMPORARY = "temporary"
    """Stays on this node until it is renamed to a name of another kind."""
    SIDECAR = "sidecar"
    """Hadoop's checksum of a neighbour: stays on this node, goes when the neighbour changes."""
    WRITE_ONCE = "write-once"
    """Created at most once, over all nodes, until it is unlinked."""
    IMMUTABLE = "immutable"
    """Names its own content: once here, never asked about again."""
    REPLACEABLE = "replaceable"
    """May be written again by anybody: asked about when an open finds the belief too old."""

    policy: KindPolicy

    def __init__(self, value: str) -> None:
        self.policy = _POLICIES[value]

    @classmethod
    def of_key(cls, key: str) -> NameKind:
        """Return the kind whose patterns the configuration has under ``names.KEY``. Raises ``ValueError``."""
        return cls(key.replace("_", "-"))
