"""Who is at the other end of a connection, as the kernel recorded it when the connection was made (unix(7)).

A process can't change it afterwards, and can't pretend to be another. Ids that the daemon's user namespace does not have
appear as the overflow id, 65534.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Protocol

_CREDENTIALS = struct.Struct("iII")  # struct ucred
_SO_PEERGROUPS = 59  # asm-generic/socket.h; Python has no name for it
_MOST_GROUPS_BYTES = 1024  # as much as Python asks the kernel for


class PeerSocket(Protocol):
    """A connected socket, as far as it can be asked for its peer."""

    def getsockopt(self, level: int, option: int, /, buffer_bytes: int) -> bytes:
        """Return the value of an option, of up to ``buffer_bytes``."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The user behind a connection, with supplementary groups."""

    uid: int
    gid: int
    groups: frozenset[int]

    @property
    def is_root(self) -> bool:
        """Whether all may be told."""
        return self.uid == 0

    def supplementary_groups(self) -> frozenset[int]:
        """Return the groups beside the primary one."""
        return self.groups

    def may_search(self, uid: int, gid: int, mode: int) -> bool:
        """Say whether a directory with this owner and mode lets the caller in (path_resolution(7))."""
        if self.is_root:
            return True
        if self.uid == uid:
            return bool(mode & 0o100)
        if gid == self.gid or gid in self.groups:
            return bool(mode & 0o010)
        return bool(mode & 0o001)


def caller_of(connection: PeerSocket) -> Caller:
    """Return who made ``connection``, an accepted Unix socket. Raises ``OSError``."""
    _, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return Caller(uid, gid, _groups_of(connection))


def _groups_of(connection: PeerSocket) -> frozenset[int]:
    try:
        ids = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS_BYTES)
    except OSError:  # more than fit, or a kernel before 4.13: then the caller has its primary group only
        return frozenset()
    return frozenset(struct.unpack(f"{len(ids) // 4}I", ids))
