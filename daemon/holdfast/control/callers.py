"""The user at the other end of a connection, as the kernel recorded it when the connection was made (unix(7)).

A process can't change it afterwards, and can't pretend to be another. Ids that the daemon's user namespace does not have
appear as the overflow id, 65534.
"""

from __future__ import annotations

import pwd
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import trio

from holdfast.control.doorkeeper import credentials

_CREDENTIALS = struct.Struct("iII")  # struct ucred
_KEPT_SECONDS = 600.0
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """The user behind a connection, with supplementary groups."""

    uid: int
    gid: int
    groups: frozenset[int]
    is_in_pod: bool = False
    """Whoever comes by ``pods.sock``: its root has no rights beyond its own user's."""

    @property
    def counts_as(self) -> int | str:
        """The user or address against whose limit its connections count."""
        return self.uid

    @property
    def is_root(self) -> bool:
        """True for root, who may be told everything."""
        return self.uid == 0 and not self.is_in_pod

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


class UserNames:
    """The names of users, for people who read events: ``uid=1001`` says little.

    The name service may ask a directory over the network, so it is asked in a thread, and about each user at most once in
    ten minutes.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, str]] = {}

    async def of(self, uids: Iterable[int]) -> dict[int, str]:
        """Return the names of those users that have one."""
        now = trio.current_time()
        wanted = set(uids)
        unknown = [uid for uid in wanted if now - self._known.get(uid, (-_KEPT_SECONDS, ""))[0] >= _KEPT_SECONDS]
        if unknown:
            found = await trio.to_thread.run_sync(_names, unknown, abandon_on_cancel=True)
            if len(self._known) + len(found) > _MOST:
                self._known.clear()
            self._known.update({uid: (now, name) for uid, name in found.items()})
        return {uid: name for uid in wanted if (name := self._known.get(uid, (0.0, ""))[1])}


def _names(uids: list[int]) -> dict[int, str]:
    return {uid: _name(uid) for uid in uids}


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):  # nobody has this id; it is none that there can be
        return ""
