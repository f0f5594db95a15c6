"""The FUSE session: mount, serve, end, and what becomes of the mount when the daemon ends."""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyfuse3
import trio

from holdfast.errors import FuseUnavailableError, MountpointError, TakeoverError
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse.event_loop_wait import served_when_idle, take_turns
from holdfast.fs.fuse.immediate_replies import ImmediateReplies
from holdfast.fs.fuse.kernel_notifications import KernelNotifier
from holdfast.fs.fuse.later_replies import LaterReplies, Turns
from holdfast.fs.fuse.operations import Operations
from holdfast.fs.fuse.request_observer import RequestObserver, name_of
from holdfast.kernel import TAKEOVER, Connection, InitFlag, Opcode
from holdfast.mount import covered_directory, fuse_device, mounting, read_ahead
from holdfast.mount import mountpoint as mountpoints
from holdfast.mount.covered_directory import Ground
from holdfast.session.handover import Handover
from holdfast.telemetry import EventLog

_log = logging.getLogger("holdfast.fs")
_MOMENT_SECONDS = 0.001
_MOST_REQUESTS = 8192
"""The limit of requests that pyfuse3 handles at once. Those that wait are tasks of ``LaterReplies``, limited by user.

Far more than those of one user (``RequestTurns``)."""


class _WithdrawnRequests(logging.Filter):
    """Drops log records about replies to requests that the kernel has withdrawn (RELEASE during an unmount)."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is worth logging."""
        problem = record.exc_info[1] if record.exc_info else None
        if isinstance(problem, OSError) and problem.errno in (errno.ENODEV, errno.ENOTCONN):
            return False  # an invalidation that was still queued when the mount ended
        return not record.getMessage().endswith(f"fuse_reply_* failed with {os.strerror(errno.ENOENT)}")


class Session:
    """One mount, made by ``mounted``. A process can have only one, because pyfuse3 keeps libfuse's state in globals."""

    def __init__(
        self,
        mountpoint: str,
        kernel: KernelNotifier,
        ground: Ground,
        observer: RequestObserver,
        later: LaterReplies,
        turns: Turns,
    ) -> None:
        self.mountpoint = mountpoint
        self._kernel = kernel
        self._connection = kernel.connection
        self.ground = ground
        self._placed: mountpoints.Mount | None = None
        """The mount, if libfuse has not made it and does not know it."""
        self.observer = observer
        self._later = later
        self.turns = turns

    @classmethod
    def mounted(
        cls,
        base: Foundation,
        files: FileSystem,
        kernel: KernelNotifier,
        mountpoint: str,
        ground: Ground,
        *,
        allow_other: bool,
        keep: Path,
        device: int | None = None,
    ) -> Session:
        """Mount ``files`` on a path without symbolic links, in place of a dead mount. Requests wait until ``serve``.

        ``ground`` is what is known of the directory below; what an ordinary user's mount let in there is added to it.
        ``keep`` is the file in which the start of the mount is kept for a later daemon. With ``device``, the descriptor of
        a living mount, that mount is taken over. Raises ``FuseUnavailableError``, ``MountpointError``, and ``TakeoverError``
        if the mount can't be taken over. After an error no new mount stays behind, and the old one is left as it is.
        """
        _check_device()
        turns = Turns.of_each(base.parts.config.limits.requests_per_user, base.rare_events)
        observer = RequestObserver(base.nodes, base.policy, kernel.connection, base.zone_numbers)
        later = LaterReplies(kernel.connection, observer, base.parts.counters)
        session = cls(mountpoint, kernel, ground, observer, later, turns)
        session._mount(Operations(base, files, kernel.connection, turns, observer), allow_other, keep, device)
        try:
            session._connect(base, files)
        except BaseException:
            session.leave() if device is not None else session.close()
            raise
        return session

    def _mount(self, operations: Operations, allow_other: bool, keep: Path, device: int | None) -> None:
        options = {"default_permissions", "fsname=holdfast", "subtype=holdfast"}
        if allow_other:
            options.add("allow_other")
        add = InitFlag.READDIRPLUS_WHEN_USED  # READDIR is answered past pyfuse3
        self._connection.prepare(keep, takeover=device is not None, add=add)
        own = mounting.mount(self.mountpoint, allow_other=allow_other) if device is None else device
        self._placed = mountpoints.mounted_on(self.mountpoint) if own is not None else None
        try:
            if own is not None:
                pyfuse3.init(operations, f"/dev/fd/{own}", options)
            else:
                self._mount_by_libfuse(operations, options)
        except RuntimeError:
            if device is not None:
                raise TakeoverError(self._connection.takeover) from None
            self._unmount()
            takes = fuse_device.what_mounting_takes(self.mountpoint, allow_other=allow_other)
            raise MountpointError(f"the kernel refused to mount on {self.mountpoint}: {takes}") from None

    def _mount_by_libfuse(self, operations: Operations, options: set[str]) -> None:
        mountpoints.clear(self.mountpoint)
        with covered_directory.lent(self.mountpoint) as landed:
            pyfuse3.init(operations, self.mountpoint, options)
        self.ground.hidden = sorted({*self.ground.hidden, *landed})

    def _connect(self, base: Foundation, files: FileSystem) -> None:
        """Connect mount and file system. Starts the invalidator's process."""
        self._connection.attach()
        answers = ImmediateReplies(base, files, self._connection, self.turns, self.observer.times, self._later)
        self.observer.answer_directly(answers.answer, answers.opcodes)
        _mark_execution(base, self._connection)
        logging.getLogger("pyfuse3").addFilter(_WithdrawnRequests())
        self._kernel.connect()

    @property
    def data_mode(self) -> str:
        """The way in which data is served: ``passthrough``, or ``daemon-io:`` and the reason."""
        return self._connection.mode

    @property
    def passthrough_possible(self) -> bool:
        """True if kernel and settings allow passthrough."""
        return self._connection.passthrough_possible

    @property
    def takeover(self) -> str:
        """``takeover`` if another daemon can take the mount over; otherwise ``no takeover:`` and the reason."""
        return self._connection.takeover

    @property
    def device(self) -> int | None:
        """The descriptor by which another daemon can take the mount over; None if none can."""
        return self._connection.device if self.takeover == TAKEOVER else None

    @property
    def is_mounted(self) -> bool:
        """True unless somebody has unmounted it here. A copy in another mount namespace keeps it alive all the same."""
        return any(mount.is_holdfast for mount in mountpoints.stack_on(self.mountpoint))

    @property
    def requests(self) -> dict[str, int]:
        """The number of requests by kind; empty if unknown."""
        return {opcode.name: count for opcode, count in self._connection.requests().items()}

    async def serve(self) -> None:
        """Answer requests until the file system is unmounted or ``stop`` is called."""
        try:
            async with served_when_idle(self._connection) as readiness, self._later.running():
                take_turns(readiness)
                await pyfuse3.main(max_tasks=_MOST_REQUESTS)
        except* ConnectionAbortedError:
            _log.info("the kernel has ended the connection")  # at some unmounts, and when fusectl aborts it

    async def wait_begun(self) -> None:
        """Return when the mount answers, or is about to. From then on the kernel reads ahead further.

        No thread may access the mount itself to find out. A thread that waits for its own daemon keeps a killed process from
        ending, and with it the descriptor, the store's lock, and the start of the next daemon.
        """
        while not self._connection.has_begun:  # noqa: ASYNC110 libfuse gives no signal when it has answered
            await trio.sleep(_MOMENT_SECONDS)
        read_ahead.widen(self.mountpoint)

    def stop(self) -> None:
        """Let ``serve`` return."""
        pyfuse3.terminate()

    def close(self) -> None:
        """Unmount and end the session."""
        self._unmount()
        self._end(unmount=True)

    def leave(self) -> None:
        """End the session and leave the mount to the next daemon."""
        self._end(unmount=False)

    def _unmount(self) -> None:
        top = mountpoints.mounted_on(self.mountpoint)
        if self._placed is not None and top is not None and top.number == self._placed.number:
            mountpoints.detach(self.mountpoint)

    def _end(self, *, unmount: bool) -> None:
        self._kernel.close()
        pyfuse3.close(unmount=unmount)


