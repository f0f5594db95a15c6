"""Observing the kernel's requests: how long each takes, by kind and zone, and, while somebody watches, what it is about.

The time is that from reading a request to the reply. The C module times those that are answered at once, and counts in the
same array (native/latency_counts.h). What the kernel does by itself, reading and writing of files in passthrough above all,
is no request and is in no count.

Nobody watching is the rule, and costs nothing: then requests that are answered at once never come here. The first watcher
puts a function in front of ``ImmediateReplies`` that describes them too, and nothing is answered without Python until the
last one is gone.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from errno import ENOENT
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from holdfast.errors import HoldfastError
from holdfast.fs.file_io.open_files import node_of
from holdfast.fs.fuse import wire_format
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.node import Node, path_of
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.kernel import OPCODE_LIMIT, Connection, Opcode
from holdfast.kernel.native_module import ImmediateReply
from holdfast.system.waits import marked
from holdfast.telemetry import SLOW_NS, Histogram, Latencies, Notes, Observed, OperationFeed, SlowOperations

_T = TypeVar("_T")
_US, _MS, _S = 1_000, 1_000_000, 1_000_000_000
_BOUNDS_NS = (
    *(5 * _US, 10 * _US, 25 * _US, 50 * _US, 100 * _US, 250 * _US, 500 * _US),
    *(_MS, 5 * _MS, 25 * _MS, 100 * _MS, 500 * _MS, 2_500 * _MS, 10 * _S, 60 * _S),
)
"""The ends of the buckets in nanoseconds, from what C answers to what waits for a store that is down."""
_ROOT_ZONE = "/"
_CALLED = {Opcode.RENAME2: "rename", Opcode.BATCH_FORGET: "forget"}
_NAME_AT = {
    Opcode.LOOKUP: 0,
    Opcode.UNLINK: 0,
    Opcode.RMDIR: 0,
    Opcode.MKDIR: wire_format.MKDIR.size,
    Opcode.CREATE: wire_format.CREATE.size,
}
"""The position in the body of a request at which the name of a directory entry begins."""
_RENAMES = {Opcode.RENAME: wire_format.NODE.size, Opcode.RENAME2: wire_format.RENAME2.size}
_NEW_NAMES = {"lookup", "create", "mkdir", "mknod", "symlink", "unlink", "rmdir"}


class OperationTime(NamedTuple):
    """The durations of one kind of request in one zone."""

    operation: str
    zone: str
    durations: Histogram


class OperationTimes:
    """The histograms. ``zones`` has the number of each directory in the root, from 1 on; all else in the root has 0."""

    def __init__(self, zones: Mapping[bytes, int]) -> None:
        self._names = [_ROOT_ZONE, *(name.decode() for name in zones)]
        self._rows = range(OPCODE_LIMIT * len(self._names))
        self._latencies = Latencies(len(self._rows), _BOUNDS_NS)
        self.zone = array("I", [0])
        """The number of the zone of the request that is being answered at once."""

    def zone_name(self, zone: int) -> str:
        """Return the name of a zone: its directory in the root."""
        return self._names[zone]

    def count_in(self, connection: Connection) -> None:
        """Let the C module count what is answered directly."""
        latencies = self._latencies
        connection.count_latencies(latencies.counts, len(self._names), latencies.bounds, self.zone)

    def observe(self, opcode: Opcode, zone: int, nanoseconds: int) -> None:
        """Count a request."""
        self._latencies.observe(opcode * len(self._names) + zone, nanoseconds)

    def hand_over(self, opcode: Opcode, zone: int, nanoseconds: int) -> None:
        """Do what ``observe`` does, for a thread: the request is counted at the next ``take_over``."""
        self._latencies.hand_over(opcode * len(self._names) + zone, nanoseconds)

    def take_over(self) -> None:
        """Count what threads have handed over."""
        self._latencies.take_over()

    def all(self) -> Iterator[OperationTime]:
        """Return what was counted, kind by kind."""
        self.take_over()
        for operation, opcodes in groupby(sorted(Opcode, key=name_of), key=name_of):
            opcodes_of_it = list(opcodes)
            for zone, name in enumerate(self._names):
                rows = (opcode * len(self._names) + zone for opcode in opcodes_of_it)
                durations = self._latencies.histogram(*rows)
                if durations is not None:
                    yield OperationTime(operation, name, durations)

    def together(self) -> Histogram | None:
        """Return what was counted, all kinds and zones together; None if that is nothing."""
        self.take_over()
        return self._latencies.histogram(*self._rows)


def name_of(opcode: Opcode) -> str:
    """Return the name under which a kind of request is counted and shown."""
    return _CALLED.get(opcode, opcode.name.lower())


class Subject(NamedTuple):
    """The subject of a request. ``path`` is empty for the root and for a node that has no name any more."""

    node: Node | None
    path: bytes
    target: bytes = b""


class Request(NamedTuple):
    """A request as the C module hands it over, without its header."""

    opcode: Opcode
    unique: int
    node_id: int
    body: bytes
    caller: Caller


class RequestObserver:
    """Times and describes requests. ``zones`` has the number of each directory in the root."""

    def __init__(self, nodes: NodeTable, policy: NamePolicy, connection: Connection, zones: Mapping[bytes, int]) -> None:
        self._nodes = nodes
        self._policy = policy
        self._connection = connection
        self.times = OperationTimes(zones)
        self.feed = OperationFeed(self._switch)
        self.slow = SlowOperations()
        self._answers: ImmediateReply | None = None
        self._opcodes: tuple[Opcode, ...] = ()

    def answer_directly(self, answers: ImmediateReply, opcodes: Iterable[Opcode]) -> None:
        """Let ``answers`` answer requests with these opcodes first, observed (``Connection.answer_directly``)."""
        self._answers, self._opcodes = answers, tuple(opcodes)
        self.times.count_in(self._connection)
        self._connection.answer_directly(answers, self._opcodes)

    def executed(self, work: Coroutine[Any, Any, _T]) -> Awaitable[_T]:
        """Return ``work`` of the request whose handler runs, each step marked. Call it before the handler's first await."""
        return marked(work, self._connection.executing, self._connection.request())

    def begin(self, opcode: Opcode, arguments: tuple[object, ...]) -> Observation:
        """Begin to observe a request that is replied to by a task. Call it before the first await.

        ``arguments`` are those of the method for pyfuse3, the number of a node or of a handle first.
        """
        caller = self._connection.process(), self._connection.user()
        subject = partial(self.subject, name_of(opcode), arguments)
        return Observation(self, opcode, self._known(arguments[0]), caller, subject)

    def begin_later(self, request: Request) -> Observation:
        """Begin to observe a request that had to wait and is replied to past pyfuse3."""
        opcode, _, node_id, body, caller = request
        subject = partial(self._subject_of, opcode, node_id, body)
        return Observation(self, opcode, self._nodes.known(node_id), (caller.pid, caller.uid), subject)

    def subject(self, operation: str, arguments: tuple[object, ...]) -> Subject:
        """Return what a request of pyfuse3's is about, by the arguments of its method."""
        node = self._known(arguments[0])
        path = _path(node)
        match arguments:
            case (int(), bytes(name), int(target), bytes(new), *_) if operation == "rename":
                return Subject(node, _below(path, name), _below(_path(self._known(target)), new))
            case (int(), int(target), bytes(new), *_) if operation == "link":
                return Subject(node, path, _below(_path(self._known(target)), new))
            case (int(), bytes(name), *_) if operation in _NEW_NAMES:
                return Subject(node, _below(path, name))
        return Subject(node, path)

    def observed(
        self,
        operation: str,
        subject: Subject,
        caller: tuple[int, int],
        duration_ns: int,
        errno: int,
        data_bytes: int,
        notes: Notes,
    ) -> Observed:
        """Return what is shown of a request that has its reply. ``caller`` is pid and uid."""
        node = subject.node
        zone = self.times.zone_name(node.zone if node is not None else 0)
        is_object = operation == "open" and not errno and node is not None and self._is_object(node)
        return Observed(
            time.time_ns(),
            operation,
            zone,
            subject.path,
            subject.target,
            *caller,
            duration_ns,
            errno,
            is_object,
            data_bytes,
            notes,
        )

    def _switch(self, is_watched: bool) -> None:
        if self._answers is None:
            return
        if is_watched:
            self._connection.show_all_requests(self._answer_watched, self._opcodes)
        else:
            self._connection.answer_directly(self._answers, self._opcodes)

    def _answer_watched(
        self, opcode: int, unique: int, node_id: int, uid: int, gid: int, pid: int, body: bytes
    ) -> bytes | int | None:
        """Answer as ``answers`` do, and show the request."""
        assert self._answers is not None
        if opcode == Opcode.FSYNC:
            return None  # a thread would reply, unseen
        kind, began = Opcode(opcode), time.perf_counter_ns()
        subject = self._subject_of(kind, node_id, body)
        answer = self._answers(opcode, unique, node_id, uid, gid, pid, body)
        if answer is not None and answer is not True:
            took_ns = time.perf_counter_ns() - began
            self.feed.publish(self.observed(name_of(kind), subject, (pid, uid), took_ns, errno_in(kind, answer), 0, Notes()))
        return answer

    def _subject_of(self, kind: Opcode, node_id: int, body: bytes) -> Subject:
        node = self._nodes.known(node_id)
        path = _path(node)
        if kind in _NAME_AT:
            return Subject(node, _below(path, body[_NAME_AT[kind] : -1]))
        if kind in _RENAMES:
            old, _, new = body[_RENAMES[kind] : -1].partition(b"\0")
            return Subject(node, _below(path, old), _below(_path(self._first(body)), new))
        if kind is Opcode.LINK:
            linked = self._first(body)
            return Subject(linked, _path(linked), _below(path, body[wire_format.NODE.size : -1]))
        return Subject(node, path)

    def _first(self, body: bytes) -> Node | None:
        return self._nodes.known(wire_format.NODE.unpack_from(body)[0])

    def _known(self, handle: object) -> Node | None:
        return self._nodes.known(node_of(handle)) if isinstance(handle, int) else None

    def _is_object(self, node: Node) -> bool:
        try:
            return bool(node.backing) and self._policy.has_digest(node)
        except (HoldfastError, OSError):  # it has lost its names meanwhile
            return False


