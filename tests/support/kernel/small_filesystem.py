"""The smallest file system that uses what ``holdfast.kernel`` adds: one flat directory, in a process that can be killed.

A node's id is the inode number of its backing file, a handle's number is its node's: a daemon that takes over knows both.
Backing ids, and how many handles there are, are kept in a file, for they too outlive the daemon.
Files are opened in passthrough, but for names with an end: ``.daemon`` never, ``.late`` from the second handle on (the first
is for direct I/O), ``.mixed`` only with the first handle, which breaks the kernel's rule.

A handler that is named in ``die_in`` tells the parent when it has done its
work, and never replies; ``start`` in its place is the moment before the first request is read.

Run as ``python -m tests.support.kernel.small_filesystem SETTINGS``; ``tests.support.kernel.small_mount`` is the parent's
side.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import stat
import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio

from holdfast.kernel import Connection, Fallocation, Machine, OpenFlag
from tests.support.kernel.kept_opens import KeptOpens

import pyfuse3  # isort: skip  the C module must be loaded before it
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext, SetattrFields

_SECONDS = 60.0
_OPTIONS = {"fsname=small", "default_permissions", "allow_other"}


class SmallFileSystem(pyfuse3.Operations):
    """Every regular file and directory of ``backing``, under its own name."""

    enable_writeback_cache = False

    def __init__(self, connection: Connection, backing: Path, kept: Path, parent: trio.SocketStream, die_in: str) -> None:
        super().__init__()
        self.connection = connection
        self.backing = backing
        self.orphans = kept.parent / "orphans"
        self.orphans.mkdir(exist_ok=True)
        self.parent = parent
        self.die_in = die_in
        self.resent: list[str] = []
        self.opened = KeptOpens(connection, kept, lambda node: os.open(self._path(node), os.O_RDWR))

    # --- names and attributes ----------------------------------------------------------------------------------------

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        return self._entry(self._named(name))

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return self._entry(self._path(inode))

    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        path = self._path(inode)
        self._drop_privileges(path)
        if fields.update_mode:
            os.chmod(path, stat.S_IMODE(attr.st_mode))
        if fields.update_size:
            os.truncate(path, attr.st_size)
        return self._entry(path)

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        raise FUSEError(errno.EOPNOTSUPP)  # so that answers that are not this handler's are told from its own

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        fallocation = Fallocation.of(name, value)
        if fallocation is None:
            raise FUSEError(errno.EOPNOTSUPP)
        self._note_resent("fallocate")
        try:
            fallocation.apply(self.opened[fallocation.handle].fd)
        except OSError as problem:
            raise FUSEError(problem.errno or errno.EIO) from None

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        resent = self._note_resent("mkdir")
        path = self.backing / os.fsdecode(name)
        try:
            path.mkdir(mode)
        except FileExistsError:
            if not resent:
                raise FUSEError(errno.EEXIST) from None
        await self._die_here("mkdir")
        if path.suffix == ".lent":
            self.connection.serve_directory_from(path.stat().st_ino, os.open(path, os.O_PATH), _SECONDS, whole=True)
        return self._entry(path)

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        resent = self._note_resent("unlink")
        path = self.backing / os.fsdecode(name)
        if resent and not path.exists():
            return
        node = self._named(name).stat().st_ino
        if node in self.opened:
            path.rename(self.orphans / str(node))
        else:
            path.unlink()

    # --- files -------------------------------------------------------------------------------------------------------

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        request = self.connection.request()
        self._note_resent("create")
        path = self.backing / os.fsdecode(name)
        path.touch(mode)
        await self._die_here("create")
        return self._open(request, path), self._entry(path)

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        request = self.connection.request()
        path = self._path(inode)
        self._drop_privileges(path)
        await trio.lowlevel.checkpoint()  # other requests come in between: the number must have been asked for before
        if flags & os.O_TRUNC:
            os.truncate(path, 0)
        return self._open(request, path)

    def _open(self, request: int, path: Path) -> FileInfo:
        node = path.stat().st_ino
        opened = self.opened.open(request, node, path, passthrough=path.suffix != ".daemon")
        if opened.handles == 1 and path.suffix == ".late":
            return FileInfo(fh=node, direct_io=True)
        if opened.handles > 1 and path.suffix == ".mixed":
            return FileInfo(fh=node)
        self.connection.answer(request, opened.backing_id, OpenFlag.NO_FLUSH)
        return FileInfo(fh=node, keep_cache=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return os.pread(self.opened[fh].fd, size, off)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        return os.pwrite(self.opened[fh].fd, buf, off)

    async def flush(self, fh: int) -> None:
        """Nothing to do, and not asked for where the reply to OPEN said so."""

    async def fsync(self, fh: int, datasync: bool) -> None:
        os.fsync(self.opened[fh].fd)

    async def release(self, fh: int) -> None:
        self._note_resent("release")
        if self.opened.release(self.connection.request(), fh):
            (self.orphans / str(fh)).unlink(missing_ok=True)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _drop_privileges(self, path: Path) -> None:
        if self.connection.drops_privileges():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~(stat.S_ISUID | stat.S_ISGID))

    def _named(self, name: bytes) -> Path:
        path = self.backing / os.fsdecode(name)
        if not path.exists():
            raise FUSEError(errno.ENOENT)
        return path

    def _path(self, node: int) -> Path:
        if node == pyfuse3.ROOT_INODE:
            return self.backing
        with os.scandir(self.backing) as entries:
            for entry in entries:
                if entry.inode() == node:
                    return Path(entry.path)
        if (self.orphans / str(node)).exists():
            return self.orphans / str(node)
        raise FUSEError(errno.ESTALE)

    def _entry(self, path: Path) -> EntryAttributes:
        found = path.stat()
        entry = EntryAttributes()
        entry.st_ino = pyfuse3.ROOT_INODE if path == self.backing else found.st_ino
        entry.entry_timeout = entry.attr_timeout = _SECONDS
        for field in ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_mtime_ns", "st_ctime_ns"):
            setattr(entry, field, getattr(found, field))
        return entry

    def _note_resent(self, handler: str) -> bool:
        resent = self.connection.is_resent(self.connection.request())
        if resent:
            self.resent.append(handler)
        return resent

    async def _die_here(self, handler: str) -> None:
        if self.die_in == handler:
            await self.parent.send_all(b"dying\n")
            await trio.sleep_forever()


async def _answer(files: SmallFileSystem, parent: trio.SocketStream) -> None:
    async for line in parent:
        told: dict[str, Any] = {
            "requests": {opcode.name: count for opcode, count in files.connection.requests().items()},
            "mode": files.connection.mode,
            "takeover": files.connection.takeover,
            "resent": files.resent,
            "open": len(files.opened),
            "ids": files.opened.ids,
        }
        await parent.send_all(json.dumps(told).encode() + b"\n" * line.count(b"\n"))
    pyfuse3.terminate()


async def _serve(files: SmallFileSystem, parent: trio.SocketStream) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer, files, parent)
        await pyfuse3.main()
        nursery.cancel_scope.cancel()


def main(mountpoint: str, backing: str, state: str, socket_fd: int, device_fd: int, passthrough: bool, die_in: str) -> None:
    """Mount, or take over the mount whose descriptor is ``device_fd``; serve until the parent hangs up or unmounts."""
    channel = socket.socket(fileno=socket_fd)
    connection = Connection(Machine.this(), passthrough=passthrough)
    connection.prepare(Path(state, "init"), takeover=device_fd >= 0)
    channel.setblocking(False)
    parent = trio.SocketStream(trio.socket.from_stdlib_socket(channel.dup()))
    files = SmallFileSystem(connection, Path(backing), Path(state, "opens"), parent, die_in)
    pyfuse3.init(files, f"/dev/fd/{device_fd}" if device_fd >= 0 else mountpoint, _OPTIONS)
    connection.attach()
    files.opened.finish()
    descriptors = [connection.device] if connection.device >= 0 and device_fd < 0 else []
    socket.send_fds(channel, [b"ready\n"], descriptors)
    if die_in == "start":
        signal.pause()
    try:
        trio.run(partial(_serve, files, parent))
    finally:
        pyfuse3.close()
        connection.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
