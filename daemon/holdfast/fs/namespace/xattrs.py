"""Extended attributes of the files in the tree. Access control lists are refused, because nothing would enforce them."""

from __future__ import annotations

import errno
import os

from holdfast.errors import StaleNodeError
from holdfast.fs.file_io.arriving import LocalFiles
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.system.file_id import file_stat

_ACCESS_LISTS = (b"system.posix_acl_access", b"system.posix_acl_default")
_PRIVATE = b"user.holdfast."
_TRUSTED = b"trusted."


class ExtendedAttributes:
    """Carries out getxattr(2) and its kin. An entry that exists only in the store has no attributes until one is set."""

    def __init__(self, base: Foundation, local_files: LocalFiles) -> None:
        self._directories, self._admission = base.directories, base.admission
        self._hot, self._entries = base.hot, base.parts.index.entries
        self._records, self._ordinary_user = base.parts.session.records, base.ordinary_user
        self._local_files = local_files

    def get(self, node: Node, name: bytes, attempt: Attempt = FIRST) -> bytes:
        """Return the value. Raises ``OSError`` with ENODATA if there is none.

        pyfuse3 also calls this for a setxattr with XATTR_CREATE. A value that an earlier daemon set for it does not count.
        """
        if attempt.resent and self._records.noted(attempt.number) is not None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        if name in _ACCESS_LISTS:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        file, follow = self._file(node)
        if file is None or name.startswith(_PRIVATE):
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return os.getxattr(file, name, follow_symlinks=follow)

    def names(self, node: Node, caller: Caller) -> list[bytes]:
        """Return the names of all attributes. Trusted attributes are listed for root only (xattr(7))."""
        file, follow = self._file(node)
        found = os.listxattr(file, follow_symlinks=follow) if file is not None else []
        hidden = (_PRIVATE,) if caller.uid == 0 else (_PRIVATE, _TRUSTED)
        return [name for name in map(os.fsencode, found) if not name.startswith(hidden)]

    async def set(self, node: Node, name: bytes, value: bytes, attempt: Attempt = FIRST) -> None:
        """Set an attribute, creating or replacing it. Raises ``QuotaExceededError``: attributes take blocks too."""
        self._admission.check_may_grow(node)
        file, follow = await self._file_to_change(node, name)
        before = file_stat(file, follow_symlinks=follow)
        if os.fsdecode(name) not in os.listxattr(file, follow_symlinks=follow):
            self._records.note(attempt.number)
        with self._ordinary_user.writes():
            if isinstance(file, int):
                self._hot.set_attribute(file, name, value)
            else:
                os.setxattr(file, name, value, follow_symlinks=follow)
        self._entries.refresh(before, file_stat(file, follow_symlinks=follow))

    async def remove(self, node: Node, name: bytes, attempt: Attempt = FIRST) -> None:
        """Remove an attribute. Raises ``OSError`` with ENODATA if there is none."""
        file, follow = await self._file_to_change(node, name)
        before = file_stat(file, follow_symlinks=follow)
        is_there = os.fsdecode(name) in os.listxattr(file, follow_symlinks=follow)
        if not is_there and attempt.resent and self._records.noted(attempt.number) is not None:
            return
        if is_there:
            self._records.note(attempt.number)
        if isinstance(file, int):
            self._hot.remove_attribute(file, name)
        else:
            os.removexattr(file, name, follow_symlinks=follow)
        self._entries.refresh(before, file_stat(file, follow_symlinks=follow))

    async def _file_to_change(self, node: Node, name: bytes) -> tuple[int | bytes, bool]:
        if name in _ACCESS_LISTS or name.startswith(_PRIVATE):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if node.is_directory:
            self._directories.writable_descriptor(node)
        await self._local_files.make_local(node)
        await self._hot.settle(node.backing)
        file, follow = self._file(node)
        assert file is not None
        return file, follow

    def _file(self, node: Node) -> tuple[int | bytes | None, bool]:
        """Return the node's file as an argument for the os module, and its ``follow_symlinks``; None if there is no file."""
        if node.opened is not None and node.opened.arrival is None:
            return node.opened.fd, True
        if node.backing == 0:
            return None, True
        if node.is_directory:
            return b"/proc/self/fd/%d/." % self._directories.descriptor(node), True
        if node.parent is None:
            raise StaleNodeError("the file was removed")
        return b"/proc/self/fd/%d/%s" % (self._directories.descriptor(node.parent), node.name), False
