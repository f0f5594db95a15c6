"""The exit status of a command that fails: one number for each kind of error, as sysexits.h has them.

1 is for checks that found something, and for errors of no other kind.
"""

from __future__ import annotations

import errno as errnos
from enum import IntEnum

from holdfast.control.client import RefusedError
from holdfast.errors import HoldfastError, NotInstalledError, OutputError


class ExitStatus(IntEnum):
    """The statuses, and what a script may conclude. ``docs/operations.md`` has the same table."""

    FAILED = 1
    """An error of no other kind, or a check that found a problem."""
    USAGE = 2
    """The command line is wrong."""
    NOT_THERE = 66
    """The path or plan that was named is not there, or lies outside the mount."""
    NO_DAEMON = 69
    """No daemon answers on the socket, or the packages are not installed that the command needs."""
    STORE_OR_DISK = 74
    """A store, the disk, the network or the command's own output failed, or has no room."""
    BUSY = 75
    """Somebody else has it, or it has changed meanwhile: try again later."""
    NO_RIGHT = 77
    """This user may not do that."""
    CONFIGURATION = 78
    """The configuration, or a value on the command line, is invalid."""


HINTS = {
    ExitStatus.FAILED: "'holdfast doctor' and the daemon's log tell more",
    ExitStatus.USAGE: "'holdfast --help', and --help after each command, tell what can be given",
    ExitStatus.NOT_THERE: "check the name; 'holdfast ls' lists what is there",
    ExitStatus.NO_DAEMON: "'holdfast doctor' says why; 'holdfast mount' or systemd starts a daemon",
    ExitStatus.STORE_OR_DISK: "'holdfast doctor' says which store or disk",
    ExitStatus.BUSY: "try again later",
    ExitStatus.NO_RIGHT: "ask as root, or as a member of the control socket's group",
    ExitStatus.CONFIGURATION: "'holdfast config show' prints each value and where it comes from",
}
"""Advice on errors of each kind; the message of the error itself is more exact."""

_BY_ERRNO = {
    **dict.fromkeys((errnos.ENOENT, errnos.EXDEV, errnos.ENAMETOOLONG), ExitStatus.NOT_THERE),
    errnos.ECONNREFUSED: ExitStatus.NO_DAEMON,
    **dict.fromkeys((errnos.ENOSPC, errnos.EDQUOT, errnos.EROFS, errnos.EBADF), ExitStatus.STORE_OR_DISK),
    **dict.fromkeys((errnos.EBUSY, errnos.EAGAIN, errnos.ESTALE, errnos.ENFILE), ExitStatus.BUSY),
    **dict.fromkeys((errnos.EACCES, errnos.EPERM), ExitStatus.NO_RIGHT),
    errnos.EINVAL: ExitStatus.CONFIGURATION,
}
_OF_STORES = ("remote", "object-", OutputError.code)


def exit_status(problem: HoldfastError | OSError) -> ExitStatus:
    """Return the status for an error, the daemon's or the command's own."""
    if isinstance(problem, RefusedError):
        return _status(problem.failure.code, problem.failure.errno)
    code = problem.code if isinstance(problem, HoldfastError) else ""
    return _status(code, problem.errno or 0)


def code_of(problem: HoldfastError | OSError) -> str:
    """Return the stable word for an error."""
    if isinstance(problem, RefusedError):
        return problem.failure.code
    return problem.code if isinstance(problem, HoldfastError) else "system-call"


def _status(code: str, number: int) -> ExitStatus:
    if code.startswith(_OF_STORES):
        return ExitStatus.STORE_OR_DISK
    if code == NotInstalledError.code:
        return ExitStatus.NO_DAEMON
    return _BY_ERRNO.get(number, ExitStatus.FAILED)
