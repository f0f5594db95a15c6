"""A process that asks the mount whether the daemon answers, and leaves a note when it does not.

The daemon may not ask its own mount: a thread that waits for its own process's answer keeps a killed daemon from ending, and
the next one from starting. So another process asks, whenever the daemon wants to know. It can wait for ever.

If the daemon stops asking, or its mount stops answering, the process writes down which of the two, for the next daemon: one
that hangs can say nothing. One that has ended does not hang: then nothing is written, however late the next one answers.
The process removes the note once the daemon has come round, that is, asks again in time after an answer: a stopped daemon
that is killed may run on for a moment, and ask or answer. A daemon that somebody has stopped (SIGSTOP, a debugger) does
nothing wrong, so the note has a second line then. Time is counted in portions, so that a machine that was suspended has not
been silent.

This file is also that process's program, and so imports only the standard library.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

_PORTIONS = 20
_QUESTION = b"?"
_ANSWER = b"!"
WAS_STOPPED = "it was stopped"
"""The second line of a note."""


class MountProbe:
    """Asks the mount at ``mountpoint``, for a daemon whose silence of ``patience_seconds`` is noted in the file ``note``."""

    def __init__(self, mountpoint: str, note: Path, patience_seconds: float) -> None:
        from holdfast.system.helper_programs import started

        options = mountpoint, str(note), str(patience_seconds / _PORTIONS)
        self.channel, self._process = started(__file__, *options)
        self.channel.setblocking(False)

    def ask(self) -> None:
        """Ask the mount; ``channel`` is readable once it has answered. Raises ``OSError`` if the process was killed."""
        self.channel.send(_QUESTION)

    def has_answered(self) -> bool:
        """Say, once ``channel`` is readable, whether the mount has answered; False if the process was killed."""
        with suppress(ConnectionResetError):
            return self.channel.recv(1) == _ANSWER
        return False

    def close(self) -> None:
        """Make the process end, without waiting for it."""
        self.channel.close()
        self._process.poll()


def _wait(poll: select.poll, end: select.poll, note: Path, why: str, portion_seconds: float) -> bool:
    """Wait for an event; return whether it came in time. If not, the note is written, unless ``end`` has an event."""
    for _ in range(_PORTIONS):
        if poll.poll(portion_seconds * 1000):
            return True
    if not end.poll(0):
        with suppress(OSError):  # nowhere to write: then the next daemon knows less
            note.write_text(f"{why}\n{WAS_STOPPED}" if _is_stopped(os.getppid()) else why)
    poll.poll()
    return False


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:  # it can't be seen, which is no reason to write no note
        return False


def _ask(mountpoint: str, waker: int) -> None:
    with suppress(OSError):  # an error is an answer
        os.statvfs(mountpoint)
    os.write(waker, _ANSWER)


def _is_asked(channel: socket.socket) -> bool:
    """Read a question; False if the daemon has ended, which may leave an answer unread."""
    try:
        return channel.recv(1) == _QUESTION
    except ConnectionResetError:
        return False


def _poll(fd: int, events: int = select.POLLIN) -> select.poll:
    poll = select.poll()
    poll.register(fd, events)
    return poll


def main() -> None:
    """Run until the daemon ends."""
    channel, mountpoint = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    note, portion_seconds = Path(sys.argv[3]), float(sys.argv[4])
    reader, waker = os.pipe()
    asked, answered, ended = _poll(channel.fileno()), _poll(reader), _poll(channel.fileno(), 0)
    while True:
        is_in_time = _wait(asked, ended, note, "its event loop did not turn", portion_seconds)
        if not _is_asked(channel):
            break
        if is_in_time:
            note.unlink(missing_ok=True)
        threading.Thread(target=_ask, args=(mountpoint, waker), daemon=True).start()
        _wait(answered, ended, note, "its mount did not answer", portion_seconds)
        os.read(reader, 1)
        try:
            channel.send(_ANSWER)
        except BrokenPipeError:  # it was the next daemon that has answered: the note is for it
            break
    os._exit(0)


if __name__ == "__main__":
    main()
