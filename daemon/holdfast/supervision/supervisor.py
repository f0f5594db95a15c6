"""``holdfast mount --supervise``: a small process that keeps the mount alive between daemons.

It starts holdfastd, holds the descriptors that the daemon gives it, and when the daemon dies starts it again with them. To
the daemon it looks like systemd (``service_manager``). It ends when the daemon ends normally, and when the mount is gone. It
imports little, so that little can go wrong and an upgrade need not replace it.

A daemon that was never ready is not started again: its error must reach the process that waits for it.
"""

from __future__ import annotations

import argparse
import errno
import json
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

from holdfast.mount import mountpoint
from holdfast.supervision.held_descriptors import HeldDescriptors, Message, messages, out_of_the_way, private_socket
from holdfast.supervision.service_manager import FIRST_DESCRIPTOR, RESTART_STATUS

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
_MOST_FAILED_STARTS = 5
"""The number of daemons in a row that end by themselves before they are ready, with a keeper: some seconds' worth."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WATCHDOG_SECONDS = 30.0
_PORTIONS = 20
"""The number of portions in which the watchdog counts time: a machine that was suspended has not been silent."""
_ABORT_SECONDS = 2.0
"""The time from SIGABRT, at which a daemon that still can prints where it hangs, to SIGKILL."""
_KILLED = 128  # plus the signal's number: the exit status that shells use


class Supervisor:
    """Runs ``command``, the daemon of the mount at ``path``; the notification socket is made in ``directory``."""

    def __init__(
        self,
        command: list[str],
        directory: Path,
        path: str,
        ready_fd: int | None,
        options_fd: int | None,
        watchdog_seconds: float,
        *,
        is_kept: bool,
    ) -> None:
        self._command = command
        self._is_kept = is_kept
        """True if a keeper holds the mount too: then it outlives this process."""
        self._watchdog_seconds = watchdog_seconds
        self._silent_portions: int | None = None
        """The number of portions without a sign of life; None until the daemon gives the first one, and from its end on."""
        self._path = path
        self._ready_fd = ready_fd
        self._options_fd = options_fd
        self._held = HeldDescriptors()
        self._stopping = False
        self._was_ready = False
        self._failed_starts = 0
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        _remove_dead_sockets(directory)
        self._address = str(directory / f"holder-{os.urandom(3).hex()}.sock")  # a pid would not do: in containers it repeats
        self._messages = private_socket(self._address, socket.SOCK_DGRAM)
        self._woken, waker = socket.socketpair()
        self._woken.setblocking(False)
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.detach())
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)  # the number is read from the wake-up socket

    def run(self) -> int:
        """Run until the daemon has ended for good; return the exit status."""
        try:
            while True:
                status = self._run_daemon()
                if self._is_the_last(status) or not self._pause(status):
                    return status if status >= 0 else _KILLED - status
        finally:
            self._messages.close()
            os.unlink(self._address)
            self._clear_away()

    def _is_the_last(self, status: int) -> bool:
        """Say whether no daemon follows the one that has ended with ``status``.

        With a keeper, one that can't start is not tried for ever: the mount waits there, and whoever has started this
        process, as kubelet, is told.
        """
        if status > 0 and status != RESTART_STATUS:
            self._failed_starts += 1
        gives_up = self._is_kept and self._failed_starts >= _MOST_FAILED_STARTS
        return status == 0 or self._stopping or not self._was_ready or gives_up

    def _run_daemon(self) -> int:
        """Start the daemon and wait until it has ended; return its exit status, or minus a signal's number."""
        pid = self._start()
        ended = os.pidfd_open(pid)
        was_told = False
        self._silent_portions = None
        try:
            while not self._wait([ended], self._watchdog_seconds / _PORTIONS):
                if self._stopping and not was_told:
                    signal.pidfd_send_signal(ended, signal.SIGTERM)
                    was_told = True
                if self._silent_portions is not None and self._silent_portions >= _PORTIONS:
                    self._end_hang(ended)
        finally:
            os.close(ended)
        self._take_messages()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        _bury_orphans()
        return status

    def _end_hang(self, ended: int) -> None:
        _say(f"the daemon has given no sign of life for {self._watchdog_seconds:g} s: killing it")
        self._silent_portions = None
        signal.pidfd_send_signal(ended, signal.SIGABRT)
        if not self._wait([ended], _ABORT_SECONDS):
            signal.pidfd_send_signal(ended, signal.SIGKILL)

    def _start(self) -> int:
        command = list(self._command)
        if self._options_fd is not None:
            command += ["--options-fd", str(self._options_fd)]
        if self._ready_fd is not None:
            command += ["--ready-fd", str(self._ready_fd)]
        pid = os.fork()
        if pid == 0:
            self._exec(command)
        if self._ready_fd is not None:
            os.close(self._ready_fd)
            self._ready_fd = None
        return pid

    def _exec(self, command: list[str]) -> NoReturn:
        try:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            environment = {**os.environ, "NOTIFY_SOCKET": self._address, "WATCHDOG_PID": str(os.getpid())}
            environment["WATCHDOG_USEC"] = str(int(self._watchdog_seconds * 1e6))
            if self._held:
                for at, fd in enumerate(self._held.values()):
                    os.dup2(fd, FIRST_DESCRIPTOR + at)
                environment["LISTEN_PID"] = str(os.getpid())
                environment["LISTEN_FDS"] = str(len(self._held))
                environment["LISTEN_FDNAMES"] = ":".join(self._held)
            for inherited in (self._ready_fd, self._options_fd):
                if inherited is not None:
                    os.set_inheritable(inherited, True)
            os.execvpe(command[0], command, environment)
        finally:
            os._exit(127)

    def _wait(self, readable: list[int], seconds: float) -> bool:
        """Wait for one of ``readable``, a message or a signal, and handle the latter two; say whether one is readable."""
        poll = select.poll()
        for fd in (*readable, self._messages.fileno(), self._woken.fileno()):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        if not ready and self._silent_portions is not None:
            self._silent_portions += 1
        self._take_messages()
        with suppress(BlockingIOError):
            self._stopping = self._stopping or any(number in _SIGNALS for number in self._woken.recv(64))
        return not ready.isdisjoint(readable)

    def _take_messages(self) -> None:
        for message, descriptors in messages(self._messages):
            self._held.take(message, descriptors)
            self._obey(message)

    def _obey(self, message: Message) -> None:
        if "READY" in message:
            self._was_ready = True
            self._failed_starts = 0
            self._pause_seconds = _FIRST_PAUSE_SECONDS
        if "WATCHDOG" in message:
            self._silent_portions = 0
        if message.get("WATCHDOG_USEC") == "0":
            self._silent_portions = None

    def _pause(self, status: int) -> bool:
        """Wait before the daemon is started again; False if it must not be."""
        if status != RESTART_STATUS:
            _say(f"the daemon has ended with {status}; it is started again in {self._pause_seconds:g} s")
            until = time.monotonic() + self._pause_seconds
            self._pause_seconds = min(_LONGEST_PAUSE_SECONDS, self._pause_seconds * 2)
            while not self._stopping and (left := until - time.monotonic()) > 0:
                self._wait([], left)
        return not self._stopping and not self._mount_is_gone()

    def _mount_is_gone(self) -> bool:
        """Say whether somebody has unmounted, so that the held descriptors are useless.

        The descriptors alone do not show it: after a lazy unmount, open files keep the file system alive.
        """
        if not self._held:
            return False
        if mountpoint.mounted_on(self._path) is None:
            return True
        return len(self._held.dead()) == len(self._held)

    def _clear_away(self) -> None:
        """Unmount if nobody serves the mount any more, nor keeps it, and close what was held."""
        if self._held and not self._is_kept and not self._mount_is_gone() and mountpoint.mounted_on(self._path) is not None:
            _say(f"nobody serves {self._path} any more: unmounting it")
            mountpoint.detach(self._path)
        self._held.let_all_go()


