"""The directory below the mountpoint, which takes no writes: the next mount would hide what was written there.

It is seen while nothing is mounted: before the first daemon of a boot, after an unmount, and for a moment where the kernel
can't put a new mount in the place of a dead one. What protects it:

- *immutable* (chattr +i), where its file system knows that and the daemon has CAP_LINUX_IMMUTABLE. It lasts over a reboot.
- *covered*: an empty directory that can't be written to is mounted on it, below Holdfast, and stays when that goes. A
  directory that holds something is both immutable and covered: what it holds would take writes all the same.
- *closed*: an ordinary user's daemon takes the right to write from the directory's owner, itself. fusermount3 mounts only
  where the user may write, so the right comes back for as long as that program runs. Meanwhile, and whenever nothing is
  mounted, there are *placeholders*: for each name that the mount has at its top a directory that nobody may enter. What
  works in the mount, works below one of these names, and fails there. Directories that were there before are *shut*: nobody
  may enter them either, until the release.

A directory that is immutable or closed has a *mark*, an extended attribute: only what Holdfast has done there is undone.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice

from holdfast.errors import MountpointBusyError, MountpointError, NotMountedError, UnusableMountpointError
from holdfast.mount import mount_calls, mountpoint
from holdfast.mount import protection_marks as marks
from holdfast.system.syscalls import rewound
from holdfast.system.text import printable, shown

IMMUTABLE, COVERED, CLOSED = "immutable", "covered", "closed"
_log = logging.getLogger("holdfast.mount")
_UNPROTECTED = "unprotected: "
_MOST_NAMES = 10


@dataclass(slots=True)
class Ground:
    """The directory's state: its protection, or ``unprotected:`` and the reason, and names in it (if many, only some)."""

    protection: str
    hidden: list[str] = field(default_factory=list)

    @property
    def is_unprotected(self) -> bool:
        """True if somebody may write there while nothing is mounted."""
        return self.protection.startswith(_UNPROTECTED)


def check_empty(path: str) -> None:
    """Check that a mount on ``path`` would hide nothing. Raises ``MountpointError``.

    What can't be looked at is taken for empty, and so is a directory that was protected before: that was reported then.
    """
    try:
        with _opened(path) as fd:
            names = [] if marks.is_immutable(fd) else _names(fd)
    except OSError:
        return
    if names:
        raise _not_empty(path, names)


def protect(path: str, names: Iterable[str] = (), *, is_served: bool, must_be_empty: bool = False) -> Ground:
    """Keep everybody from writing into the directory ``path``, which has no symbolic links, below what is mounted there.

    ``names`` are those at the top of the mount. ``is_served`` says that this is a mount to be taken over, not one to be
    replaced. Raises ``MountpointError`` if something is in the directory although it ``must_be_empty``.
    """
    try:
        if os.geteuid() != 0:
            ground = _closed(path, names, is_served=is_served, must_be_empty=must_be_empty)
        else:
            with _opened(path) as fd:
                must_be_empty = must_be_empty and not marks.is_immutable(fd)
                ground = _protected(fd, path, is_served=is_served, may_hold_something=not must_be_empty)
    except OSError as problem:
        return _covered_unseen(path, problem, is_served=is_served)
    if ground.hidden and must_be_empty:
        release(path)
        raise _not_empty(path, ground.hidden)
    return ground


def is_protected(path: str) -> bool:
    """Say whether Holdfast, or somebody with chattr(1), keeps everybody from writing into the directory ``path``."""
    real_path = mountpoint.real_path(path)
    if any(mount.is_cover for mount in mountpoint.stack_on(real_path)):
        return True
    try:
        with _opened(real_path) as fd:
            return marks.is_immutable(fd) or marks.done_to(fd) is not None
    except OSError:
        return False


def release(path: str) -> bool:
    """Let the directory ``path`` take writes again, as before. Only covers may be mounted on it.

    Returns False if Holdfast has not protected it. Raises ``MountpointError``.
    """
    real_path = mountpoint.real_path(path)
    was_covered = False
    while any(mount.is_cover for mount in mountpoint.stack_on(real_path)[:1]):
        mountpoint.detach(real_path)
        was_covered = True
    try:
        with _opened(real_path) as fd:
            return _released(fd, path) or was_covered
    except FileNotFoundError:
        raise NotMountedError(f"there is no directory {path}") from None
    except OSError as problem:
        raise MountpointError(f"{path} still takes no writes: {problem.strerror}") from None


