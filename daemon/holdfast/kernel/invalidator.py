"""Making the kernel forget a name, in a process of its own.

The kernel takes the lock of the name's directory for that, and whoever waits for an answer in that directory has it. Nothing
ends a thread that waits for such a lock: a daemon that is killed meanwhile would not end before the next one answers, which
can't begin before this one has ended. So another process waits. It has the mount's descriptor and nothing else, and
starts and ends with the daemon.

This file is that process's program too, and imports nothing but Python's own.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue

_PARENT = struct.Struct("=Q")
_NOTICE = struct.Struct("=IiQQII")
"""``fuse_out_header`` and ``fuse_notify_inval_entry_out`` (linux/fuse.h)."""
_INVALIDATE_ENTRY = 3
_LARGEST_MESSAGE_BYTES = 4096
_PAUSE_SECONDS = 1.0
_THREADS = 8  # names that wait for a lock keep others waiting only when there are so many


class Invalidator:
    """Makes the kernel forget names in the mount that is served by the descriptor ``device``. For any thread."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._left: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._channel = self._start()
        threading.Thread(target=self._send_all, name="invalidator", daemon=True).start()

    def invalidate(self, parent: int, name: bytes) -> None:
        """Have the name in the directory with that node id forgotten, soon. For the event loop: returns at once."""
        self._left.put((parent, name))

    def invalidate_now(self, parent: int, name: bytes) -> None:
        """Return when the kernel has forgotten the name, or has not known it. Raises ``OSError`` when that can't be told."""
        if not (self._ask(parent, name) or self._ask(parent, name)):
            raise OSError(errno.EIO, "the process that tells the kernel has been killed")

    def close(self) -> None:
        """Let the process end; do not wait until it has."""
        self._closed.set()
        self._left.put(None)
        with self._lock:
            self._channel.close()

    def _send_all(self) -> None:
        while (left := self._left.get()) is not None:
            while not self._closed.is_set():
                try:
                    self._send(*left)
                    break
                except OSError:  # there is no process, and none can be started now
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
            except OSError:  # it was killed
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
            # It ends when ``here`` is closed, and not by the Ctrl-C that is meant for the daemon.
            subprocess.Popen(command, pass_fds=descriptors, stdin=subprocess.DEVNULL, start_new_session=True)
        return here


def notice(parent: int, name: bytes) -> bytes:
    """Return what is written to the mount's descriptor."""
    length = _NOTICE.size + len(name) + 1
    return _NOTICE.pack(length, _INVALIDATE_ENTRY, 0, parent, len(name), 0) + name + b"\0"


def _work(device: int, left: SimpleQueue[tuple[bytes, list[int]]]) -> None:
    while True:
        message, answer_to = left.get()
        (parent,) = _PARENT.unpack_from(message)
        with suppress(OSError):  # the kernel does not know the name, or the mount is gone
            os.write(device, notice(parent, message[_PARENT.size :]))
        for fd in answer_to:
            with suppress(BrokenPipeError):
                os.write(fd, b"1")
            os.close(fd)


def main() -> None:
    """Run until the daemon has ended."""
    channel, device = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    left: SimpleQueue[tuple[bytes, list[int]]] = SimpleQueue()
    for _ in range(_THREADS):
        threading.Thread(target=_work, args=(device, left), daemon=True).start()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _LARGEST_MESSAGE_BYTES, 1)
        if not message:
            os._exit(0)
        left.put((message, list(descriptors)))


if __name__ == "__main__":
    main()