class Observation:
    """One request, from before its handler's first await to its end."""

    def __init__(
        self,
        observer: RequestObserver,
        opcode: Opcode,
        node: Node | None,
        caller: tuple[int, int],
        subject: Callable[[], Subject],
    ) -> None:
        """``caller`` is pid and uid; ``subject`` is called where somebody watches, or if the request was slow."""
        self.opcode = opcode
        self._observer = observer
        self._began_ns = time.perf_counter_ns()
        self._zone = node.zone if node is not None else 0
        self._caller = caller
        self.notes = Notes(caller[0])
        self._find_subject = subject
        self._subject = subject() if observer.feed.is_watched else None

    def end(self, errno: int, data_bytes: int = 0) -> None:
        """Note that the request has its reply: count it, keep it if it was slow, show it to those who watch."""
        self.notes.thread = 0  # by now it may wait for something else; what the request has begun, as a fetch, goes on
        duration_ns = time.perf_counter_ns() - self._began_ns
        observer = self._observer
        observer.times.observe(self.opcode, self._zone, duration_ns)
        if duration_ns < SLOW_NS and self._subject is None:
            return
        subject = self._subject or self._find_subject()
        shown = observer.observed(name_of(self.opcode), subject, self._caller, duration_ns, errno, data_bytes, self.notes)
        if duration_ns >= SLOW_NS:
            observer.slow.add(shown)
        if self._subject is not None:
            observer.feed.publish(shown)


def errno_in(opcode: Opcode, answer: bytes | int) -> int:
    """Return the errno of an answer, also that of a LOOKUP whose entry only says for how long there is none."""
    if isinstance(answer, int):
        return answer
    return ENOENT if opcode is Opcode.LOOKUP and not any(answer[: wire_format.NODE.size]) else 0


def _path(node: Node | None) -> bytes:
    return (path_of(node) if node is not None else None) or b""


def _below(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
