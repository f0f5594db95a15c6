"""The holder of a partition: the node that works with it, found from what the nodes tell. Pure.

Daemons (who stands by for a partition), drivers (where it goes on) and the command line (where it runs) decide by this rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

_Key = TypeVar("_Key", str, int)


class Claim(NamedTuple):
    """A node's claim to a partition: the newest version that it has worked with (0: none), and the bytes that it holds.

    ``node`` is the node's name.
    """

    own_version: int
    size_bytes: int
    node: str

    def also(self, version: int, size_bytes: int, *, is_copy: bool) -> Claim:
        """Return the claim with one more state store: the version of one that was only fetched does not count."""
        own_version = self.own_version if is_copy else max(self.own_version, version)
        return self._replace(own_version=own_version, size_bytes=self.size_bytes + size_bytes)


def holder_of_partition(claims: Mapping[_Key, Claim]) -> _Key | None:
    """Return the key of the holder: the node that has worked with the newest version. None if there are only copies.

    Of several nodes with that version it is the one that holds most, for who has only read a file of it holds little.
    Between equals the name decides, and between daemons of one node the key.
    """
    at_work = [(claim.own_version, claim.size_bytes, claim.node, key) for key, claim in claims.items() if claim.own_version]
    return max(at_work)[-1] if at_work else None
