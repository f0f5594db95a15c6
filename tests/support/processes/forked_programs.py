"""Daemons and commands forked from a process that has loaded them already, which is most of what a start costs.

All else is as after an exec: environment, directory, standard streams and descriptors are the new process's own, and it is a
child of the one that asked for it. ``Node`` and ``programs.holdfast`` start so where nothing about the process is special.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_LONGEST = 1 << 20
DAEMON, _COMMAND = "holdfast.daemon", "holdfast"
_OF_A_LOADED_PROGRAM = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "TERM", "COLUMNS", "NO_COLOR", "FORCE_COLOR")
"""Variables that take effect when a program is loaded begin so."""


class ForkedProcess:
    """A forked process, as ``subprocess.Popen`` shows one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or minus a signal's number; None while the process runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises ``subprocess.TimeoutExpired``."""
        if self.poll() is None:
            pidfd = os.pidfd_open(self.pid)
            try:
                if not select.select([pidfd], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("holdfast", timeout or 0.0)
            finally:
                os.close(pidfd)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the process."""
        self.send_signal(signal.SIGKILL)


def forked_daemon(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], ready: int, log: int
) -> ForkedProcess | None:
    """Return a daemon that runs ``module``, which is ``DAEMON`` or begins with an import of it and runs it then.

    None if it must be loaded anew, because what is loaded already was loaded with other variables.
    """
    return _forks().fork(module, arguments, environment, [log, log, ready])


def forked_command(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str] | None:
    """Run ``holdfast``; return its status and what it prints. None as ``forked_daemon``."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = _forks().fork(_COMMAND, arguments, environment, [out.fileno(), err.fileno()])
        if process is None:
            return None
        try:
            status = process.wait()
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return status, out.read(), err.read()


class _Forks:
    """The process that forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded_with = _of_a_loaded_program(os.environ)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        atexit.register(self._end)

    def fork(
        self, program: str, arguments: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int]
    ) -> ForkedProcess | None:
        """Fork a program, with its standard output and error, and the number of a third descriptor if it needs one."""
        if _of_a_loaded_program(environment) != self._loaded_with:
            return None
        request = {"program": program, "arguments": arguments, "environment": dict(environment), "directory": os.getcwd()}
        with self._lock:
            _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # its parent ends, and this process becomes its parent
            try:
                socket.send_fds(self._channel, [json.dumps(request).encode()], list(descriptors))
                return ForkedProcess(int(self._channel.recv(64)))
            finally:
                _LIBC.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def _forks() -> _Forks:
    return _Forks()


def _of_a_loaded_program(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_A_LOADED_PROGRAM)}


# --- in the other process ---------------------------------------------------------------------------------------------


def _serve(channel: socket.socket) -> None:
    gc.collect()
    gc.freeze()
    while True:
        text, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 3)
        if not text:
            return
        channel.send(b"%d" % _orphan(channel, json.loads(text), descriptors))
        for fd in descriptors:
            os.close(fd)


def _orphan(channel: socket.socket, request: dict[str, Any], descriptors: list[int]) -> int:
    """Fork a process whose parent has ended; return its process id."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        pid = os.fork()
        if pid:
            os.write(writer, b"%d" % pid)
            os._exit(0)
        for fd in (reader, writer, channel.detach()):
            os.close(fd)
        _run(request, *descriptors)
    os.close(writer)
    os.waitpid(parent, 0)
    with open(reader) as told:
        return int(told.read())


def _run(request: dict[str, Any], out: int, err: int, *ready: int) -> NoReturn:
    """Be the program, and end."""
    status: object = 1
    try:
        for fd, stream in ((out, 1), (err, 2)):
            os.dup2(fd, stream)
            os.close(fd)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        gc.unfreeze()
        options = [word for number in ready for word in ("--ready-fd", str(number))]
        sys.argv = [request["program"], *request["arguments"], *options]
        sys.orig_argv = [sys.executable, "-m", *sys.argv]
        if request["program"] in _LOADED:
            _LOADED[request["program"]]()
        else:
            runpy.run_module(request["program"], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:  # noqa: BLE001 nothing of this process may go on as the one that forks
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    from holdfast import cli, daemon

    _LOADED = {DAEMON: daemon.run, _COMMAND: cli.main}
    with socket.socket(fileno=int(sys.argv[1])) as _channel:
        _serve(_channel)
