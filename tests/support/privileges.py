"""Doing something as a user who may not do everything."""

from __future__ import annotations

import os
import pwd
import struct
import traceback
from collections.abc import Callable

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts, or becomes somebody else")
MAY_NET_RAW = struct.pack("<IIIII", 0x0200_0001, 1 << 13, 0, 0, 0)
"""A value of ``security.capability`` (linux/capability.h: vfs_cap_data, version 2)."""


def as_nobody(function: Callable[[], object]) -> None:
    """Run ``function`` in a forked child with the rights of the user ``nobody``; fail as it fails. Needs root."""
    user = pwd.getpwnam("nobody")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            os.setgroups([])
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            function()
        except BaseException:  # noqa: BLE001 all of it is told to the parent
            os.write(writer, traceback.format_exc().encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as channel:
        problem = channel.read()
    os.waitpid(pid, 0)
    assert not problem, problem