@contextmanager
def taken(path: str) -> Iterator[Callable[[], None]]:
    """Keep other daemons from mounting on the directory ``path`` in the block, or until the yielded function is called.

    Where it can't be locked, nothing is done. Raises ``MountpointBusyError`` if one is about to.
    """
    with ExitStack() as opened:
        try:
            fd = opened.enter_context(_opened(path))
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MountpointBusyError(f"{path} is in use: another daemon is about to mount there") from None
        except OSError as problem:  # as of an ordinary user's daemon that takes a mount over
            _log.debug("%s can't be locked against other daemons: %s", path, problem.strerror)
        else:
            opened.callback(fcntl.flock, fd, fcntl.LOCK_UN)  # processes that are forked meanwhile have the descriptor too
        yield opened.close


@contextmanager
def released_on_failure(path: str) -> Iterator[Callable[[], None]]:
    """Release the directory ``path`` if the block fails and nothing is mounted.

    It stays as it is if it was protected before, or once the yielded function was called.
    """
    is_to_be_released = not is_protected(path)

    def keep() -> None:
        nonlocal is_to_be_released
        is_to_be_released = False

    try:
        yield keep
    except BaseException:
        if is_to_be_released and mountpoint.mounted_on(path) is None:
            with suppress(MountpointError):  # the failure is what must be told
                release(path)
        raise


@contextmanager
def lent(path: str) -> Iterator[list[str]]:
    """Let fusermount3 mount on the directory ``path``, and close it again at once.

    Afterwards the list has the names that were written there meanwhile.
    """
    landed: list[str] = []
    if os.geteuid() == 0:
        yield landed
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode & 0o7777
        is_own = os.fstat(fd).st_uid == os.geteuid()
        before = set(os.listdir(rewound(fd)))
        if is_own:
            os.fchmod(fd, mode | marks.OWNERS_RIGHTS)
        try:
            yield landed
        finally:
            if is_own:
                os.fchmod(fd, mode & ~marks.MAY_WRITE)
        landed += _shown(sorted(set(os.listdir(rewound(fd))) - before))
    finally:
        os.close(fd)


def _closed(path: str, names: Iterable[str], *, is_served: bool, must_be_empty: bool) -> Ground:
    """Protect the directory of an ordinary user."""
    if is_served:
        return Ground("unknown: an ordinary user can't see below a mount")
    mountpoint.clear(path)
    with _opened(path) as fd:
        if marks.is_immutable(fd):
            raise MountpointError(
                f"{path} is immutable, as root's Holdfast makes a mountpoint; "
                f"as root: holdfast umount --release {path}, or choose another directory"
            )
        found = os.fstat(fd)
        if found.st_uid != os.geteuid():
            return Ground(f"{_UNPROTECTED}it belongs to another user, and the daemon's user can write to it", _names(fd))
        missing = set(names) - set(os.listdir(rewound(fd)))
        if missing or marks.done_to(fd) is None or marks.open_directories(fd):
            os.fchmod(fd, found.st_mode & 0o7777 | marks.OWNERS_RIGHTS)
            marks.mark(fd, found.st_mode, missing)
            for name in missing:
                os.mkdir(name, marks.NO_RIGHTS, dir_fd=fd)
            if not must_be_empty:
                marks.shut(fd)
        os.fchmod(fd, found.st_mode & 0o7777 & ~marks.MAY_WRITE)
        still_open = printable(", ".join(_shown(marks.open_directories(fd))))
        protection = f"{_UNPROTECTED}directories in it take writes: {still_open}" if still_open else CLOSED
        return Ground(protection, _names(fd))


def _protected(fd: int, path: str, *, is_served: bool, may_hold_something: bool) -> Ground:
    refusal = ""
    try:
        _make_immutable(fd, path)
    except OSError as problem:
        refusal = f"it can't be made immutable ({problem.strerror}), nor covered"
    names = _names(fd)
    if not refusal and not (names and may_hold_something):
        return Ground(IMMUTABLE, names)
    try:
        _cover(path, is_served=is_served)
    except OSError as problem:
        why = refusal or "what it holds takes writes, because it can't be covered"
        return Ground(f"{_UNPROTECTED}{why} ({problem.strerror})", names)
    return Ground(COVERED, names)


