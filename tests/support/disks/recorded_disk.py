"""A disk whose power can be cut: one file on a mount of its own, which knows what was written since the last flush.

``python -m tests.support.disks.recorded_disk SETTINGS`` serves the file ``disk`` for a loop device. ``RecordedDisk`` is the
parent's side. A cut writes an image of what a real disk may have after its power was lost: all that was flushed, and of each
4 KiB block that was written since, any version, by chance.

It can also be told to be a bad disk: to fail reads of some blocks, all writes, or those of a thin disk that has run out.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyfuse3
import pytest
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext

from holdfast.mount.mountpoint import detach

BLOCK_BYTES = 4096
_NAME = b"disk"
_INODE = pyfuse3.ROOT_INODE + 1
_SECONDS = 3600.0


class Blocks:
    """The content: the image as of the last flush, and the versions of each block since."""

    def __init__(self, image: Path) -> None:
        self.image = image
        self.fd = os.open(image, os.O_RDWR)
        self.size_bytes = os.fstat(self.fd).st_size
        self.pending: dict[int, list[bytes]] = {}
        self.unreadable: set[int] = set()
        self.is_read_only = False
        self.missing: set[int] = set()
        """The blocks that a thin disk has no room for: they can't be written."""
        self.failed_reads = 0
        self.failed_writes = 0

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return the newest bytes. Raises ``OSError`` (EIO) where a block is unreadable."""
        if self.unreadable and not self.unreadable.isdisjoint(_blocks(offset, size_bytes)):
            self.failed_reads += 1
            raise OSError(errno.EIO, "a bad block")
        data = bytearray(os.pread(self.fd, size_bytes, offset))
        data.extend(bytes(max(0, min(size_bytes, self.size_bytes - offset) - len(data))))
        for block in _blocks(offset, size_bytes):
            if block in self.pending:
                start = block * BLOCK_BYTES - offset
                piece = self.pending[block][-1][max(0, -start) : max(0, size_bytes - start)]
                data[max(0, start) : max(0, start) + len(piece)] = piece
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        """Keep new versions of blocks. Raises ``OSError`` (EIO) while all writes fail."""
        if self.is_read_only:
            self.failed_writes += 1
            raise OSError(errno.EIO, "a bad disk")
        if self.missing and not self.missing.isdisjoint(_blocks(offset, len(data))):
            self.failed_writes += 1
            raise OSError(errno.ENOSPC, "a thin disk that has run out")
        for block in _blocks(offset, len(data)):
            start = block * BLOCK_BYTES - offset
            if start >= 0 and start + BLOCK_BYTES <= len(data):
                content = data[start : start + BLOCK_BYTES]
            else:
                now = bytearray(self.read(block * BLOCK_BYTES, BLOCK_BYTES))
                piece = data[max(0, start) : start + BLOCK_BYTES]
                now[max(0, -start) : max(0, -start) + len(piece)] = piece
                content = bytes(now)
            self.pending.setdefault(block, []).append(content)
            self.unreadable.discard(block)

    def flush(self) -> None:
        """All that was written is on the disk. Raises ``OSError`` (EIO) while all writes fail."""
        if self.is_read_only:
            raise OSError(errno.EIO, "a bad disk")
        for block, versions in self.pending.items():
            os.pwrite(self.fd, versions[-1], block * BLOCK_BYTES)
        self.pending.clear()

    def cut(self, image: Path, seed: int, kept: float) -> None:
        """Write an image in which a block has, with the chance ``kept``, one of the versions since the last flush."""
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", str(self.image), str(image)], check=True)
        chance = random.Random(seed)
        with image.open("r+b") as file:
            for block, versions in sorted(self.pending.items()):
                if chance.random() < kept:
                    file.seek(block * BLOCK_BYTES)
                    file.write(chance.choice(versions))


def _blocks(offset: int, size_bytes: int) -> Iterable[int]:
    return range(offset // BLOCK_BYTES, -(-(offset + size_bytes) // BLOCK_BYTES))


class _Operations(pyfuse3.Operations):
    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self._blocks = blocks

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if name != _NAME:
            raise FUSEError(errno.ENOENT)
        return await self.getattr(_INODE, ctx)

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        entry = EntryAttributes()
        entry.st_ino = inode
        entry.attr_timeout = entry.entry_timeout = _SECONDS
        entry.st_mode = stat.S_IFREG | 0o600 if inode == _INODE else stat.S_IFDIR | 0o700
        entry.st_size = self._blocks.size_bytes
        return entry

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        return FileInfo(fh=_INODE, direct_io=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        with _errors():
            return self._blocks.read(off, size)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        with _errors():
            self._blocks.write(off, buf)
        return len(buf)

    async def fsync(self, fh: int, datasync: bool) -> None:
        with _errors():
            self._blocks.flush()

    async def flush(self, fh: int) -> None:
        """A close is no flush of the disk."""

    async def release(self, fh: int) -> None:
        """Nothing to do."""


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise FUSEError(problem.errno or errno.EIO) from None


async def _obey(blocks: Blocks, parent: trio.SocketStream) -> None:
    received = b""
    async for data in parent:
        received += data
        while b"\n" in received:
            line, _, received = received.partition(b"\n")
            order = json.loads(line)
            if "cut" in order:
                blocks.cut(
                    Path(order["cut"]), order["seed"], order["kept"]
                )  # not in a thread: one moment, between two requests
            blocks.unreadable = set(order.get("unreadable", blocks.unreadable))
            if "missing" in order:
                blocks.missing = set(chain.from_iterable(range(*each) for each in order["missing"]))
            blocks.is_read_only = order.get("is_read_only", blocks.is_read_only)
            told = {"failed_reads": blocks.failed_reads, "failed_writes": blocks.failed_writes}
            await parent.send_all(json.dumps(told).encode() + b"\n")
    pyfuse3.terminate()


async def _serve(blocks: Blocks, channel: socket.socket) -> None:
    channel.setblocking(False)
    parent = trio.SocketStream(trio.socket.from_stdlib_socket(channel))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_obey, blocks, parent)
        await parent.send_all(b"{}\n")
        await pyfuse3.main(max_tasks=1)
        nursery.cancel_scope.cancel()


def main(image: str, mountpoint: str, socket_fd: int) -> None:
    """Serve until the parent hangs up."""
    blocks = Blocks(Path(image))
    pyfuse3.init(_Operations(blocks), mountpoint, {"fsname=recorded-disk"})
    try:
        trio.run(_serve, blocks, socket.socket(fileno=socket_fd))
    finally:
        pyfuse3.close(unmount=False)


class RecordedDisk:
    """A file system of ``kind`` (ext4, xfs, btrfs) on such a disk, mounted on ``path``. Use it in a ``with`` statement.

    It needs root. ``image`` is the disk's content; a file that does not exist is made anew.
    """

    def __init__(self, kind: str, path: Path, image: Path) -> None:
        if not os.path.exists("/dev/loop-control"):
            pytest.skip("needs loop devices")
        self.path = path
        self.image = image
        self._kind = kind
        self._mountpoint = path.with_name(f"{path.name}.disk")
        self._ends = ExitStack()

    def __enter__(self) -> RecordedDisk:
        with self._ends:
            if not self.image.exists():
                make_file_system(self._kind, self.image)
            self._mountpoint.mkdir(exist_ok=True)
            self.path.mkdir(exist_ok=True)
            self._serve()
            mount_image(self._kind, self._mountpoint / os.fsdecode(_NAME), self.path, self._ends)
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def cut(self, image: Path, seed: int, kept: float) -> None:
        """Write the image of a disk whose power is cut now: ``kept`` is the chance of each block that is not flushed."""
        self._order(cut=str(image), seed=seed, kept=kept)

    def fail_reads(self, offsets: Iterable[int]) -> None:
        """Let reads of these blocks, given by their offsets in bytes on the disk, fail until they are written again."""
        self._order(unreadable=[offset // BLOCK_BYTES for offset in offsets])

    def fail_writes(self, *, fails: bool = True) -> None:
        """Let all writes fail, or none."""
        self._order(is_read_only=fails)

    def run_out(self) -> None:
        """Let all writes fail to blocks that the file system (ext4) has not in use now, as of a thin disk that is full."""
        self.write_out()
        told = subprocess.run(
            ["dumpe2fs", self._mountpoint / os.fsdecode(_NAME)], check=True, capture_output=True, text=True
        ).stdout
        assert "Block size:               4096" in told
        free = [line.partition(": ")[2] for line in told.splitlines() if line.startswith("  Free blocks: ")]
        ranges = [each.partition("-") for line in free for each in line.split(", ") if each]
        self._order(missing=[(int(first), int(last or first) + 1) for first, _, last in ranges])

    def write_out(self) -> None:
        """Let the kernel write out what it has for the disk, whatever the disk refuses."""
        subprocess.run(["sync", "--file-system", self.path], check=False, stderr=subprocess.DEVNULL)

    def get_room(self) -> None:
        """Let a thin disk that has run out take writes again."""
        self._order(missing=[])

    def fail(self) -> None:
        """Let all reads and writes fail from now on, as of a disk that is pulled out."""
        blocks = self.image.stat().st_size // BLOCK_BYTES
        self._order(is_read_only=True, unreadable=list(range(blocks)))

    def failures(self) -> tuple[int, int]:
        """Return how many reads and writes have failed."""
        told = self._order()
        return told["failed_reads"], told["failed_writes"]

    def _serve(self) -> None:
        ours, theirs = socket.socketpair()
        settings = {"image": str(self.image), "mountpoint": str(self._mountpoint), "socket_fd": theirs.fileno()}
        command = [sys.executable, "-m", "tests.support.disks.recorded_disk", json.dumps(settings)]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self._ends.callback(process.wait)
        theirs.close()
        self._channel = self._ends.enter_context(ours.makefile("rwb"))
        self._ends.callback(ours.close)
        self._ends.callback(detach, str(self._mountpoint))
        self._ends.callback(process.kill)
        assert self._channel.readline() == b"{}\n"

    def _order(self, **order: Any) -> dict[str, int]:
        self._channel.write(json.dumps(order).encode() + b"\n")
        self._channel.flush()
        told: dict[str, int] = json.loads(self._channel.readline())
        return told


_MKFS = {
    "ext4": (256, ["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
    "xfs": (320, ["mkfs.xfs", "-q", "-f"]),
    "btrfs": (320, ["mkfs.btrfs", "-q", "-f"]),
}


def make_file_system(kind: str, image: Path) -> None:
    """Make an image with an empty file system."""
    mebibytes, command = _MKFS[kind]
    with image.open("wb") as file:
        file.truncate(mebibytes * 2**20)
    subprocess.run([*command, str(image)], check=True, capture_output=True)


def mount_image(kind: str, image: Path, path: Path, ends: ExitStack) -> None:
    """Mount an image through a loop device; both are let go when ``ends`` is closed."""
    told = subprocess.run(["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True)
    device = told.stdout.strip()
    ends.callback(subprocess.run, ["losetup", "--detach", device], check=True)
    # The image of a cut has the number of the disk that it was taken of, which is there until its last process has died.
    options = ["-o", "nouuid"] if kind == "xfs" else []
    subprocess.run(["mount", "-t", kind, *options, device, str(path)], check=True, capture_output=True)
    ends.callback(subprocess.run, ["umount", "--lazy", str(path)], check=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
