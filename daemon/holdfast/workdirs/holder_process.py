"""Processes and volumes that hold something.

Processes are found, distinguished from later ones with the same number, and waited for.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import trio

from holdfast.errors import ConfigurationError
from holdfast.system.processes import leader_of, numbers_of, real_ids

_PROC = Path("/proc")
_STARTED_FIELD = 22  # proc(5), /proc/PID/stat: starttime, in clock ticks after boot
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume of a pod (``NAMESPACE/NAME``), which holds a directory until it is released, over restarts of the machine."""

    id: str
    pod: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its number, its start time (clock ticks after boot), and its program's name, which it may change."""

    pid: int
    started_ticks: int
    command: str = field(compare=False)

    @classmethod
    def find(cls, pid: int) -> Process:
        """Return the process that ``pid``, or the thread ``pid``, belongs to. Raises ``ConfigurationError``."""
        try:
            leader = leader_of(pid)
            return cls(leader, _started(leader), _command(leader))
        except (OSError, ValueError):
            raise ConfigurationError(f"there is no process {pid}") from None

    def user(self) -> tuple[int, int]:
        """Return uid and gid of the user whose process it is, also if it runs a set-id program.

        Raises ``ConfigurationError`` if it has ended.
        """
        try:
            ids = real_ids(self.pid)
            if _started(self.pid) == self.started_ticks:  # otherwise they may be those of a later process
                return ids
        except (OSError, ValueError):
            pass
        raise ConfigurationError(f"there is no process {self.pid}")

    def is_alive(self) -> bool:
        """Say whether the process runs. A later one with the same number is another process; a zombie does not run.

        It runs as long as any of its threads does (pidfd_open(2)); the state in /proc/PID/stat is only the first thread's.
        If the check fails, the process counts as alive, because its directory would be emptied.
        """
        try:
            if _started(self.pid) != self.started_ticks:
                return False
            fd = os.pidfd_open(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False
        except OSError:  # for example, too many open files
            return True
        try:
            return not _has_ended(fd)
        finally:
            os.close(fd)

    async def wait_end(self) -> None:
        """Return when the process has ended. Polls if waiting fails, for example with too many open files."""
        while self.is_alive():
            try:
                await self._wait()
            except OSError:
                await trio.sleep(_PAUSE_SECONDS)
            else:
                return

    async def _wait(self) -> None:
        """Wait until the process has ended (pidfd_open(2)). Raises ``OSError``."""
        fd = os.pidfd_open(self.pid)
        try:
            if _started(self.pid) == self.started_ticks:  # otherwise the number was reused
                await trio.lowlevel.wait_readable(fd)
        finally:
            os.close(fd)


def is_own_namespace(namespace: int) -> bool:
    """Say whether a process namespace, by its inode number, is the daemon's own; 0 stands for that."""
    return namespace in (0, _namespace("self"))


def number_here(pid: int, namespace: int) -> int:
    """Return the daemon's number for the process with the number ``pid`` in another process namespace.

    ``namespace`` is the inode number of /proc/PID/ns/pid (pid_namespaces(7)); 0 is the daemon's own. Raises
    ``ConfigurationError`` if the daemon doesn't see the process. May look at all processes, so call it in a thread.
    """
    if is_own_namespace(namespace):
        return pid
    if len(numbers_of("self")) == 1:  # otherwise /proc has numbers of an outer namespace, unfit for pidfd_open(2)
        for process in filter(str.isdecimal, os.listdir(_PROC)):
            with suppress(OSError, ValueError):  # it has ended, or belongs to another user
                if numbers_of(process)[-1] == pid and _namespace(process) == namespace:
                    return int(process)
    raise ConfigurationError(
        f"who asks is in another process namespace than the daemon, which sees no process {pid} there: nobody would know "
        "when it ends; run the daemon in the host's process namespace (docker run --pid host), or ask from the daemon's"
    )


def _started(pid: int) -> int:
    """Return when a process started. Fields are counted after the program's name, which may contain anything."""
    return int((_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[_STARTED_FIELD - 3])


def _command(pid: int) -> str:
    """Return the name of a process's program: its first 15 bytes, maybe with half a character at the end."""
    return (_PROC / str(pid) / "comm").read_text(errors="replace").strip()


def _namespace(process: str) -> int:
    return (_PROC / process / "ns/pid").stat().st_ino


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()  # select(2) takes no descriptor above 1,023
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