@dataclass(frozen=True, slots=True)
class ServedMount:
    """A mount that is served: that of ``session``. ``handover`` is how the next daemon finds it."""

    session: Session
    handover: Handover

    @property
    def outlives(self) -> bool:
        """True if the mount outlives this daemon: it can be taken over, and somebody holds its descriptor until then."""
        return self.session.device is not None and self.handover.is_held

    @property
    def takeover(self) -> str:
        """``takeover`` if the mount outlives this daemon, else ``no takeover:`` and the reason."""
        if self.session.device is not None and not self.handover.is_held:
            return f"no takeover: {self.handover.why_not_held}"
        return self.session.takeover

    @property
    def keeper_problem(self) -> str:
        """The reason why the keeper that is configured does not hold the mount; empty if it does, or none is."""
        return self.handover.keeper.problem if self.handover.keeper is not None else ""


def _check_device() -> None:
    if (found := fuse_device.why_unusable()) is not None:
        raise FuseUnavailableError(": ".join(found))


def _mark_execution(base: Foundation, connection: Connection) -> None:
    """Mark for the next daemon which request this one executes (``system.waits.marked``), and refuse those that ended one.

    The C module sets the mark while it answers, and when it hands a request to pyfuse3.
    """
    mark = base.parts.session.executed
    connection.mark_execution(mark.word, mark.refused(), partial(_tell, base.parts.events))


def _tell(events: EventLog, opcode: int, _: int, node_id: int, uid: int, __: int, pid: int, ___: bytes) -> None:
    """Tell the operator of a request that was refused. Its node is not looked up: that may be what ended daemons."""
    operation = name_of(Opcode(opcode)) if opcode in list(Opcode) else str(opcode)
    _log.warning(
        "%s of inode %d by user %d (process %d) is refused: daemons have ended during it", operation, node_id, uid, pid
    )
    events.emit("request-refused", operation=operation, inode=node_id, uid=uid, pid=pid)
