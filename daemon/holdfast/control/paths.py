"""Resolution of paths that users give."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import trio

from holdfast.control.replies import SEEN_AT
from holdfast.errors import NameTooLongError, NoSuchEntryError, OutsideMountError
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.inodes.caller import NOBODY
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.namespace.lookup import Found
from holdfast.system.text import shown

_LONGEST_NAME_BYTES = 255  # NAME_MAX of ext4 and XFS


class Paths:
    """Resolves absolute paths below the mountpoint, which contains no symbolic links."""

    def __init__(self, nodes: NodeTable, files: FileSystem, mountpoint: str) -> None:
        self._nodes = nodes
        self._files = files
        self._mountpoint = mountpoint

    @property
    def mountpoint(self) -> str:
        """The mountpoint, as who asks now sees it."""
        return SEEN_AT.get() or self._mountpoint

    def relative(self, path: str) -> bytes:
        """Return ``path`` relative to the mount (``b""``: the mountpoint itself).

        Raises ``OutsideMountError`` and ``NameTooLongError``.
        """
        if "\0" in path:
            raise OutsideMountError(f"{path!r} is no path: it has a null character")
        full = os.path.normpath(path)
        if full == self.mountpoint:
            return b""
        if not full.startswith(self.mountpoint + "/"):
            raise OutsideMountError(f"{path} is not in the mount at {self.mountpoint}")
        relative = os.fsencode(full[len(self.mountpoint) + 1 :])
        longest = max(relative.split(b"/"), key=len)
        if len(longest) > _LONGEST_NAME_BYTES:
            raise NameTooLongError(
                f"no file can have the name {shown(longest[:20])}... of {len(longest)} bytes: "
                f"give a path whose names have at most {_LONGEST_NAME_BYTES}"
            )
        return relative

    def absolute(self, path: bytes) -> str:
        """Return the absolute path of ``path``, which is relative to the mount."""
        return self.mountpoint + "/" + shown(path) if path else self.mountpoint

    def in_zone(self, path: str, zones: Collection[str]) -> tuple[str, str]:
        """Return zone and key of a path in the mount. Raises ``OutsideMountError`` if it is in none of ``zones``."""
        zone, _, key = os.fsdecode(self.relative(path)).partition("/")
        if zone not in zones:
            named = " or ".join(f"{self.mountpoint}/{each}" for each in sorted(zones))
            raise OutsideMountError(f"{path}: name a directory in {named}")
        return zone, key

    def of_object(self, zone: str, *names: str) -> str:
        """Return the absolute path of an object, of whose key ``names`` are parts; empty ones do not count."""
        return self.absolute(os.fsencode("/".join(name for name in (zone, *names) if name)))

    @asynccontextmanager
    async def find(self, path: str) -> AsyncIterator[Found]:
        """Yield the entry that the kernel would find at ``path``. Raises as ``relative`` does, and ``NoSuchEntryError``.

        A node that the kernel does not know leaves the table when the block ends.
        """
        relative = self.relative(path)
        nodes = self._nodes
        found = Found(nodes.root, self._files.attrs.get(nodes.root), 0.0)
        nodes.hold(found.node)
        try:
            for name in relative.split(b"/") if relative else ():
                next_found = await self._files.lookup.find(found.node, name, NOBODY) if found.node.is_directory else None
                if not isinstance(next_found, Found):
                    raise NoSuchEntryError(f"there is no {path}")
                nodes.hold(next_found.node)
                nodes.let_go(found.node)
                found = next_found
            await trio.lowlevel.checkpoint()
            yield found
        finally:
            nodes.let_go(found.node)
