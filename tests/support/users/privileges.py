"""Doing something as a user who may not do everything."""

from __future__ import annotations

import os
import pwd
import struct
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts, or becomes somebody else")
MAY_NET_RAW = struct.pack("<IIIII", 0x0200_0001, 1 << 13, 0, 0, 0)
"""A value of ``security.capability`` (linux/capability.h: vfs_cap_data, version 2)."""


@dataclass(frozen=True)
class User:
    """Somebody with a shell. The ids need no entry in ``/etc/passwd``."""

    uid: int
    gid: int
    groups: Sequence[int] = ()
    """Supplementary groups."""

    def do(self, function: Callable[[], object]) -> None:
        """Run ``function`` in a forked child with this user's rights; fail as it fails. Needs root."""
        pid, reader = self.fork(lambda _: function())
        with open(reader) as channel:
            problem = channel.read()
        os.waitpid(pid, 0)
        assert not problem, problem

    def fork(self, function: Callable[[int], object]) -> tuple[int, int]:
        """Run ``function`` in a forked child with this user's rights, which then ends. Needs root.

        It gets the end of a pipe to write to. Returns the child's number, and the other end, which has a traceback if it
        fails.
        """
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            try:
                self.become()
                function(writer)
            except BaseException:  # noqa: BLE001 all of it is told to the parent
                os.write(writer, traceback.format_exc().encode())
            os._exit(0)
        os.close(writer)
        return pid, reader

    def become(self) -> None:
        """Take this user's rights, for good; for a child between fork and exec."""
        os.setgroups(list(self.groups))
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)


ALICE = User(60_001, 60_001)
MALLORY = User(60_666, 60_666)


def as_nobody(function: Callable[[], object]) -> None:
    """Run ``function`` in a forked child with the rights of the user ``nobody``; fail as it fails. Needs root."""
    user = pwd.getpwnam("nobody")
    User(user.pw_uid, user.pw_gid).do(function)
