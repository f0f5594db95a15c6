"""One mount's connection to the kernel, and what the C module adds to it.

Passthrough: the file system registers a local file's descriptor and gets a backing id (``register``), and names that id
in the reply to each OPEN and CREATE of the inode (``answer``). What the kernel then asks of the file system
(``fs/fuse/iomode.c``, ``fs/fuse/passthrough.c``):

- all opens of an inode that are alive at one time are of one kind, passthrough or not, and those in passthrough name
  the same backing id; the kernel answers EIO to an open that breaks this;
- an id is closed when the last handle of its inode is released, never sooner: the kernel looks it up after the reply;
- ids belong to the connection, not to the daemon: they are still good, and still needed, after a takeover.

A reply is told by its request's number. A handler asks for it (``request``) before its first await, for pyfuse3 goes from
reading a request to that await in one step; it may answer at any later time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.errors import TakeoverError
from holdfast.kernel import probe
from holdfast.kernel.exchange import Exchange
from holdfast.kernel.native_module import NATIVE_MODULE, DirectAnswer, FdReply, NativeModule
from holdfast.kernel.protocol import RESENT, InitFlag, Opcode, OpenFlag

_BACKING_OPEN = 0x4010E501
"""``_IOW(229, 1, struct fuse_backing_map)``"""
_BACKING_CLOSE = 0x4004E502
"""``_IOW(229, 2, uint32_t)``"""
_BACKING_MAP = struct.Struct("=iIQ")
_FOR_ALL_FILES = {
    errno.EPERM: "the kernel refuses backing files without CAP_SYS_ADMIN of the first user namespace",
    errno.ELOOP: "the local store lies on a stacked file system (overlayfs)",
    errno.ENOTTY: "the kernel knows no backing files",
}
"""Refusals that no other file of the store would escape."""


class Connection:
    """What stands between pyfuse3 and ``/dev/fuse``. One at a time in a process, as with pyfuse3's own state."""

    def __init__(self, machine: probe.Machine, *, passthrough: bool, native: NativeModule = NATIVE_MODULE) -> None:
        self._native = native
        self._machine = machine
        self._forecast = probe.forecast(machine, wanted=passthrough)
        self._refusal = ""
        self._device = -1
        self._tells_privileges: bool | None = None
        self.request = native.request
        """Return the number of the request whose handler runs. To be called before the handler's first await."""
        self.drops_privileges = native.drops
        """Say whether the request whose handler runs takes set-id bits and capabilities away; before the first await.

        The kernel says so in SETATTR with a size, OPEN with O_TRUNC and WRITE, and before a write of its own in a SETATTR
        that changes nothing. Without the C module it changes the mode by itself."""

    # --- mounting ----------------------------------------------------------------------------------------------------

    def prepare(self, keep: Path | None, *, takeover: bool = False, add: InitFlag = InitFlag.NONE) -> None:
        """Say, before ``pyfuse3.init``, what the mount is to have.

        ``keep`` is where the start of the mount is kept for a later daemon. With ``takeover`` pyfuse3 is to mount on
        ``/dev/fd/N``, the descriptor of a living mount, whose start was kept there; if nothing was, the earlier daemon
        died before it spoke to the kernel. ``add`` are further flags to agree on, as far as the kernel offers them;
        a mount that is taken over keeps those it has. Raises ``TakeoverError``.
        """
        if takeover and self._machine.missing:
            raise TakeoverError(probe.takeover_forecast(self._machine))
        add |= InitFlag.DROP_PRIVILEGES  # or each write would cost a GETXATTR
        if self._forecast == probe.PASSTHROUGH:
            add |= InitFlag.PASSTHROUGH
        exchange = Exchange.read(keep) if takeover and keep else None
        if keep and not takeover:
            keep.unlink(missing_ok=True)
        kept = (exchange.request, exchange.reply) if exchange else (b"", b"")
        try:
            self._native.configure(add, os.fsencode(keep) if keep else b"", takeover, *kept)
        except ValueError as problem:
            raise TakeoverError(f"{keep}: {problem}") from None

    def attach(self) -> None:
        """Take hold of the mount that ``pyfuse3.init`` has made."""
        fd = self._native.session()[1]
        if fd >= 0:
            self._device = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)

    def close(self) -> None:
        """Let go of the mount, before pyfuse3 does. As long as nobody did, it would outlive pyfuse3's own descriptor.

        Who replies later, a thread that still syncs, replies to nobody.
        """
        self._native.end()
        if self._device >= 0:
            os.close(self._device)
            self._device = -1

    @property
    def device(self) -> int:
        """Descriptor of ``/dev/fuse`` for whoever keeps the mount alive while there is no daemon; -1 without C module."""
        return self._device

    # --- what came of it ---------------------------------------------------------------------------------------------

    @property
    def outcome(self) -> probe.Outcome:
        """What libfuse and the kernel answered so far."""
        state, _, error, libfuse, offered, agreed, keep_error = self._native.session()
        flags = InitFlag(agreed) if agreed else None
        return probe.Outcome(probe.Mounted(state), error, libfuse, InitFlag(offered), flags, keep_error)

    @property
    def mode(self) -> str:
        """How data goes: ``passthrough``, or ``daemon-io:`` and the reason."""
        if self._forecast != probe.PASSTHROUGH:
            return self._forecast
        reason = probe.outcome(self.outcome) or self._refusal
        return f"daemon-io: {reason}" if reason else probe.PASSTHROUGH

    @property
    def takeover(self) -> str:
        """Whether another daemon can take the mount over: ``takeover``, or ``no takeover:`` and the reason."""
        told = probe.takeover_forecast(self._machine)
        if told != probe.TAKEOVER:
            return told
        reason = probe.takeover_outcome(self.outcome)
        return f"no takeover: {reason}" if reason else probe.TAKEOVER

    @property
    def has_begun(self) -> bool:
        """Whether kernel and daemon have come to terms, after which requests come; True where that can't be told."""
        found = self.outcome
        return found.mounted is not probe.Mounted.FULL or found.agreed is not None

    @property
    def sees_requests(self) -> bool:
        """Whether requests come past the C module; where they don't, ``serve`` and ``answer_directly`` have no effect."""
        return self.outcome.mounted is probe.Mounted.FULL

    @property
    def tells_privileges(self) -> bool:
        """Whether ``drops_privileges`` knows. Otherwise every change of the bytes takes set-id bits away."""
        if self._tells_privileges is None:  # asked with each write: what is agreed on stays as long as the mount
            agreed = self.outcome.agreed
            if agreed is None:
                return False
            self._tells_privileges = InitFlag.DROP_PRIVILEGES in agreed
        return self._tells_privileges

    # --- passthrough -------------------------------------------------------------------------------------------------

    def register(self, node: int, fd: int) -> int | None:
        """Give the kernel the regular file ``node``, open at ``fd`` until it is unregistered; return its backing id.

        None when the kernel won't have it: the file is then served by the daemon. Where the refusal holds for all
        files, the kernel is not asked again. Takes about a microsecond. Whether the file has capabilities, for which the
        kernel asks with the first write, is answered from ``fd`` meanwhile, without Python.
        """
        if self._refusal or self._forecast != probe.PASSTHROUGH or self._device < 0:
            return None
        try:
            backing_id = int(fcntl.ioctl(self._device, _BACKING_OPEN, bytearray(_BACKING_MAP.pack(fd, 0, 0))))
        except OSError as problem:
            self._refusal = _FOR_ALL_FILES.get(problem.errno or 0, "")
            return None
        self._native.add_fd_reply(node, fd, FdReply.FILE, 0)
        return backing_id

    def unregister(self, node: int, backing_id: int) -> None:
        """Close a backing id: no open may name it any more. Files that are open with it stay so."""
        self._native.remove_fd_reply(node)
        with suppress(FileNotFoundError):  # a daemon that died right after this has closed it already
            fcntl.ioctl(self._device, _BACKING_CLOSE, struct.pack("=I", backing_id))

    def answer(self, request: int, backing_id: int | None, flags: OpenFlag = OpenFlag.NONE) -> None:
        """Add to the reply that the OPEN, OPENDIR or CREATE numbered ``request`` will get.

        With a backing id, flags that the kernel does not allow beside passthrough are dropped, pyfuse3's own too.
        """
        if backing_id is not None or flags:
            self._native.answer(request, backing_id or 0, flags)

    # --- requests ----------------------------------------------------------------------------------------------------

    def answer_directly(self, function: DirectAnswer, opcodes: Iterable[Opcode]) -> None:
        """Ask ``function`` first for requests of these kinds, in the step in which they are read.

        It must not wait, nor raise. To be called after ``attach``; without the C module it is never asked.
        """
        self._native.answer_directly(function, sum(1 << opcode for opcode in opcodes))

    def serve(self, events: int, handed_over: int, seconds: float) -> bool:
        """Answer requests in the event loop's stead for ``seconds``, or until the epoll descriptor ``events`` is readable.

        A request that must go through pyfuse3 ends it too: it waits to be read, and the eventfd ``handed_over`` becomes
        readable. Returns True when neither happened but the loop must not sleep any more: its time is over, or a task was
        scheduled (``interrupt``). Does nothing before pyfuse3 has read a request by itself.
        """
        return self._native.serve(events, handed_over, seconds)

    def interrupt(self) -> None:
        """Let ``serve``, further up the stack, return as soon as the request in hand is answered."""
        self._native.interrupt()

    def serve_directory_from(self, node: int, fd: int, seconds: float, *, whole: bool) -> None:
        """Answer GETATTR of a directory, and with ``whole`` LOOKUP of what is not in it, from ``fd``, without Python.

        To be taken back before ``fd`` is closed. The kernel may keep the answers for ``seconds``. ``whole``: what is not in
        the backing directory is nowhere, and nobody else changes it.
        """
        self._native.add_fd_reply(node, fd, FdReply.WHOLE_DIRECTORY if whole else FdReply.DIRECTORY, round(seconds * 1e9))

    def stop_serving_directory(self, node: int) -> None:
        """Answer for the directory no more; one that was never served may be named too."""
        self._native.remove_fd_reply(node)

    def entries(self, fd: int, position: int, size_bytes: int, others: dict[int, int]) -> bytes | None:
        """Return the reply to a READDIR of the backing directory open at ``fd``, from ``position`` on.

        Offsets are the backing file system's; None where those don't last (native/readdir.c). Inode numbers are too, but for
        those that ``others`` has another one for. Raises ``OSError``.
        """
        return self._native.entries(fd, position, size_bytes, others)

    def reply(self, request: int, error: int, body: bytes = b"") -> None:
        """Reply to a request that the function has taken on (``True``): a positive errno, or 0 and a body."""
        self._native.reply(request, error, body)

    @staticmethod
    def is_resent(request: int) -> bool:
        """Say whether an earlier daemon read this request too, and may have carried it out."""
        return request & RESENT != 0

    @staticmethod
    def number(request: int) -> int:
        """Return the request's number without the mark of a resent one: the same however often it is sent."""
        return request & ~RESENT

    def requests(self) -> dict[Opcode, int]:
        """Return how many requests of each kind were read since the mount; kinds without any are left out."""
        counts = self._native.counts()[0]
        return {opcode: counts[opcode] for opcode in Opcode if opcode < len(counts) and counts[opcode]}
