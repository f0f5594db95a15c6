"""One mount's connection to the kernel, with what the C module adds to it.

Passthrough: the file system registers the descriptor of a local file, gets a backing id (``register``), and puts that id
into the reply to each OPEN and CREATE of the inode (``answer``). The kernel has these rules (its ``fs/fuse/iomode.c`` and
``fs/fuse/passthrough.c``):

- all open handles of an inode are of one kind, passthrough or not, and those in passthrough have the same backing id; an
  open that breaks this gets EIO;
- an id is closed when the last handle of its inode is released, not earlier: the kernel looks it up after the reply;
- ids belong to the connection, not to the daemon: they stay valid, and needed, after a takeover.

A request is identified by its unique number. A handler gets it with ``request``, before its first await: pyfuse3 goes from
reading a request to that await in one step. The handler may answer at any later time.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import TakeoverError
from holdfast.kernel import probe
from holdfast.kernel.native_module import NATIVE_MODULE, ImmediateReply, NativeModule, NativeReply
from holdfast.kernel.protocol import RESENT, InitFlag, Opcode, OpenFlag
from holdfast.system.file_id import FileId

_log = logging.getLogger("holdfast.kernel")
_FOR_ALL_FILES = {
    errno.EPERM: "the kernel refuses backing files without CAP_SYS_ADMIN of the first user namespace",
    errno.ELOOP: "the local store lies on a stacked file system (overlayfs)",
    errno.ENOTTY: "the kernel knows no backing files",
}
"""Errors that apply to every file of the store."""
_HEAD = struct.Struct("=8sII")
_MAGIC = b"HFINIT1\n"
_REPLY_BYTES = 16 + 64
"""A ``fuse_out_header`` and a ``fuse_init_out``."""


class Connection:
    """The C module's session between pyfuse3 and ``/dev/fuse``. A process has one at a time, like pyfuse3's own state."""

    def __init__(self, machine: probe.Machine, *, passthrough: bool, native: NativeModule = NATIVE_MODULE) -> None:
        self._native = native
        self._machine = machine
        self._forecast = probe.forecast(machine, wanted=passthrough)
        self.passthrough_possible = passthrough and probe.has_passthrough(machine.kernel)
        """True if kernel and settings allow passthrough, whatever ``mode`` says."""
        self._refusal = ""
        self.device = -1
        """The descriptor of ``/dev/fuse``, for the process that keeps the mount between daemons; -1 without a C module."""
        self._tells_privileges: bool | None = None
        self.request = native.request
        """Return the unique number of the request whose handler runs. Call it before the handler's first await."""
        self.drops_privileges = native.drops
        """Say whether the request whose handler runs removes set-id bits and capabilities. Call it before the first await.

        The kernel says so in SETATTR with a size, OPEN with O_TRUNC and WRITE, and, before a write of its own, in a SETATTR
        that changes nothing. Without the C module it changes the mode by itself."""
        self.user = native.user
        """Return the user id of the caller of the request whose handler runs, where pyfuse3 does not tell it.

        Call it before the handler's first await. 0 without the C module.
        """
        self.process = native.process
        """Return the process id of that caller, in the daemon's namespace. ``user`` says when to call it."""
        self.executing = native.executing
        """Mark the request with this number as executed now; 0: none (``mark_execution``)."""
        self.serve = native.serve
        """Answer requests while the event loop would sleep: for ``seconds``, or until ``events`` (epoll) is readable.

        A request for pyfuse3 ends this too: it waits to be read, and the eventfd ``handed_over`` becomes readable. Returns
        True when neither happened but the loop must go on: ``seconds`` are over, or a task was scheduled (``interrupt``).
        Does nothing before pyfuse3 has read its first request.
        """
        self.interrupt = native.interrupt
        """Make ``serve``, further up the stack, return after the current request, because of a task that was scheduled."""
        self.stop_serving = native.remove_native_reply
        """Stop answering for the file or directory ``node``. Does nothing for one that is not served."""
        self.hold_writes = native.hold_writes
        """Leave each write to pyfuse3's handlers, also into files of ``serve_data``; or, with false, no longer."""
        self.is_written = native.is_written
        """Say whether threads have a write to do, or under way, to the file that is served from ``fd``."""
        self.hold_back = native.hold_back
        """Begin no further write in a thread to that file until ``let_go``; say whether one is under way.

        Does not hold back more than 16 files at a time.
        """
        self.let_go = native.let_go
        """Begin writes to that file again."""

    # --- mounting ----------------------------------------------------------------------------------------------------

    def prepare(self, keep: Path | None, *, takeover: bool = False, add: InitFlag = InitFlag.NONE) -> None:
        """Configure the next mount, before ``pyfuse3.init``.

        ``keep`` is the file that keeps the INIT exchange for a later daemon. With ``takeover`` pyfuse3 mounts on
        ``/dev/fd/N``, the descriptor of a live mount, whose exchange is read from that file; without one, the earlier daemon
        died before it replied to INIT. ``add`` are further INIT flags to set if the kernel offers them; a mount that is
        taken over keeps its flags. Raises ``TakeoverError``.
        """
        if takeover and self._machine.missing:
            raise TakeoverError(probe.takeover_forecast(self._machine))
        add |= InitFlag.DROP_PRIVILEGES  # or each write would cost a GETXATTR
        add |= InitFlag.EXPLICIT_INVALIDATE  # or a read after a write would ask for the attributes, and for the data again
        add |= InitFlag.PARALLEL_DIRECTORY_REQUESTS  # or lookups of one directory would wait for a store one after the other
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
        """Duplicate the descriptor of the mount that ``pyfuse3.init`` has made."""
        fd = self._native.session()[1]
        if fd >= 0:
            self.device = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)

    def close(self) -> None:
        """Close the duplicate, before pyfuse3 closes its own descriptor: an open one would keep the mount alive.

        Replies after this, as from a thread that still syncs, are dropped.
        """
        self._native.end()
        if self.device >= 0:
            os.close(self.device)
            self.device = -1

    # --- the result --------------------------------------------------------------------------------------------------

    @property
    def outcome(self) -> probe.Outcome:
        """The answers of libfuse and the kernel so far."""
        state, _, error, libfuse, offered, agreed, keep_error = self._native.session()
        flags = InitFlag(agreed) if agreed else None
        return probe.Outcome(probe.Mounted(state), error, libfuse, InitFlag(offered), flags, keep_error)

    @property
    def mode(self) -> str:
        """The way in which data is read and written: ``passthrough``, or ``daemon-io:`` and the reason."""
        if self._forecast != probe.PASSTHROUGH:
            return self._forecast
        reason = probe.outcome(self.outcome) or self._refusal
        return f"daemon-io: {reason}" if reason else probe.PASSTHROUGH

    @property
    def takeover(self) -> str:
        """``takeover`` if another daemon can take the mount over; otherwise ``no takeover:`` and the reason."""
        forecast = probe.takeover_forecast(self._machine)
        if forecast != probe.TAKEOVER:
            return forecast
        reason = probe.takeover_outcome(self.outcome)
        return f"no takeover: {reason}" if reason else probe.TAKEOVER

    @property
    def can_prune(self) -> bool:
        """True if the kernel can be asked to forget nodes that nobody uses."""
        return probe.can_prune(self._machine)

    @property
    def has_begun(self) -> bool:
        """True if the INIT exchange is complete, so that requests can come, or if that is unknown."""
        found = self.outcome
        return found.mounted is not probe.Mounted.FULL or found.agreed is not None

    @property
    def sees_requests(self) -> bool:
        """True if requests pass through the C module; otherwise ``serve`` and ``answer_directly`` have no effect."""
        return self.outcome.mounted is probe.Mounted.FULL

    @property
    def tells_privileges(self) -> bool:
        """True if ``drops_privileges`` is reliable. If not, treat every change of the bytes as removing set-id bits."""
        if self._tells_privileges is None:  # cached: this is called with each write, and INIT flags never change
            agreed = self.outcome.agreed
            if agreed is None:
                return False
            self._tells_privileges = InitFlag.DROP_PRIVILEGES in agreed
        return self._tells_privileges

    # --- passthrough -------------------------------------------------------------------------------------------------

    def register(self, node: int, fd: int, zone: int = 0) -> int | None:
        """Register the regular file ``node`` for passthrough; ``fd`` stays open until ``unregister``. Return the backing id.

        None when the kernel refuses: then the daemon serves the file. After a refusal that applies to all files, the kernel
        is not asked again. Takes about a microsecond. Until ``unregister``, the kernel's question with the first write
        whether the file has capabilities is answered from ``fd`` in C, without Python, and counted for ``zone``.
        """
        if self._refusal or self._forecast != probe.PASSTHROUGH or self.device < 0:
            return None
        try:
            return self._native.register(self.device, node, fd, zone)
        except OSError as problem:
            self._refusal = _FOR_ALL_FILES.get(problem.errno or 0, "")
            return None

    def unregister(self, node: int, backing_id: int) -> None:
        """Close a backing id: no further open may use it. Files that are open with it stay open."""
        try:
            self._native.unregister(self.device, node, backing_id)
        except FileNotFoundError:
            _log.debug("an earlier daemon closed backing id %d, and died right after that", backing_id)

    def serve_data(self, node: int, fd: int, zone: int, *, as_nobody: bool) -> bool:
        """Answer READ and WRITE of the complete regular file ``node`` in C, from ``fd``; say whether that is possible.

        Call ``stop_serving`` before closing ``fd``. What fails goes to pyfuse3's handlers. Nobody is told of a write.
        ``as_nobody``: the thread that writes takes nothing of what the disk keeps for root.
        """
        if not self.sees_requests:
            return False
        self._native.add_native_reply(node, fd, NativeReply.DATA_AS_NOBODY if as_nobody else NativeReply.DATA, 0, zone)
        return True

    def answer(self, request: int, backing_id: int | None, flags: OpenFlag = OpenFlag.NONE) -> None:
        """Set a backing id and flags in the reply to come to the OPEN, OPENDIR or CREATE with the number ``request``.

        With a backing id, flags that the kernel forbids beside passthrough are dropped, including pyfuse3's own.
        """
        if backing_id is not None or flags:
            self._native.answer(request, backing_id or 0, flags)

    # --- requests ----------------------------------------------------------------------------------------------------

    def answer_directly(self, function: ImmediateReply, opcodes: Iterable[Opcode]) -> None:
        """Call ``function`` first for requests with these opcodes, right after they are read.

        It is not called for resent ones, which an earlier daemon may have carried out, except READDIR and READDIRPLUS: they
        change nothing, and pyfuse3 would use other offsets. ``function`` must neither wait nor raise. Call this after
        ``attach``; without the C module ``function`` is never called.
        """
        self._native.answer_directly(function, sum(1 << opcode for opcode in opcodes))
        self._native.enable_native_replies(True)

    def mark_execution(self, word: memoryview, refused: Iterable[int], function: ImmediateReply) -> None:
        """Keep in ``word`` the number of the request that the event loop executes, and 0 while there is none.

        Those with the numbers ``refused`` get EIO when the kernel resends them; ``function`` is called with each, and its
        result ignored. Call this after ``attach``; ``close`` gives ``word`` up.
        """
        self._native.mark_execution(word, array("Q", refused).tobytes(), function)

    def count_latencies(self, rows: array[int], zones: int, bounds: array[int], zone: array[int]) -> None:
        """Count the latencies of the requests that are answered directly, from reading a request to the reply.

        ``rows`` has, for each opcode below ``OPCODE_LIMIT`` and each of ``zones`` zones, the counts of the buckets that end
        at ``bounds`` (nanoseconds), of what is longer, and the sum in nanoseconds. ``zone`` is where the function of
        ``answer_directly`` puts the number of the request's zone. Call this after ``attach``.
        """
        self._native.count_latencies(rows, zones, bounds, zone)

    def show_all_requests(self, function: ImmediateReply, opcodes: Iterable[Opcode]) -> None:
        """Call ``answer_directly``, and answer nothing without Python until it is called again."""
        self.answer_directly(function, opcodes)
        self._native.enable_native_replies(False)

    def serve_directory_from(
        self, node: int, fd: int, seconds: float, zone: int = 0, *, whole: bool = False, of_store: bool = False
    ) -> None:
        """Answer GETATTR of a directory and, with ``whole``, LOOKUP of names not in it, from ``fd`` in C, without Python.

        Call ``stop_serving`` before closing ``fd``. The kernel may cache the answers for ``seconds``. They are
        counted for ``zone``. ``whole``: a name that is not in the backing directory does not exist, and nobody else changes
        the directory. ``of_store``: size and ctime are shown as those of a store's directory, and it is answered only for
        ``seconds`` from now: others may change it.
        """
        other = NativeReply.STORE_DIRECTORY if of_store else NativeReply.DIRECTORY
        kind = NativeReply.WHOLE_DIRECTORY if whole else other
        self._native.add_native_reply(node, fd, kind, round(seconds * 1e9), zone)

    def entries(self, fd: int, position: int, size_bytes: int, others: dict[FileId, int]) -> bytes | None:
        """Return the body of a READDIR reply for the backing directory open at ``fd``, from ``position`` on.

        Offsets are those of the backing file system; None if those are not stable (native/readdir.c). Inode numbers are its
        own too, except where ``others`` maps one to another. Raises ``OSError``.
        """
        return self._native.entries(fd, position, size_bytes, others)

    def reply(self, request: int, error: int, body: bytes = b"") -> None:
        """Reply, with a positive errno or 0 and a body, to a request that ``answer_directly``'s function left for later."""
        self._native.reply(request, error, body)

    @staticmethod
    def is_resent(request: int) -> bool:
        """Say whether the kernel has sent this request before: an earlier daemon may have carried it out."""
        return request & RESENT != 0

    @staticmethod
    def number(request: int) -> int:
        """Return the request's number without the flag of a resent request: the same however often it is sent."""
        return request & ~RESENT

    def requests(self) -> dict[Opcode, int]:
        """Return how many requests of each kind were read since the mount; zeros are left out."""
        counts = self._native.counts()[0]
        return {opcode: counts[opcode] for opcode in Opcode if opcode < len(counts) and counts[opcode]}


@dataclass(frozen=True, slots=True)
class Exchange:
    """The kernel's INIT request and its reply, with headers, which later daemons of a mount replay.

    The C module writes the file just before the kernel gets the reply (``native/handshake.c``). The file must outlive the
    daemon but not the machine: it belongs on tmpfs, beside the session table. A crash leaves the whole file, none, or an
    unfinished ``.new`` beside it, which nobody reads.
    """

    request: bytes
    reply: bytes

    @classmethod
    def read(cls, path: Path) -> Exchange | None:
        """Read the kept exchange; None if there is none. Raises ``TakeoverError`` for an unreadable or invalid file."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise TakeoverError(f"the start of the mount can't be read from {path}: {problem.strerror}") from None
        if len(data) < _HEAD.size:
            raise TakeoverError(f"{path} is cut short")
        magic, request_size, reply_size = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise TakeoverError(f"{path} was not kept by this version of Holdfast")
        if len(data) != _HEAD.size + request_size + reply_size or reply_size != _REPLY_BYTES:
            raise TakeoverError(f"{path} is cut short")
        return cls(data[_HEAD.size : _HEAD.size + request_size], data[_HEAD.size + request_size :])
