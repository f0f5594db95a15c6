"""``holdfast keeper DIRECTORY``: a process that holds a mount for a daemon which lives elsewhere, as in another pod.

It starts nothing and needs no rights. In the directory, which it makes its own, are

- ``notify.sock``: descriptors come here, as systemd's store gets them (``held_descriptors``);
- ``keep.sock`` (SOCK_SEQPACKET): it says here which keeper it is, what it holds, and gives it back (``keeper_link``).

The protocol is fixed: daemons of other versions than the keeper's speak it (``docs/internals/takeover.md``). One daemon at a
time fetches what is held, and its connection says that it lives. When nobody has fetched for a while after that, the
keeper closes everything: whoever works in the mount gets an error then, and does not wait for ever.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from holdfast.supervision.held_descriptors import HeldDescriptors, messages, parsed, private_socket

VERSION = 1
"""The version of the protocol on ``keep.sock``. A keeper answers daemons of each version from 1 to its own."""
NOTIFY, KEEP = "notify.sock", "keep.sock"
ABANDON_SECONDS = 600.0
_MOST_CONNECTIONS = 16
_MESSAGE_BYTES = 4096


class _DirectoryError(Exception):
    """The directory can't be used; the message says why."""


class Keeper:
    """The keeper in ``directory``, which nobody else may use. Raises ``_DirectoryError``."""

    def __init__(self, directory: Path, abandon_seconds: float) -> None:
        self.id = os.urandom(8).hex()
        self._held = HeldDescriptors()
        self._abandon_seconds = abandon_seconds
        self._abandoned_at: float | None = None
        """When everything is closed; None while a daemon lives, and while nothing is held."""
        self._fetcher: socket.socket | None = None
        self._connections: dict[int, socket.socket] = {}
        self._lock = _claimed(directory)
        try:
            for name in (NOTIFY, KEEP):
                (directory / name).unlink(missing_ok=True)
            self._messages = private_socket(str(directory / NOTIFY), socket.SOCK_DGRAM)
            self._listener = private_socket(str(directory / KEEP), socket.SOCK_SEQPACKET)
            self._listener.listen(_MOST_CONNECTIONS)
        except OSError as problem:
            raise _DirectoryError(f"can't make a socket in {directory}: {problem.strerror or problem}") from None

    def run(self) -> NoReturn:
        """Hold what daemons give."""
        while True:
            ready = self._wait()
            self._take_messages()  # first: who asks what is held has given it before
            for fd in sorted(ready.intersection(self._connections)):  # who has ended before who has come since
                self._answer(self._connections[fd])
            if self._listener.fileno() in ready:
                self._welcome()
            for name in self._held.dead():
                self._held.let_go(name)
                _say(f"the mount of {name} is gone")
            self._give_up_in_time()

    def _give_up_in_time(self) -> None:
        """Close everything when no daemon has come for so long that none will."""
        if not self._held or self._fetcher is not None:
            self._abandoned_at = None
        elif self._abandoned_at is None:
            self._abandoned_at = time.monotonic() + self._abandon_seconds
            _say(f"no daemon is there; the next one has {self._abandon_seconds:g} s to come")
        elif time.monotonic() >= self._abandoned_at:
            _say(f"no daemon has come: letting go of {', '.join(self._held)}")
            self._held.let_all_go()

    def _wait(self) -> set[int]:
        poll = select.poll()
        for fd in (self._messages.fileno(), self._listener.fileno(), *self._connections):
            poll.register(fd, select.POLLIN)
        for fd in self._held.values():
            poll.register(fd, 0)
        seconds = None if self._abandoned_at is None else max(0.0, self._abandoned_at - time.monotonic())
        return {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000 + 1)}

    def _take_messages(self) -> None:
        before = set(self._held)
        for message, descriptors in messages(self._messages):
            self._held.take(message, descriptors)
        for what, names in (("holding", self._held.keys() - before), ("let go of", before - self._held.keys())):
            if names:
                _say(f"{what} {', '.join(sorted(names))}")

    def _welcome(self) -> None:
        with suppress(OSError):  # it has gone, or there are no descriptors left for it
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            if len(self._connections) >= _MOST_CONNECTIONS:
                connection.close()
                return
            self._connections[connection.fileno()] = connection
            self._tell(connection, f"KEEPER={self.id}\nVERSION={VERSION}")

    def _answer(self, connection: socket.socket) -> None:
        try:
            request = parsed(connection.recv(_MESSAGE_BYTES))
        except BlockingIOError:
            return
        except OSError:
            request = {}
        if not request:
            self._part(connection)
        elif "FETCH" in request and self._fetcher not in (None, connection):
            self._tell(connection, "ERROR=another daemon lives that has fetched what is held")
        elif "FETCH" in request:
            self._fetcher = connection
            self._tell(connection, self._names(), *self._held.values())
        elif "LIST" in request:
            self._tell(connection, self._names())
        else:
            self._tell(connection, "ERROR=an unknown request")

    def _names(self) -> str:
        return f"NAMES={':'.join(self._held)}"

    def _tell(self, connection: socket.socket, message: str, *descriptors: int) -> None:
        try:
            socket.send_fds(connection, [message.encode()], descriptors)
        except OSError:
            self._part(connection)

    def _part(self, connection: socket.socket) -> None:
        if self._connections.pop(connection.fileno(), None) is None:
            return
        if connection is self._fetcher:
            self._fetcher = None
        connection.close()


def _claimed(directory: Path) -> int:
    """Make the directory this process's own, and return a descriptor that keeps other keepers away."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.fstat(fd).st_uid != os.geteuid():
            raise _DirectoryError(f"{directory} belongs to another user; give the keeper a directory of its own")
        if not {NOTIFY, KEEP}.issuperset(os.listdir(fd)):
            raise _DirectoryError(f"{directory} has other files in it; give the keeper a directory of its own")
        os.fchmod(fd, 0o700)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _DirectoryError(f"another keeper uses {directory}") from None
    except OSError as problem:
        raise _DirectoryError(f"{directory} can't be used: {problem.strerror}") from None
    return fd


def _say(text: str) -> None:
    sys.stderr.write(f"holdfast keeper: {text}\n")
    sys.stderr.flush()


def main() -> NoReturn:
    """Run a keeper until SIGTERM."""
    for number in (signal.SIGTERM, signal.SIGINT):  # the first process of a container ends only by a handler of its own
        signal.signal(number, lambda *_: os._exit(0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parser = argparse.ArgumentParser(prog="holdfast keeper", description="Holds a mount for a daemon that lives elsewhere.")
    parser.add_argument("directory", type=Path, help="a directory of the keeper's own, which it makes if need be")
    parser.add_argument("--abandon", type=float, default=ABANDON_SECONDS, metavar="SECONDS")
    options = parser.parse_args()
    try:
        keeper = Keeper(options.directory, options.abandon)
    except _DirectoryError as problem:
        _say(str(problem))
        sys.exit(1)
    _say(f"ready in {options.directory}")
    keeper.run()


if __name__ == "__main__":
    main()
