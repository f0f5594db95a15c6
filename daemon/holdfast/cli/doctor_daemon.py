"""The checks of doctor on a daemon that answers: its configuration, its mount, its stores and its disk, as it sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.finding import Check, Finding
from holdfast.cli.options import asking_client
from holdfast.cli.output import counted, moment, size
from holdfast.control.client import RefusedError
from holdfast.control.messages import Status
from holdfast.errors import DaemonUnreachableError
from holdfast.mount import mountpoint
from holdfast.problems import DRAINING, LONG_UNSENT, STORE, is_clearly_below

_STATUS_SECONDS = 10.0
"""The time limit for the status, which takes milliseconds: a daemon that hangs must not hold up its own diagnosis."""
_TOLD_BY_OTHER_CHECKS = (STORE, DRAINING, LONG_UNSENT)


def asked(socket: Path) -> tuple[Status | None, Finding | None]:
    """Return the daemon's status, or None and why there is none, if somebody holds the socket."""
    try:
        with asking_client(socket, _STATUS_SECONDS) as client:
            return client.status(), None
    except DaemonUnreachableError as problem:
        if not socket.exists():
            return None, None
        return None, Finding("daemon", "fail", str(problem))
    except RefusedError as problem:
        return None, Finding("daemon", "fail", f"it refuses to tell its state: {problem}")


def checks(socket: Path, status: Status) -> list[tuple[str, Check]]:
    """Return the checks by name."""
    return [
        ("daemon", lambda: _daemon(status)),
        ("configuration", lambda: _configuration(socket, status)),
        ("mount", lambda: _mount(status)),
        ("mountpoint", lambda: _below(status)),
        ("stores", lambda: _stores(status)),
        ("disk", lambda: _disk(status)),
        ("node", lambda: _node(status)),
        ("unsent", lambda: _unsent(status)),
        ("zones", lambda: not_configured(status)),
    ]


def _daemon(status: Status) -> Iterator[Finding]:
    yield Finding("daemon", "ok", f"daemon {status.pid} serves {status.mountpoint} (data: {status.data_mode})")


def _configuration(socket: Path, status: Status) -> Iterator[Finding]:
    if status.is_public:
        mend = "run doctor as root or as a member of the socket's group"
        yield Finding("configuration", "warn", "the daemon does not tell this user of its configuration and its files", mend)
        return
    try:
        with asking_client(socket) as client:
            found = client.check_configuration()
    except RefusedError as problem:
        mend = "fix it now: 'holdfast restart' is refused until then, and after a crash no daemon could start"
        yield Finding("configuration", "fail", str(problem), mend)
        return
    if found.taken:
        mend = "holdfast config reload"
        yield Finding("configuration", "warn", f"changed, and not in force yet: {', '.join(found.taken)}", mend)
    if found.needs_restart:
        mend = "holdfast restart"
        yield Finding("configuration", "warn", f"changed, and needs a restart: {', '.join(found.needs_restart)}", mend)
    if not (found.taken or found.needs_restart):
        yield Finding("configuration", "ok", "in force, and the next daemon could start with it")


def _mount(status: Status) -> Iterator[Finding]:
    mount = mountpoint.mounted_on(status.mountpoint)
    if mount is None or mount.file_system != mountpoint.FILE_SYSTEM:
        mend = "run doctor in the mount namespace of the daemon (not in a container), or mount again"
        yield Finding("mount", "fail", f"Holdfast is not mounted on {status.mountpoint} in this mount namespace", mend)
    elif mountpoint.life(status.mountpoint) is not mountpoint.Life.ALIVE:
        mend = "'holdfast umount --lazy' takes it away if no daemon comes up"
        yield Finding("mount", "fail", f"{status.mountpoint} does not answer", mend)
    else:
        outlives = "outlives the daemon" if status.takeover == "takeover" else "ends with the daemon"
        yield Finding("mount", "ok", f"{status.mountpoint} answers, and {outlives}")


def _below(status: Status) -> Iterator[Finding]:
    """Report what could be written to the directory below the mount, or was."""
    if status.mountpoint_protection.startswith("unprotected"):
        mend = "let the mountpoint be a directory of the daemon's user; while nothing is mounted, others can write there"
        yield Finding("mountpoint", "warn", f"the directory below is {status.mountpoint_protection}", mend)
    elif status.mountpoint_protection:
        yield Finding("mountpoint", "ok", f"the directory below takes no writes: {status.mountpoint_protection}")
    if status.hidden_files:
        mend = f"'holdfast umount --release {status.mountpoint}', see whose they are and move them elsewhere, mount again"
        yield Finding("mountpoint", "warn", f"the mount hides files: {', '.join(status.hidden_files)}", mend)


def _stores(status: Status) -> Iterator[Finding]:
    for name, remote in status.remotes.items():
        if remote.up:
            yield Finding(name, "ok", f"{remote.url} answers the daemon")
            continue
        mend = (
            f"check the network, the credentials and stores.{name}.url; requests are retried, and cached files can be read"
        )
        yield Finding(name, "fail", f"{remote.url} is DOWN since {moment(remote.since)}: {remote.problem}", mend)


def _disk(status: Status) -> Iterator[Finding]:
    where = f" in {status.store}" if status.store else ""
    found = f"{size(status.free_bytes)} free{where}, {size(status.min_free_bytes)} kept free"
    if is_clearly_below(status.free_bytes, status.min_free_bytes):
        yield Finding("store", "fail", found, 'docs/operations.md, "The disk is full"')
    else:
        yield Finding("store", "ok", found)


def _node(status: Status) -> Iterator[Finding]:
    """Report what is wrong by the daemon's own word, but for what other checks say in more detail."""
    for problem in status.problems:
        if not problem.startswith(_TOLD_BY_OTHER_CHECKS):
            yield Finding("node", "fail", problem, 'docs/operations.md, "Troubleshooting", says what to do')


def _unsent(status: Status) -> Iterator[Finding]:
    if status.draining:
        yield Finding("draining", "warn", "it takes nothing new for its stores", "holdfast drain --undo ends that")
    if status.unsent_files:
        mend = "'holdfast flush --all' says why"
        yield Finding("unsent", "warn", f"{counted(status.unsent_files, 'file')} not sent to a store yet", mend)


def not_configured(status: Status) -> Iterator[Finding]:
    """Report zones that are no longer configured, and that have files which were never sent."""
    for name, files in status.not_configured.items():
        mend = (
            f"set stores.{name}.url again, or workdirs.base if working directories were in it: what was not sent is sent "
            f"then; or see to what is in {Path(status.store) / 'tree' / name}"
        )
        found = f"this zone is no longer configured; {counted(files, 'file')} of it never sent to a store"
        yield Finding(name, "fail", found, mend)