def _covered_unseen(path: str, problem: OSError, *, is_served: bool) -> Ground:
    """Cover a directory that can't be opened below what is mounted there, as where the mount around it is unbindable."""
    try:
        _cover(path, is_served=is_served)
    except OSError as refusal:
        return Ground(f"{_UNPROTECTED}it can't be opened ({problem.strerror}), nor covered ({refusal.strerror})")
    return Ground(COVERED)


def _cover(path: str, *, is_served: bool) -> None:
    """Cover the directory: below the Holdfast that is mounted there, or, where the kernel can't do that, below the next."""
    if any(mount.is_cover for mount in mountpoint.stack_on(path)):
        return
    made = mount_calls.make_empty(mountpoint.COVER[1])
    try:
        if mountpoint.mounted_on(path) is not None and mount_calls.place_beneath(made, path):
            return
        if is_served:
            raise OSError(errno.EOPNOTSUPP, "the kernel can't put one below a mount")
        mount_calls.place(made, path)
    finally:
        os.close(made)


def _make_immutable(fd: int, path: str) -> None:
    if not marks.is_immutable(fd):
        _mark_and_set(fd)
    elif marks.done_to(fd) is None:  # somebody else's doing; it takes a mark only while it takes writes
        with _covered_meanwhile(path) as is_hidden:
            if not is_hidden:
                return
            try:
                marks.set_immutable(fd, on=False)
            except OSError:
                return
            _mark_and_set(fd)


@contextmanager
def _covered_meanwhile(path: str) -> Iterator[bool]:
    """Let nobody see the directory in the block; yield whether that could be done."""
    if mountpoint.stack_on(path):
        yield True
        return
    try:
        _cover(path, is_served=False)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        mountpoint.detach(path)


def _mark_and_set(fd: int) -> None:
    is_marked = marks.done_to(fd) is not None
    marks.mark(fd, os.fstat(fd).st_mode)
    try:
        marks.set_immutable(fd, on=True)
    except OSError:
        if not is_marked:
            marks.remove_mark(fd)
        raise


def _released(fd: int, path: str) -> bool:
    done = marks.done_to(fd)
    if done is None:
        if marks.is_immutable(fd):
            raise MountpointError(f"{path} is immutable, but Holdfast has not made it so; to give it back: chattr -i {path}")
        return False
    mode_before, made = done
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if marks.is_immutable(fd):
        marks.set_immutable(fd, on=False)
    os.fchmod(fd, mode | marks.OWNERS_RIGHTS)
    marks.open_shut(fd)
    kept = []
    for name in made.intersection(marks.placeholders(fd)):
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError as problem:
            if problem.errno != errno.ENOTEMPTY:
                raise
            kept.append(name)
    marks.remove_mark(fd)
    if kept:
        marks.mark(fd, mode_before, kept)
    os.fchmod(fd, mode | mode_before & marks.MAY_WRITE)  # no more: whoever could write there could write the mark
    if kept:
        names = ", ".join(f"{path}/{name}" for name in sorted(kept))
        raise MountpointError(
            f"{path} could not be released completely: {names} {'is' if len(kept) == 1 else 'are'} not empty"
        )
    return True


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Open the directory itself. Raises ``OSError`` if something is mounted on it and this process can't see below that."""
    with ExitStack() as opened:
        try:
            fd = opened.enter_context(mount_calls.bare(path))
        except OSError:
            if mountpoint.stack_on(path):
                raise
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, fd)
        yield fd


def _names(fd: int) -> list[str]:
    """Return some of the names in a directory, without placeholders."""
    shut = marks.shut_directories(fd)
    with os.scandir(rewound(fd)) as entries:
        return _shown(entry.name for entry in entries if entry.name in shut or not marks.is_placeholder(entry))


def _shown(names: Iterable[str]) -> list[str]:
    """Return some of the names as they are told."""
    return sorted(shown(os.fsencode(name)) for name in islice(names, _MOST_NAMES))


def _not_empty(path: str, names: list[str]) -> UnusableMountpointError:
    more = ", …" if len(names) == _MOST_NAMES else ""
    return UnusableMountpointError(
        f"the mountpoint {path} is not empty, and the mount would hide what it holds ({printable(', '.join(names))}{more}); "
        "move that elsewhere, or choose an empty directory"
    )
