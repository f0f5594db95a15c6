"""The kinds of names among objects, and the policy of each: whether it is sent, created once, revalidated, prefetched.

This is the only place that knows what a kind means; all other code asks its policy. A new kind is a member here and a key of
``[names]`` in the configuration.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KindPolicy:
    """The policy for names of a kind."""

    explanation: str
    """A sentence for people (``holdfast why``)."""
    stays_here: bool = False
    """True if the file never leaves this node: no object is made of it or looked for."""
    awaits_rename: bool = False
    """True if the file is renamed to its final name when complete; whoever has it open is about to create that name."""
    created_once: bool = False
    """True if a second creation fails on every node until the name is unlinked."""
    revalidated: bool = False
    """True if another node may replace the object: it is checked again after the metadata TTL."""
    fetched_ahead: bool = False
    """True if prefetches fetch the object."""
    creator_seconds: float = 0.0
    """The time in which a thread that created such a name in a directory is expected to create more of them there."""
    polled_while_read: bool = False
    """True if readers ask for its size before each read: the daemon serves large ones itself, which saves these requests."""

    @property
    def lasts(self) -> bool:
        """True if the object never changes while it exists, so that it never needs revalidation."""
        return not self.stays_here and not self.revalidated


_POLICIES = {
    "temporary": KindPolicy(
        "Its name is temporary: it stays on this node until it is renamed to a final name.",
        stays_here=True,
        awaits_rename=True,
    ),
    "sidecar": KindPolicy(
        "It is Hadoop's checksum of a neighbour: it stays on this node.", stays_here=True, polled_while_read=True
    ),
    "write-once": KindPolicy(
        "Its name is write-once: a second creation fails with EEXIST on whichever node, until it is removed.",
        created_once=True,
        fetched_ahead=True,
        creator_seconds=600.0,
    ),
    "immutable": KindPolicy("Its name stands for its content: a copy is never asked about again.", fetched_ahead=True),
    "replaceable": KindPolicy(
        "It may be replaced on other nodes: an open asks the store if its last answer is older than the TTL.",
        revalidated=True,
        fetched_ahead=True,
    ),
}


class NameKind(enum.Enum):
    """A kind of name. Its value is its word in messages and, with an underscore, its key in the configuration."""

    TEMPORARY = "temporary"
    """A name that stays on this node until it is renamed to a name of another kind."""
    SIDECAR = "sidecar"
    """Hadoop's checksum of a neighbour: it stays on this node, and is removed when the neighbour changes."""
    WRITE_ONCE = "write-once"
    """A name that is created at most once on all nodes, until it is unlinked."""
    IMMUTABLE = "immutable"
    """A name that determines the content: a copy is never revalidated."""
    REPLACEABLE = "replaceable"
    """A name that any node may write again: an open after the TTL revalidates it."""

    policy: KindPolicy

    def __init__(self, value: str) -> None:
        self.policy = _POLICIES[value]

    @classmethod
    def of_key(cls, key: str) -> NameKind:
        """Return the kind whose patterns the configuration has under ``names.KEY``. Raises ``ValueError``."""
        return cls(key.replace("_", "-"))
