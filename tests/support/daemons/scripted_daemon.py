"""A program for ``holdfast.supervision.supervisor`` to keep: ``python scripted_daemon.py LOG RUN…``.

Each start carries out the next RUN, words with commas between: ``ready``; ``hold`` (``first`` and ``second``, a socket pair,
and ``third``, the first once more); ``let-go=NAME``; ``hold-dead`` (``dead``, whose other end is closed); ``wait`` (for
SIGTERM); ``exit=N``; ``kill``; ``alive`` and ``unwatch`` (to the watchdog);
``silent=SECONDS``; ``deaf`` (to SIGABRT). LOG gets a line for each start: the names of the descriptors that came with it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    log = Path(sys.argv[1])
    count = len(log.read_text().splitlines()) if log.exists() else 0
    with log.open("a") as lines:
        lines.write(os.environ.get("LISTEN_FDNAMES", "-") + "\n")
    for word in sys.argv[2 + count].split(","):
        name, _, value = word.partition("=")
        ACTIONS[name](value)


def tell(message: str, *descriptors: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(os.environ["NOTIFY_SOCKET"])
        socket.send_fds(channel, [message.encode()], list(descriptors))


def hold(value: str) -> None:
    first, second = socket.socketpair()
    tell("FDSTORE=1\nFDNAME=first", first.fileno())
    tell("FDSTORE=1\nFDNAME=second", second.fileno())
    tell("FDSTORE=1\nFDNAME=third", first.fileno())


def hold_dead(value: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    tell("FDSTORE=1\nFDNAME=dead", writer)


def wait(value: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    tell("READY=1")
    sys.stderr.write("waiting\n")
    sys.stderr.flush()
    signal.sigwait([signal.SIGTERM])


ACTIONS: dict[str, Callable[[str], object]] = {
    "ready": lambda value: tell("READY=1"),
    "hold": hold,
    "let-go": lambda value: tell(f"FDSTOREREMOVE=1\nFDNAME={value}"),
    "hold-dead": hold_dead,
    "wait": wait,
    "alive": lambda value: tell("WATCHDOG=1"),
    "unwatch": lambda value: tell("WATCHDOG_USEC=0"),
    "silent": lambda value: select.select([], [], [], float(value)),
    "deaf": lambda value: signal.signal(signal.SIGABRT, signal.SIG_IGN),
    "exit": lambda value: os._exit(int(value)),
    "kill": lambda value: os.kill(os.getpid(), signal.SIGKILL),
}

if __name__ == "__main__":
    main()