def _bury_orphans() -> None:
    """Take the ends of processes that dead daemons have left: they are this one's if it is the first of its namespace."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _remove_dead_sockets(directory: Path) -> None:
    """Remove the sockets of supervisors that were killed."""
    for path in directory.glob("holder-*.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            try:
                channel.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError as problem:
                _say(f"leaving {path} alone: {problem.strerror}")


def _say(text: str) -> None:
    sys.stderr.write(f"holdfast supervisor: {text}\n")
    sys.stderr.flush()


def main() -> int:
    """Run the command given after the options."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it has the credentials that its daemons get
    parser = argparse.ArgumentParser(
        prog="holdfast.supervision.supervisor", description="Holds a mount while its daemon is replaced."
    )
    parser.add_argument("--directory", type=Path, required=True, help="where the notification socket is made")
    parser.add_argument("--mountpoint", required=True, help="the mountpoint, without symbolic links")
    parser.add_argument("--ready-fd", type=int, help="goes to the first daemon")
    parser.add_argument("--options-fd", type=int, help="goes to every daemon")
    parser.add_argument(
        "--watchdog", type=float, default=_WATCHDOG_SECONDS, metavar="SECONDS", help="how long a daemon may be silent"
    )
    parser.add_argument("--kept", action="store_true", help="a keeper holds the mount too: leave it when this process ends")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    ready_fd, options_fd = (_moved(fd) for fd in (options.ready_fd, options.options_fd))
    try:
        options.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        supervisor = Supervisor(
            options.command,
            options.directory,
            options.mountpoint,
            ready_fd,
            options_fd,
            options.watchdog,
            is_kept=options.kept,
        )
    except OSError as problem:
        _give_up(options.directory, problem.strerror or "the path is too long for a socket; 80 bytes will do", ready_fd)
        return 1
    return supervisor.run()


def _moved(fd: int | None) -> int | None:
    if fd is None:
        return None
    moved = out_of_the_way(fd)
    os.close(fd)
    return moved


def _give_up(directory: Path, reason: str, ready_fd: int | None) -> None:
    """Report the reason to the process that waits for the daemon to be ready."""
    message = f"control.socket: can't make a socket in {directory}: {reason}; set control.socket (--socket)"
    _say(message)
    if ready_fd is not None:
        told = {"ready": False, "code": "configuration", "errno": errno.EINVAL, "message": message}
        os.write(ready_fd, json.dumps(told).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
