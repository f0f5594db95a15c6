"""Invalidating names in the kernel's cache (FUSE_NOTIFY_INVAL_ENTRY) and pruning it (FUSE_NOTIFY_PRUNE), from a process of
its own.

To drop a name the kernel takes the lock of its directory, which a system call may hold that waits for the daemon's answer
there. A thread that waits for this lock can't be killed. If it were the daemon's, a killed daemon would not end until the
next one has answered, and that one can't start before this one has ended. So another process waits. It has the mount's
descriptor and nothing else, and starts and ends with the daemon.

This file is also that process's program, and so imports only the standard library.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue

_PARENT = struct.Struct("=Q")
_NOTICE = struct.Struct("=IiQQII")
"""``fuse_out_header`` and ``fuse_notify_inval_entry_out`` (linux/fuse.h)."""
_PRUNE_NOTICE = struct.Struct("=IiQIIQ")
"""``fuse_out_header`` and ``fuse_notify_prune_out``; the node ids follow."""
_INVALIDATE_ENTRY = 3
_PRUNE = 9
_NO_PARENT = 0
"""In place of a directory's node id: what follows is no name, but node ids to prune."""
_MOST_PRUNED = 500
_LARGEST_MESSAGE_BYTES = 4096
_PAUSE_SECONDS = 1.0
_THREADS = 8  # so many names can wait for locks before others have to wait for them


class Invalidator:
    """Invalidates names in the mount with the descriptor ``device``. Safe to use from any thread."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._queue: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._channel = self._start()
        threading.Thread(target=self._send_all, name="invalidator", daemon=True).start()

    def invalidate(self, parent: int, name: bytes) -> None:
        """Invalidate a name in the directory with the node id ``parent``, soon: this returns at once."""
        self._queue.put((parent, name))

    def prune(self, nodes: Sequence[int]) -> None:
        """Make the kernel forget these nodes soon, except those that it uses. This returns at once."""
        for first in range(0, len(nodes), _MOST_PRUNED):
            ids = nodes[first : first + _MOST_PRUNED]
            self._queue.put((_NO_PARENT, struct.pack(f"={len(ids)}Q", *ids)))

    def invalidate_now(self, parent: int, name: bytes) -> None:
        """Invalidate a name; return when the kernel no longer has it. Raises ``OSError`` if that remains unknown."""
        if not (self._ask(parent, name) or self._ask(parent, name)):
            raise OSError(errno.EIO, "the process that tells the kernel has been killed")

    def close(self) -> None:
        """Make the process end, without waiting for it."""
        self._closed.set()
        self._queue.put(None)
        with self._lock:
            self._channel.close()

    def _send_all(self) -> None:
        while (name := self._queue.get()) is not None:
            while not self._closed.is_set():
                try:
                    self._send(*name)
                    break
                except OSError:  # the process is gone, and a new one can't be started now
                    self._closed.wait(_PAUSE_SECONDS)

    def _ask(self, parent: int, name: bytes) -> bool:
        here, there = socket.socketpair()
        with here:
            with there:
                self._send(parent, name, there.fileno())
            return here.recv(1) != b""

    def _send(self, parent: int, name: bytes, *answer_to: int) -> None:
        message = _PARENT.pack(parent) + name
        with self._lock:
            try:
                socket.send_fds(self._channel, [message], list(answer_to))
            except OSError:  # the process was killed
                if self._closed.is_set():
                    raise
                self._channel.close()
                self._channel = self._start()
                socket.send_fds(self._channel, [message], list(answer_to))

    def _start(self) -> socket.socket:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptors = (there.fileno(), self._device)
        with there:
            command = [sys.executable, "-I", "-S", __file__, *map(str, descriptors)]
            # It ends when ``here`` is closed. A session of its own: Ctrl-C is for the daemon only.
            subprocess.Popen(command, pass_fds=descriptors, stdin=subprocess.DEVNULL, env={}, start_new_session=True)
        return here


def notice(parent: int, name: bytes) -> bytes:
    """Return the FUSE_NOTIFY_INVAL_ENTRY message to write to the mount's descriptor."""
    length = _NOTICE.size + len(name) + 1
    return _NOTICE.pack(length, _INVALIDATE_ENTRY, 0, parent, len(name), 0) + name + b"\0"


def prune_notice(ids: bytes) -> bytes:
    """Return the FUSE_NOTIFY_PRUNE message for packed node ids."""
    count = len(ids) // _PARENT.size
    return _PRUNE_NOTICE.pack(_PRUNE_NOTICE.size + len(ids), _PRUNE, 0, count, 0, 0) + ids


def _work(device: int, queue: SimpleQueue[tuple[bytes, list[int]]]) -> None:
    while True:
        message, answer_to = queue.get()
        (parent,) = _PARENT.unpack_from(message)
        what = message[_PARENT.size :]
        with suppress(OSError):  # the kernel does not know the name, or the mount is gone
            os.write(device, prune_notice(what) if parent == _NO_PARENT else notice(parent, what))
        for fd in answer_to:
            with suppress(BrokenPipeError):
                os.write(fd, b"1")
            os.close(fd)


def main() -> None:
    """Run until the daemon ends."""
    channel, device = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    queue: SimpleQueue[tuple[bytes, list[int]]] = SimpleQueue()
    for _ in range(_THREADS):
        threading.Thread(target=_work, args=(device, queue), daemon=True).start()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _LARGEST_MESSAGE_BYTES, 1)
        if not message:
            os._exit(0)
        queue.put((message, list(descriptors)))


if __name__ == "__main__":
    main()
