"""From a path that a user gave to what stands there."""

from __future__ import annotations

import os

import trio

from holdfast.errors import NoSuchEntryError, OutsideMountError
from holdfast.fs.core import Caller
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.lookup import Found

_NOBODY = Caller(-1, -1, -1)


class Paths:
    """Resolves absolute paths below ``mountpoint``, which has no symbolic links in it."""

    def __init__(self, files: FileSystem, mountpoint: str) -> None:
        self._files = files
        self.mountpoint = mountpoint

    def relative(self, path: str) -> bytes:
        """Return ``path`` relative to the mount (``b""``: the mountpoint itself). Raises ``OutsideMountError``."""
        full = os.path.normpath(path)
        if full == self.mountpoint:
            return b""
        if not full.startswith(self.mountpoint + "/"):
            raise OutsideMountError(f"{path} is not in the mount at {self.mountpoint}")
        return os.fsencode(full[len(self.mountpoint) + 1 :])

    def absolute(self, path: bytes) -> str:
        """Return the absolute path of ``path``, which is relative to the mount."""
        return self.mountpoint + "/" + os.fsdecode(path) if path else self.mountpoint

    async def find(self, path: str) -> Found:
        """Return what the kernel would find at ``path``. Raises ``NoSuchEntryError`` and ``OutsideMountError``."""
        relative = self.relative(path)
        node = self._files.core.nodes.root
        found = Found(node, self._files.status.get(node), 0.0, 0.0)
        for name in relative.split(b"/") if relative else ():
            next_found = await self._files.lookup.find(found.node, name, _NOBODY)
            if next_found is None:
                raise NoSuchEntryError(f"there is no {path}")
            found = next_found
        await trio.lowlevel.checkpoint()
        return found
