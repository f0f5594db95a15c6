"""Computing with many names on the event loop: in slices, between which others go on, one such work at a time.

Users decide how many names a directory has. What computes with all of them is a generator, which pauses every few hundred
names. Two thousand names are done with at once, because a wait would cost more. For more, the work has a slice, then the
loop serves what has come, and then comes the next user's work (``FairSlots``): however many directories are listed at the
same time, who asks for a single name waits for one slice. In threads, the loop would wait for the interpreter after each of
its system calls, for each thread that computes.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import trio
from trio.lowlevel import RunVar

from holdfast.system.waits import before_waiting
from holdfast.transfer.library_calls import FairSlots

AT_ONCE = 2000
"""The number of names that are computed with in one step: a few milliseconds."""
_SLICE_SECONDS = 0.002
_PIECE = 200
"""The number of names between two pauses: a tenth of a millisecond or two."""
_T = TypeVar("_T")
Work = Generator[None, None, _T]
"""Work that may be interrupted wherever it yields; what it returns is its result."""
_slots: RunVar[FairSlots] = RunVar("slots for computing")
_reading: RunVar[FairSlots] = RunVar("slots for reading directories")
_MOST_READERS = 2


async def computed(work: Work[_T], names: int) -> _T:
    """Do ``work`` with so many ``names``, and return its result. It waits only if they are many."""
    if names <= AT_ONCE:
        return at_once(work)
    await before_waiting()
    slots = _of_this_loop(_slots, 1)
    while True:
        await slots.acquire()
        try:
            end = time.perf_counter() + _SLICE_SECONDS
            while time.perf_counter() < end:
                next(work)
        except StopIteration as done:
            result: _T = done.value
            return result
        finally:
            slots.release()
        await trio.lowlevel.checkpoint()


async def read(some: Callable[[], _T]) -> _T:
    """Call ``some``, which reads up to ``AT_ONCE`` names from the disk, in a thread, and return its result.

    Few threads do so at the same time, those of all users by turns.
    """
    await before_waiting()
    slots = _of_this_loop(_reading, _MOST_READERS)
    await slots.acquire()
    try:
        return await trio.to_thread.run_sync(some)
    finally:
        slots.release()


def at_once(work: Work[_T]) -> _T:
    """Do ``work`` in one step, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: _T = done.value
            return result


def pieces(items: Iterable[_T], size: int = _PIECE) -> Iterator[list[_T]]:
    """Yield all items, some hundred at a time."""
    left = iter(items)
    while piece := list(islice(left, size)):
        yield piece


def for_each_piece(items: Iterable[_T], step: Callable[[list[_T]], object]) -> Work[None]:
    """Call ``step`` with all items, some hundred at a time."""
    for piece in pieces(items):
        step(piece)
        yield


def in_order(names: Iterable[bytes]) -> Work[Iterator[bytes]]:
    """Return an iterator over the sorted names. It sorts in pieces; each step of the iterator takes microseconds."""
    parts: list[list[bytes]] = []
    for piece in pieces(names, AT_ONCE):
        parts.append(sorted(piece))
        yield
    return heapq.merge(*parts)


def emptied(mapping: dict[Any, Any]) -> Work[None]:
    """Empty a mapping that nobody needs any more. Otherwise all of it would go in one step, with its last reference."""
    while mapping:
        for _ in range(min(_PIECE, len(mapping))):
            mapping.popitem()
        yield


def _of_this_loop(variable: RunVar[FairSlots], number: int) -> FairSlots:
    try:
        return variable.get()
    except LookupError:
        variable.set(slots := FairSlots(number))
        return slots
