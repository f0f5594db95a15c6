"""Stores with narrow rights, and users who try to get at them, for the tests of the rule about paths."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.daemons.node import Node
from tests.support.users.privileges import User

EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
_AT_FDCWD = -100
_LIBC = ctypes.CDLL(None, use_errno=True)


def exchange(one: Path, other: Path) -> None:
    """renameat2(2) with RENAME_EXCHANGE."""
    if _LIBC.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


def refused(attempt: Callable[[], object]) -> int:
    """Make an attempt that must fail; return its errno."""
    try:
        got = attempt()
    except OSError as problem:
        return problem.errno or 0
    raise AssertionError(f"it was possible, and gave {got!r}")


def put(path: Path, data: bytes, owner: User, *, directory_mode: int = 0o700, file_mode: int = 0o644) -> Path:
    """Store ``data`` at ``path`` in a store's zone, in a directory that is made for it, as ``owner``'s. Needs root."""
    path.parent.mkdir()
    path.write_bytes(data)
    path.chmod(file_mode)
    os.chown(path, owner.uid, owner.gid)
    os.chown(path.parent, owner.uid, owner.gid)
    path.parent.chmod(directory_mode)
    return path


def evict(node: Node, path: Path) -> None:
    """Leave of an object only what the store has."""
    with node.client() as client:
        list(client.evict(str(path)))
        assert client.entry(str(path)).state == "remote"


def workdir_of(node: Node, user: User, name: str) -> Path:
    """Make a working directory as ``user``."""
    path = node.work / name
    user.do(path.mkdir)
    return path


def team_table(name: str, url: str, options: Mapping[str, object], user: User, group: int) -> str:
    """Return the configuration of a team's own store, and of a role ``name`` that falls back to it."""
    texts = ", ".join(f'{key} = "{value}"' for key, value in options.items())
    return f"""
        [stores.{name}]
        url = "{url}"
        uid = {user.uid}
        gid = {group}
        file_mode = "0640"
        directory_mode = "0750"
        options = {{ {texts} }}

        [roles.{name}]
        local_state = "{name}"
        blob_storage = "{name}"
        """
