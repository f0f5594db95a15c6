"""The user at the other end of a connection, as the kernel recorded it when the connection was made (unix(7)).

A process can't change it afterwards, and can't pretend to be another. Ids that the daemon's user namespace does not have
appear as the overflow id, 65534.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from holdfast.control.doorkeeper import credentials

_CREDENTIALS = struct.Struct("iII")  # struct ucred


@dataclass(frozen=True, slots=True)
class Caller:
    """The user behind a connection, with supplementary groups."""

    uid: int
    gid: int
    groups: frozenset[int]

    @property
    def counts_as(self) -> int | str:
        """The user or address against whose limit its connections count."""
        return self.uid

    @property
    def is_root(self) -> bool:
        """True for root, who may be told everything."""
        return self.uid == 0

    def supplementary_groups(self) -> frozenset[int]:
        """Return the groups beside the primary one."""
        return self.groups

    def answerable(self) -> tuple[int, int]:
        """Return the user, and 0 (``processes.answerable``): its groups are known, so asking for them costs nothing."""
        return self.uid, 0

    def may_search(self, uid: int, gid: int, mode: int) -> bool:
        """Say whether a directory with this owner and mode lets the caller in (path_resolution(7))."""
        if self.is_root:
            return True
        if self.uid == uid:
            return bool(mode & 0o100)
        if gid == self.gid or gid in self.groups:
            return bool(mode & 0o010)
        return bool(mode & 0o001)


def caller_of(connection: socket.socket) -> Caller:
    """Return who made ``connection``, an accepted Unix socket. Raises ``OSError``."""
    return caller_told(credentials(connection))


def caller_told(told: bytes) -> Caller:
    """Return the caller with these ``doorkeeper.credentials``."""
    _, uid, gid = _CREDENTIALS.unpack_from(told)
    groups = told[_CREDENTIALS.size :]
    return Caller(uid, gid, frozenset(struct.unpack(f"{len(groups) // 4}I", groups)))
